"""A transformer in its original parametrisation, from tokens to an update, top to bottom.

    e_t = √d U[x_t] (+ position)       embedding
    b_ts = softmax_s(q_t·k_s/√d_head)   q, k, v = W_Q x, W_K x, W_V x, s ≤ t
    x ← LN(x + W_O Σ_s b_ts v_s)        attention
    x ← LN(x + W_2 relu(W_1 x))         feed-forward
    logits = D x + bias                decoder

With the default settings this is the text model of the paper (science: 1 head, d = 200, post-norm), the classic word
language model. One step is: gradients of the decoder in closed form
(:mod:`~scansnap.text.transformer.decoder_loss`), of the layers (:mod:`~scansnap.text.transformer.forward`) by autograd,
of the embedding by rows, one clip over all of them, one update in place (:mod:`~scansnap.text.transformer.optimizer`).

    B windows · T positions · N = B·T · H heads · d width · M vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks import InputError, check_float
from scansnap.text.on_cuda import GraphedSteps, products_on
from scansnap.text.transformer.decoder_loss import DecoderLoss, decoder_weight
from scansnap.text.transformer.draws import Dropout, hide, step_seed
from scansnap.text.transformer.forward import LayerStack
from scansnap.text.transformer.implied_yz import ImpliedYZ, implied_yz
from scansnap.text.transformer.optimizer import MOST_ROWS, ClippedOptimizer, RowGradient, dense_rows
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.transformer.weights import LayerWeights, initial_weights


class Transformer:
    """A trainable transformer; ``LanguageModel`` in its shape.

    graphs     steps on CUDA are recorded once for each batch shape and replayed; a shape seen once runs as it comes
    listening  updates are made with uniform attention, whose logits only move by what they hear (not kept in a file)
    """

    def __init__(
        self,
        settings: TransformerSettings,
        device: str | torch.device = "cpu",
        *,
        graphs: bool = True,
        listening: bool = False,
    ) -> None:
        self.settings, self.device, self.listening = settings, torch.device(device), listening
        self.vocab_size, self.layers = settings.vocab_size, settings.layers
        self.parts = LayerWeights(settings)
        self.forward = LayerStack(settings, self.parts, self.device)
        self.weights = {name: w.to(self.device) for name, w in initial_weights(settings, self.parts).items()}
        # the decoder's rows beyond the vocabulary stay as they are, whatever the rule
        self.moving = {name: w[: self.vocab_size] if name == "decoder" else w for name, w in self.weights.items()}
        self.optimizer = ClippedOptimizer(settings, self.moving)
        self.by_rows = (
            self.optimizer.optimizer.is_plain_sgd and not settings.tied
        )  # of the embedding's gradient, rows suffice
        self.step = torch.zeros((), dtype=torch.int64)  # updates done; on the CPU, where dropout's seed is made of it
        self.generator = torch.Generator("cpu" if self.device.type == "meta" else self.device)  # meta: only its shapes
        self.decoder_loss = DecoderLoss()
        self.steps = GraphedSteps(self.device, graphs, self.generator)

    @classmethod
    def from_description(cls, description: dict[str, Any], device: str | torch.device = "cpu") -> Transformer:
        """The model :meth:`describe` tells of, with its initial values."""
        return cls(TransformerSettings.from_dict({k: v for k, v in description.items() if k != "kind"}), device)

    def describe(self) -> dict[str, Any]:
        return {"kind": "transformer", **self.settings.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """embedding, decoder, decoder_bias, layer0.w_qkv (W_Q, W_K, W_V one below the other), …: views.

        Then their moments, and the number of updates.
        """
        found = self._named(self.weights)
        for kind in sorted(self.optimizer.moments["layers"]):
            moments = {name: moment[kind] for name, moment in self.optimizer.moments.items()}
            found |= {f"{name}.{kind}": view for name, view in self._named(moments).items()}
        return {**found, "step": self.step}

    def _named(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        d, found = self.settings.width, {"embedding": weights["embedding"]}
        found |= self.parts.views(weights["layers"])
        if "decoder" in weights:
            found["decoder"] = weights["decoder"][: self.vocab_size, :d]
            found["decoder_bias"] = weights["decoder"][: self.vocab_size, d]
        if "decoder_bias" in weights:
            found["decoder_bias"] = weights["decoder_bias"]
        if not self.settings.bias:
            found.pop("decoder_bias", None)
        return found

    def _states(self, inputs: Tensor, *, keep: float | None = None, seen: list[Tensor] | None = None) -> Tensor:
        self._check(inputs)
        work = self.settings.work_dtype
        e = self.weights["embedding"][inputs].to(work)
        return self.forward(e, self.weights["layers"].to(work), keep=keep, seen=seen)

    @torch.no_grad()
    def logits(self, inputs: Tensor, keep: float | None = None) -> Tensor:
        """(B, T, M), without dropout. ``keep``: attention only to the smallest set of keys with this mass,
        renormalised."""
        if keep is not None:
            check_float("keep", keep, above=0, most=1)
        with products_on(self.device, self.settings.precision):
            h = self._states(inputs, keep=keep)  # (B, T, d)
            weight, d = self._decoder()[: self.vocab_size].to(h.dtype), self.settings.width
            return F.linear(h, weight[:, :d], weight[:, d]).to(self.settings.torch_dtype)

    @torch.no_grad()
    def attention(self, inputs: Tensor) -> list[Tensor]:
        seen: list[Tensor] = []
        with products_on(self.device, self.settings.precision):
            self._states(inputs, seen=seen)
        return [b.to(self.settings.torch_dtype) for b in seen]

    def keys(self, length: int) -> Tensor:
        ahead = self.forward.place(length).ahead
        return ~ahead if self.settings.objective == "next" else torch.ones_like(ahead)

    def to_yz(self, layer: int = 0) -> ImpliedYZ:
        """The tables Y and Z that a layer's weights imply; ``implied_yz`` says when exactly."""
        return implied_yz(self.settings, self.tensors(), layer)

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update, see the protocol. With the masked objective the targets are the tokens hidden in the inputs."""
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
        """The mean loss of a batch, and its gradient by name of the weights; nothing moves."""
        self._check_batch(inputs, targets)
        loss, tokens, de, dflat, dw = self._backward(inputs, targets)
        embedding = self._embedding(tokens, de, dw, by_rows=False)
        assert isinstance(embedding, Tensor)
        return loss, {"layers": dflat, "embedding": embedding, **self._decoder_gradients(dw)}

    @torch.no_grad()
    def apply_gradients(self, gradients: Mapping[str, Tensor | RowGradient]) -> None:
        """Move the weights by the gradient of a batch, after :meth:`begin_step`."""
        with products_on(self.device, self.settings.precision):
            self.optimizer(self.moving, gradients)

    def scale_rates(self, factor: float) -> None:
        """The rate to ``factor`` times that of the settings, for a schedule."""
        self.optimizer.scale_rates(factor)

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss, tokens, de, dflat, dw = self._backward(inputs, targets)
        by_rows = self.by_rows and tokens.numel() <= MOST_ROWS
        with torch.no_grad(), products_on(self.device, self.settings.precision):
            gradients: dict[str, Tensor | RowGradient] = {
                "layers": dflat,
                "embedding": self._embedding(tokens, de, dw, by_rows),
            }
            self.optimizer(self.moving, gradients | self._decoder_gradients(dw))
        return loss

    def _backward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The loss; the tokens (N,) and the gradients of their embeddings (N, d), of the layers and of the decoder."""
        s, weights = self.settings, self.weights
        with products_on(self.device, self.settings.precision):
            places = None
            if s.objective == "masked":
                draws = torch.rand(inputs.shape, device=self.device, generator=self.generator)
                inputs, places, targets = hide(inputs, draws, s.mask_share, s.vocab_size)
            drop = Dropout(s, inputs.shape, self.generator, self.device) if s.dropout else None
            e = weights["embedding"][inputs].to(s.work_dtype).requires_grad_()  # (B, T, d)
            flat = weights["layers"].detach().to(s.work_dtype).requires_grad_()
            with torch.enable_grad():
                x = self.forward(e, flat, drop, listening=self.listening)  # (B, T, d)
                if places is not None:
                    x = x.gather(1, places[..., None].expand(-1, -1, s.width))  # (B, k, d)
            with torch.no_grad():
                loss, dx, dw = self.decoder_loss(x.detach().flatten(0, 1), self._decoder(), targets.flatten())
                de, dflat = torch.autograd.grad(x, (e, flat), dx.view_as(x))
        return loss, inputs.flatten(), de.flatten(0, 1), dflat, dw

    def _embedding(self, tokens: Tensor, de: Tensor, dw: Tensor, by_rows: bool) -> Tensor | RowGradient:
        """The gradient of the embedding: of its rows alone where that is all that moves."""
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
        """In the shape of :mod:`~scansnap.text.transformer.decoder_loss`, (M', d + ROOM)."""
        if not self.settings.tied:
            return self.weights["decoder"]
        return decoder_weight(self.weights["embedding"][: self.vocab_size], self.weights.get("decoder_bias"))

    def _check_batch(self, inputs: Tensor, targets: Tensor) -> None:
        if inputs.shape != targets.shape or inputs.ndim != 2:
            raise InputError(
                "targets", tuple(targets.shape), f"of the inputs' shape (B, T), here {tuple(inputs.shape)}"
            )
        self._check(inputs)

    def _check(self, inputs: Tensor) -> None:
        if inputs.ndim != 2 or not inputs.numel():
            raise InputError("inputs", tuple(inputs.shape), "token ids of shape (B, T)")
        if self.settings.positions == "learned" and inputs.shape[1] > self.settings.max_length:
            raise InputError("inputs", tuple(inputs.shape), f"at most max_length = {self.settings.max_length} long")
