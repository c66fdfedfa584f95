"""A transformer in its original parametrisation, from tokens to an update, top to bottom.

    e_t = √d U[x_t] (+ position)       embedding
    b_ts = softmax_s(q_t·k_s/√d_head)   q, k, v = W_Q x, W_K x, W_V x, s ≤ t
    x ← LN(x + W_O Σ_s b_ts v_s)        attention
    x ← LN(x + W_2 relu(W_1 x))         feed-forward
    logits = D x + bias                decoder

With the default settings this is the text model of the paper (science: 1 head, d = 200, post-norm), the classic word
language model. One step is: gradients of the decoder in closed form
(:mod:`~scansnap.text.transformer.decoder_loss`), of the layers (:mod:`~scansnap.text.transformer.forward`) by autograd,
of the embedding by rows, one clip over all of them, one update in place (:mod:`~scansnap.text.transformer.update`).

    B windows · T positions · N = B·T · H heads · d width · M vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks import InputError, real
from scansnap.text.on_cuda import RecordedSteps, products_on
from scansnap.text.parallel.directions import Directions, Portion, Touched
from scansnap.text.transformer.decoder_loss import DecoderLoss, decoder_weight
from scansnap.text.transformer.draws import Dropout, hide, step_seed
from scansnap.text.transformer.forward import ForwardPass
from scansnap.text.transformer.implied_yz import ImpliedYZ, implied_yz
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.transformer.update import MOST_ROWS, ClippedUpdate, Rows, dense_rows
from scansnap.text.transformer.weights import Layers, initial_weights

Draws = tuple[Tensor | None, Dropout | None]  # uniforms (B, T) that say what is hidden, if anything is, and dropout


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
        self.parts = Layers(settings)
        self.forward = ForwardPass(settings, self.parts, self.device)
        self.weights = {name: w.to(self.device) for name, w in initial_weights(settings, self.parts).items()}
        # the decoder's rows beyond the vocabulary stay as they are, whatever the rule
        self.moving = {name: w[: self.vocab_size] if name == "decoder" else w for name, w in self.weights.items()}
        self.update = ClippedUpdate(settings, self.moving)
        self.by_rows = self.update.rule.linear and not settings.tied  # of the embedding's gradient, rows suffice
        self.step = torch.zeros((), dtype=torch.int64)  # updates done; on the CPU, where dropout's seed is made of it
        self.generator = torch.Generator("cpu" if self.device.type == "meta" else self.device)  # meta: only its shapes
        self.decoder_loss = DecoderLoss()
        self.graphs, self.steps = graphs, RecordedSteps(self.device, graphs, self.generator)
        self.divided: dict[int, RecordedSteps] = {}  # steps that move nothing, by the windows of the whole batch
        self._found: dict[tuple[int, torch.Size], Directions] = {}  # by them
        self._shared: tuple[tuple[int, torch.Size], Draws] | None = None  # by the parts of one batch
        self._first = torch.zeros((), dtype=torch.int64, device=self.device)  # window of the part under way

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
        for kind in sorted(self.update.moments["layers"]):
            moments = {name: moment[kind] for name, moment in self.update.moments.items()}
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
            real("keep", keep, above=0, most=1)
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
        self.step += 1
        self.generator.manual_seed(step_seed(self.settings.seed, int(self.step)))
        self.update.prepare(int(self.step))
        return self.steps.run(self._step, inputs, targets)

    def directions(self, inputs: Tensor, targets: Tensor, part: Portion) -> tuple[Tensor, Directions]:
        """See the protocol; dropout and masks are those of these windows in an update on the whole batch."""
        self._check_batch(inputs, targets)
        self.generator.manual_seed(step_seed(self.settings.seed, int(self.step) + 1))
        self._first.fill_(part.first)
        if part.of not in self.divided:
            self.divided[part.of] = RecordedSteps(self.device, self.graphs, self.generator)
        loss = self.divided[part.of].run(lambda x, n: self._part_step(x, n, part.of), inputs, targets)
        return loss, self._found[part.of, inputs.shape]

    @torch.no_grad()
    def move(self, directions: Directions) -> None:
        self.step += 1
        self.update.prepare(int(self.step))
        embedding, layers, decoder = (directions[name] for name in ("embedding", "layers", "decoder"))
        assert isinstance(embedding, Touched)
        assert isinstance(layers, Tensor)
        assert isinstance(decoder, Tensor)
        with products_on(self.device, self.settings.precision):
            self.update(self.moving, self._gradients(embedding.ids, embedding.rows, layers, decoder))

    def scale_rates(self, factor: float) -> None:
        """The rate to ``factor`` times that of the settings, for a schedule."""
        self.update.scale_rates(factor)

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss, tokens, de, dflat, dw = self._backward(inputs, targets)
        with torch.no_grad(), products_on(self.device, self.settings.precision):
            self.update(self.moving, self._gradients(tokens, de, dflat, dw))
        return loss

    def _part_step(self, inputs: Tensor, targets: Tensor, windows: int) -> Tensor:
        """A step that moves nothing. What it found is kept by shape, as a replayed graph fills it again."""
        loss, tokens, de, dflat, dw = self._backward(inputs, targets, windows)
        kind = self.settings.torch_dtype  # sums over parts are made in that of the weights
        embedding = Touched(tokens, de.to(kind), distinct=False)
        found: Directions = {"embedding": embedding, "layers": dflat.to(kind), "decoder": dw.to(kind)}
        self._found[windows, inputs.shape] = found
        return loss

    def _backward(
        self, inputs: Tensor, targets: Tensor, windows: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The loss; the tokens (N,) and the gradients of their embeddings (N, d), of the layers and of the decoder.

        ``windows``: the batch is a part, from ``_first`` on, of one with so many.
        """
        s, weights = self.settings, self.weights
        shape = inputs.shape if windows is None else torch.Size((windows, inputs.shape[1]))
        rows = None if windows is None else self._first + torch.arange(len(inputs), device=inputs.device)
        with products_on(self.device, self.settings.precision):
            places, (hidden, drop) = None, self._draws(shape, rows)
            if hidden is not None:
                inputs, places, targets = hide(inputs, hidden, s.mask_share, s.vocab_size)
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

    def _draws(self, shape: torch.Size, rows: Tensor | None) -> Draws:
        """For a batch of this shape, or for some of its rows: then on a CPU, where draws take time, all parts share
        them."""
        if rows is None:
            return self._drawn_for(shape)
        key = (int(self.step), shape)
        if self.device.type != "cpu" or self._shared is None or self._shared[0] != key:
            self._shared = (key, self._drawn_for(shape))
        hidden, drop = self._shared[1]
        return None if hidden is None else hidden.index_select(0, rows), None if drop is None else drop.part(rows)

    def _drawn_for(self, shape: torch.Size) -> Draws:
        s = self.settings
        hidden = torch.rand(shape, device=self.device, generator=self.generator) if s.objective == "masked" else None
        return hidden, Dropout(s, shape, self.generator, self.device) if s.dropout else None

    def _gradients(self, tokens: Tensor, de: Tensor, dflat: Tensor, dw: Tensor) -> dict[str, Tensor | Rows]:
        """By name of the weights; rows alone of the embedding where that is all that moves."""
        s, weights = self.settings, self.weights
        d, u = s.width, weights["embedding"]
        found: dict[str, Tensor | Rows] = {"layers": dflat}
        rows = de.to(u.dtype)
        if self.by_rows and tokens.numel() <= MOST_ROWS:
            found["embedding"] = Rows(tokens, rows)
        else:
            found["embedding"] = dense_rows(tokens, rows, len(u))
        if s.tied:
            found["embedding"][: s.vocab_size] += dw[: s.vocab_size, :d]  # type: ignore[index]
            if s.bias:
                found["decoder_bias"] = dw[: s.vocab_size, d]
        else:
            if not s.bias:
                dw[:, d] = 0
            found["decoder"] = dw[: s.vocab_size]
        return found

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
