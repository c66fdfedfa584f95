"""A transformer in its original parametrisation, from tokens to an update, top to bottom.

    e_t = √d U[x_t] (+ position)       embedding
    b_ts = softmax_s(q_t·k_s/√d_head)   q, k, v = W_Q x, W_K x, W_V x, s ≤ t
    x ← LN(x + W_O Σ_s b_ts v_s)        attention
    x ← LN(x + W_2 relu(W_1 x))         feed-forward
    logits = D x + bias                decoder

With the default settings this is the text model of the paper (science: 1 head, d = 200, post-norm), the classic word
language model. One step is: gradients of the decoder in closed form
(`scansnap.text.transformer.decoder_loss`), of the layers (`scansnap.text.transformer.forward`) by autograd,
of the embedding by rows, one clip over all of them, one update in place (`scansnap.text.transformer.optimizer`).

    B windows · T positions · N = B·T · H heads · d width · M vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks import InputError, check_float
from scansnap.text.cuda import GraphedSteps, matmul_precision
from scansnap.text.transformer.decoder_loss import DecoderLoss, decoder_weight
from scansnap.text.transformer.draws import Dropout, mask_tokens, step_seed
from scansnap.text.transformer.forward import LayerStack
from scansnap.text.transformer.implied_yz import ImpliedYZ, implied_yz
from scansnap.text.transformer.optimizer import MAX_ROWS, ClippedOptimizer, RowGradient, dense_rows
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.transformer.weights import LayerWeights, initial_weights


class Transformer:
    """A trainable transformer; it implements ``LanguageModel``.

    Parameters
    ----------
    settings
        Vocabulary size, architecture, rate and optimizer.
    device
        Where the weights are.
    graphs
        Whether steps on CUDA are captured once for each batch shape and replayed; a shape's first step is not.
    uniform_attention
        Keep attention uniform in updates; W_Q and W_K still have their gradients there. Not recorded in a file.

    Examples
    --------
    >>> model = Transformer(TransformerSettings(vocab_size=10, width=8, heads=2))
    >>> [b.shape for b in model.attention(torch.tensor([[1, 2, 3]]))]
    [torch.Size([1, 2, 3, 3])]
    """

    def __init__(
        self,
        settings: TransformerSettings,
        device: str | torch.device = "cpu",
        *,
        graphs: bool = True,
        uniform_attention: bool = False,
    ) -> None:
        self.settings, self.device, self.uniform_attention = settings, torch.device(device), uniform_attention
        self.vocab_size, self.layers = settings.vocab_size, settings.layers
        self.layout = LayerWeights(settings)
        self.forward = LayerStack(settings, self.layout, self.device)
        self.weights = {name: w.to(self.device) for name, w in initial_weights(settings, self.layout).items()}
        # the padding of the decoder is never updated, whatever the rule
        self.trained = {name: w[: self.vocab_size] if name == "decoder" else w for name, w in self.weights.items()}
        self.optimizer = ClippedOptimizer(settings, self.trained)
        self.can_update_rows = self.optimizer.optimizer.is_plain_sgd and not settings.tied  # of the embedding
        self.step = torch.zeros((), dtype=torch.int64)  # updates done; on the CPU, for the seed of dropout
        self.generator = torch.Generator("cpu" if self.device.type == "meta" else self.device)  # meta: only its shapes
        self.decoder_loss = DecoderLoss()
        self.steps = GraphedSteps(self.device, graphs, self.generator)

    @classmethod
    def from_description(cls, description: dict[str, Any], device: str | torch.device = "cpu") -> Transformer:
        """The model of a `describe`, with its initial values."""
        return cls(TransformerSettings.from_dict({k: v for k, v in description.items() if k != "kind"}), device)

    def describe(self) -> dict[str, Any]:
        """The settings as plain values, with the ``kind`` of the model."""
        return {"kind": "transformer", **self.settings.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """embedding, decoder, decoder_bias, layer0.w_qkv (W_Q, W_K, W_V one below the other), …: views.

        Then their moments, and the number of updates.
        """
        tensors = self._named(self.weights)
        for kind in sorted(self.optimizer.moments["layers"]):
            moments = {name: moment[kind] for name, moment in self.optimizer.moments.items()}
            tensors |= {f"{name}.{kind}": view for name, view in self._named(moments).items()}
        return {**tensors, "step": self.step}

    def _named(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        d, views = self.settings.width, {"embedding": weights["embedding"]}
        views |= self.layout.views(weights["layers"])
        if "decoder" in weights:
            views["decoder"] = weights["decoder"][: self.vocab_size, :d]
            views["decoder_bias"] = weights["decoder"][: self.vocab_size, d]
        if "decoder_bias" in weights:
            views["decoder_bias"] = weights["decoder_bias"]
        if not self.settings.bias:
            views.pop("decoder_bias", None)
        return views

    def _states(self, inputs: Tensor, **options: Any) -> Tensor:
        self._check(inputs)
        work = self.settings.work_dtype
        e = self.weights["embedding"][inputs].to(work)
        return self.forward(e, self.weights["layers"].to(work), **options)

    @torch.no_grad()
    def logits(self, inputs: Tensor, attention_mass: float | None = None) -> Tensor:
        """(B, T, M), without dropout; ``attention_mass`` restricts attention to the smallest set of keys with it."""
        if attention_mass is not None:
            check_float("attention_mass", attention_mass, above=0, most=1)
        with matmul_precision(self.device, self.settings.precision):
            h = self._states(inputs, attention_mass=attention_mass)  # (B, T, d)
            weight, d = self._decoder()[: self.vocab_size].to(h.dtype), self.settings.width
            return F.linear(h, weight[:, :d], weight[:, d]).to(self.settings.torch_dtype)

    @torch.no_grad()
    def attention(self, inputs: Tensor) -> list[Tensor]:
        """For each layer (B, heads, T, T): row t is the attention of position t."""
        attention: list[Tensor] = []
        with matmul_precision(self.device, self.settings.precision):
            self._states(inputs, attention=attention)
        return [b.to(self.settings.torch_dtype) for b in attention]

    def key_mask(self, length: int) -> Tensor:
        """(T, T) booleans: the positions that each position of a window may attend to."""
        is_future = self.forward.position_terms(length).is_future
        return ~is_future if self.settings.objective == "next" else torch.ones_like(is_future)

    def to_yz(self, layer: int = 0) -> ImpliedYZ:
        """The tables Y and Z that a layer's weights imply; ``implied_yz`` says when exactly."""
        return implied_yz(self.settings, self.tensors(), layer)

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update; with the masked objective the targets are the masked tokens of the inputs."""
        self._check_batch(inputs, targets)
        self.begin_step()
        self.seed_draws()
        return self.steps.run(self._step, inputs, targets)

    def begin_step(self) -> None:
        """Count an update."""
        self.step += 1
        self.optimizer.prepare(int(self.step) - 1)

    def seed_draws(self, part: int = 0) -> None:
        """Seed dropout and masks for a part of the batch of this update."""
        seed = step_seed(self.settings.seed, int(self.step))
        self.generator.manual_seed(step_seed(seed, part) if part else seed)

    def gradients(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of a batch and its gradient by name of the weight, without an update."""
        self._check_batch(inputs, targets)
        loss, tokens, de, dflat, dw = self._backward(inputs, targets)
        embedding = self._embedding(tokens, de, dw, by_rows=False)
        assert isinstance(embedding, Tensor)
        return loss, {"layers": dflat, "embedding": embedding, **self._decoder_gradients(dw)}

    @torch.no_grad()
    def apply_gradients(self, gradients: Mapping[str, Tensor | RowGradient]) -> None:
        """Update the weights by the gradient of a batch, after `begin_step`."""
        with matmul_precision(self.device, self.settings.precision):
            self.optimizer(self.trained, gradients)

    def scale_rates(self, factor: float) -> None:
        """Set the rate to ``factor`` times that of the settings, for a schedule."""
        self.optimizer.scale_rates(factor)

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss, tokens, de, dflat, dw = self._backward(inputs, targets)
        by_rows = self.can_update_rows and tokens.numel() <= MAX_ROWS
        with torch.no_grad(), matmul_precision(self.device, self.settings.precision):
            gradients: dict[str, Tensor | RowGradient] = {
                "layers": dflat,
                "embedding": self._embedding(tokens, de, dw, by_rows),
            }
            self.optimizer(self.trained, gradients | self._decoder_gradients(dw))
        return loss

    def _backward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The loss; the tokens (N,) and the gradients of their embeddings (N, d), of the layers and of the decoder."""
        s, weights = self.settings, self.weights
        with matmul_precision(self.device, self.settings.precision):
            positions = None
            if s.objective == "masked":
                draws = torch.rand(inputs.shape, device=self.device, generator=self.generator)
                inputs, positions, targets = mask_tokens(inputs, draws, s.mask_share, s.vocab_size)
            dropout = Dropout(s, inputs.shape, self.generator, self.device) if s.dropout else None
            e = weights["embedding"][inputs].to(s.work_dtype).requires_grad_()  # (B, T, d)
            flat = weights["layers"].detach().to(s.work_dtype).requires_grad_()
            with torch.enable_grad():
                x = self.forward(e, flat, dropout, uniform=self.uniform_attention)  # (B, T, d)
                if positions is not None:
                    x = x.gather(1, positions[..., None].expand(-1, -1, s.width))  # (B, k, d)
            with torch.no_grad():
                loss, dx, dw = self.decoder_loss(x.detach().flatten(0, 1), self._decoder(), targets.flatten())
                de, dflat = torch.autograd.grad(x, (e, flat), dx.view_as(x))
        return loss, inputs.flatten(), de.flatten(0, 1), dflat, dw

    def _embedding(self, tokens: Tensor, de: Tensor, dw: Tensor, by_rows: bool) -> Tensor | RowGradient:
        """The gradient of the embedding, or only of its rows in the batch."""
        s, u = self.settings, self.weights["embedding"]
        if by_rows:
            return RowGradient(tokens, de.to(u.dtype))
        dense = dense_rows(tokens, de.to(u.dtype), len(u))
        if s.tied:
            dense[: s.vocab_size] += dw[: s.vocab_size, : s.width]
        return dense

    def _decoder_gradients(self, dw: Tensor) -> dict[str, Tensor]:
        s = self.settings
        if s.tied:
            return {"decoder_bias": dw[: s.vocab_size, s.width]} if s.bias else {}
        if not s.bias:
            dw[:, s.width] = 0
        return {"decoder": dw[: s.vocab_size]}

    def _decoder(self) -> Tensor:
        """In the shape of `scansnap.text.transformer.decoder_loss`, (M', d + ROOM)."""
        if not self.settings.tied:
            return self.weights["decoder"]
        return decoder_weight(self.weights["embedding"][: self.vocab_size], self.weights.get("decoder_bias"))

    def _check_batch(self, inputs: Tensor, targets: Tensor) -> None:
        if inputs.shape != targets.shape or inputs.ndim != 2:
            expected = f"the shape (B, T) of the inputs, {tuple(inputs.shape)}"
            raise InputError("targets", f"shape {tuple(targets.shape)}", expected)
        self._check(inputs)

    def _check(self, inputs: Tensor) -> None:
        if inputs.ndim != 2 or not inputs.numel():
            raise InputError("inputs", f"shape {tuple(inputs.shape)}", "token ids of shape (B, T)")
        if self.settings.positions == "learned" and inputs.shape[1] > self.settings.max_length:
            most = self.settings.max_length
            raise InputError("inputs", f"shape {tuple(inputs.shape)}", f"at most max_length = {most} positions")
