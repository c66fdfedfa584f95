"""A transformer in its original parametrisation, from tokens to an update, top to bottom.

    e_t = √d U[x_t] (+ position)       embedding
    b_ts = softmax_s(q_t·k_s/√d_head)   q, k, v = W_Q x, W_K x, W_V x, s ≤ t
    x ← LN(x + W_O Σ_s b_ts v_s)        attention
    x ← LN(x + W_2 relu(W_1 x))         feed-forward
    logits = D x + bias                decoder

With the default settings this is the text model of the paper (science: 1 head, d = 200, post-norm), the classic word
language model. One step is: gradients of the decoder in closed form
(:mod:`~scansnap.text.transformer.decoder_loss`), of the layers by autograd, of the embedding by rows, one clip over
all of them, one update in place (:mod:`~scansnap.text.transformer.update`).

    B windows · T positions · N = B·T · H heads · d width · M vocabulary
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks import InputError, real
from scansnap.text.attention_statistics import keep_mass
from scansnap.text.masking import hide
from scansnap.text.precision import products_on
from scansnap.text.recorded import Recorded
from scansnap.text.transformer import positions
from scansnap.text.transformer.affine import affine
from scansnap.text.transformer.decoder_loss import DecoderLoss, decoder_weight
from scansnap.text.transformer.dropout import Dropout, step_seed
from scansnap.text.transformer.implied_yz import ImpliedYZ, implied_yz
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.transformer.update import MOST_ROWS, ClippedUpdate, Rows, dense_rows
from scansnap.text.transformer.weights import Layers, initial_weights


class Place(NamedTuple):
    """What depends on positions alone, for windows of one length."""

    added: Tensor | None  # (T, d), to embeddings
    bias: Tensor | None  # (H, T, T), to logits of attention; −∞ ahead of a causal query
    turn: tuple[Tensor, Tensor] | None  # of queries and keys
    ahead: Tensor  # (T, T), keys after their query


class Transformer:
    """A trainable transformer; ``LanguageModel`` in its shape.

    graphs  steps on CUDA are recorded once for each batch shape and replayed; a shape seen once runs as it comes
    """

    def __init__(
        self, settings: TransformerSettings, device: str | torch.device = "cpu", *, graphs: bool = True
    ) -> None:
        self.settings, self.device = settings, torch.device(device)
        self.vocab_size, self.layers = settings.vocab_size, settings.layers
        self.parts = Layers(settings)
        self.weights = {name: w.to(self.device) for name, w in initial_weights(settings, self.parts).items()}
        # the decoder's rows beyond the vocabulary stay as they are, whatever the rule
        self.moving = {name: w[: self.vocab_size] if name == "decoder" else w for name, w in self.weights.items()}
        self.update = ClippedUpdate(settings, self.moving)
        self.by_rows = self.update.rule.linear and not settings.tied  # of the embedding's gradient, rows suffice
        self.step = torch.zeros((), dtype=torch.int64)  # updates done; on the CPU, where dropout's seed is made of it
        self.generator = torch.Generator(self.device)
        self.decoder_loss = DecoderLoss()
        self.graphs = graphs and self.device.type == "cuda"
        self._places: dict[int, Place] = {}
        self._recorded: dict[tuple[int, int], Recorded | None] = {}

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

    # ---------------------------------------------------------------------------------------------------- forward

    def _forward(
        self,
        e: Tensor,
        flat: Tensor,
        drop: Dropout | None = None,
        *,
        keep: float | None = None,
        seen: list[Tensor] | None = None,
    ) -> Tensor:
        """Embeddings U[x] to the decoder's input, both (B, T, d); ``seen`` collects the attention of each layer."""
        s, (length, width) = self.settings, e.shape[1:]
        w = self.parts.views(flat)
        x = e
        if s.positions == "learned":
            x = x + w["positions"][:length]
        if s.scaled:
            x = x * math.sqrt(width)
        place = self._place(length)
        if place.added is not None:
            x = x + place.added
        dropped = _as_it_is if drop is None else drop
        x = dropped(x)
        for i in range(s.layers):
            at = f"layer{i}."
            a = self._attend(self._norm("pre", x, w, at + "norm1"), w, at, place, drop, keep, seen)  # (B, T, d)
            x = self._norm("post", dropped(a) + x if s.residual else dropped(a), w, at + "norm1")
            if s.feed_forward:
                y = affine(self._norm("pre", x, w, at + "norm2"), w[at + "w_1"], w.get(at + "b_1")).relu()  # (B, T, f)
                y = affine(dropped(y), w[at + "w_2"], w.get(at + "b_2"))  # (B, T, d)
                x = self._norm("post", dropped(y) + x if s.residual else dropped(y), w, at + "norm2")
        return self._norm("pre", x, w, "norm")

    def _attend(
        self, x: Tensor, w: dict[str, Tensor], at: str, place: Place,
        drop: Dropout | None, keep: float | None, seen: list[Tensor] | None,
    ) -> Tensor:  # fmt: skip
        """W_O Σ_s b_ts v_s, (B, T, d). Fused unless the weights b themselves are wanted, or dropped out."""
        heads, causal = self.settings.heads, self.settings.objective == "next"
        qkv = affine(x, w[at + "w_qkv"], w.get(at + "b_qkv"))  # (B, T, 3d)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))  # (B, H, T, d_head)
        if place.turn is not None:
            q, k = positions.rotate(q, place.turn), positions.rotate(k, place.turn)
        if seen is None and keep is None and drop is None:
            mixed = F.scaled_dot_product_attention(q, k, v, place.bias, is_causal=causal and place.bias is None)
        else:
            z = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
            z = z if place.bias is None else z + place.bias
            b = torch.softmax(z.masked_fill(place.ahead, -torch.inf) if causal else z, -1)
            b = b if keep is None else keep_mass(b, keep)
            if seen is not None:
                seen.append(b)
            mixed = (b if drop is None else drop(b)) @ v  # (B, H, T, d_head)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, T, d)
        return affine(mixed, w[at + "w_o"], w.get(at + "b_o")) if self.settings.mixing else mixed

    def _norm(self, where: str, x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
        return (
            F.layer_norm(x, x.shape[-1:], w[name + "_gain"], w[name + "_shift"]) if self.settings.norm == where else x
        )

    def _place(self, length: int) -> Place:
        """Kept, as a recorded graph reads them where they lie."""
        if length not in self._places:
            s, device, dtype = self.settings, self.device, self.settings.work_dtype
            ahead = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
            bias = positions.alibi(length, s.heads, device, dtype) if s.positions == "alibi" else None
            if bias is not None and s.objective == "next":
                bias = bias.masked_fill(ahead, -torch.inf)
            self._places[length] = Place(
                added=positions.sinusoidal(length, s.width, device, dtype) if s.positions == "sinusoidal" else None,
                bias=bias,
                turn=positions.rotation(length, s.width // s.heads, device, dtype) if s.positions == "rope" else None,
                ahead=ahead,
            )
        return self._places[length]

    def _states(self, inputs: Tensor, *, keep: float | None = None, seen: list[Tensor] | None = None) -> Tensor:
        self._check(inputs)
        work = self.settings.work_dtype
        e = self.weights["embedding"][inputs].to(work)
        return self._forward(e, self.weights["layers"].to(work), keep=keep, seen=seen)

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
        ahead = self._place(length).ahead
        return ~ahead if self.settings.objective == "next" else torch.ones_like(ahead)

    def to_yz(self, layer: int = 0) -> ImpliedYZ:
        """The tables Y and Z that a layer's weights imply; ``implied_yz`` says when exactly."""
        return implied_yz(self.settings, self.tensors(), layer)

    # --------------------------------------------------------------------------------------------------- training

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update, see the protocol. With the masked objective the targets are the tokens hidden in the inputs."""
        if inputs.shape != targets.shape or inputs.ndim != 2:
            raise InputError(
                "targets", tuple(targets.shape), f"of the inputs' shape (B, T), here {tuple(inputs.shape)}"
            )
        self._check(inputs)
        self.step += 1
        self.generator.manual_seed(step_seed(self.settings.seed, int(self.step)))
        self.update.prepare(int(self.step))
        shape = (inputs.shape[0], inputs.shape[1])
        if not self.graphs or shape not in self._recorded:  # the first step of a shape also sets libraries up
            self._recorded[shape] = None
            return self._step(inputs, targets)
        recorded = self._recorded[shape]
        if recorded is None:
            recorded = self._recorded[shape] = Recorded(self._step, self.generator, inputs, targets)
        return recorded(inputs, targets)

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        s, weights = self.settings, self.weights
        with products_on(self.device, self.settings.precision):
            places = None
            if s.objective == "masked":
                draws = torch.rand(inputs.shape, device=inputs.device, generator=self.generator)
                inputs, places, targets = hide(inputs, draws, s.mask_share, s.vocab_size)
            drop = Dropout(s, inputs.shape, self.generator, self.device) if s.dropout else None
            e = weights["embedding"][inputs].to(s.work_dtype).requires_grad_()  # (B, T, d)
            flat = weights["layers"].detach().to(s.work_dtype).requires_grad_()
            with torch.enable_grad():
                x = self._forward(e, flat, drop)  # (B, T, d)
                if places is not None:
                    x = x.gather(1, places[..., None].expand(-1, -1, s.width))  # (B, k, d)
            with torch.no_grad():
                loss, dx, dw = self.decoder_loss(x.detach().flatten(0, 1), self._decoder(), targets.flatten())
                de, dflat = torch.autograd.grad(x, (e, flat), dx.view_as(x))
                self.update(self.moving, self._gradients(inputs.flatten(), de.flatten(0, 1), dflat, dw))
        return loss

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

    def _check(self, inputs: Tensor) -> None:
        if inputs.ndim != 2 or not inputs.numel():
            raise InputError("inputs", tuple(inputs.shape), "token ids of shape (B, T)")
        if self.settings.positions == "learned" and inputs.shape[1] > self.settings.max_length:
            raise InputError("inputs", tuple(inputs.shape), f"at most max_length = {self.settings.max_length} long")


def _as_it_is(x: Tensor) -> Tensor:
    return x
