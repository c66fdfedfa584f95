"""The layers of a transformer, from embeddings to the decoder's input; gradients are autograd's.

    b_ts = softmax_s(q_t·k_s/√d_head)   q, k, v = W_Q x, W_K x, W_V x, s ≤ t
    x ← LN(x + W_O Σ_s b_ts v_s)        attention
    x ← LN(x + W_2 relu(W_1 x))         feed-forward

They are written out, as torch's own encoder layer gives no attention weights to look at or to cut, knows no relative
positions, and draws its dropout from a generator that a resumed run does not have; they are as fast on a CPU
(benchmarks/README.md).

    B windows · T positions · H heads · d width
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.text.attention_statistics import keep_mass
from scansnap.text.transformer import positions
from scansnap.text.transformer.draws import Dropout
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.transformer.weights import LayerWeights


class PositionTerms(NamedTuple):
    """What depends on positions alone, for windows of one length."""

    added: Tensor | None  # (T, d), to embeddings
    bias: Tensor | None  # (H, T, T), to logits of attention; −∞ ahead of a causal query
    turn: tuple[Tensor, Tensor] | None  # of queries and keys
    ahead: Tensor  # (T, T), keys after their query


class LayerStack:
    """The forward pass of a model's layers; ``parts`` finds their weights in the one vector they lie in."""

    def __init__(self, settings: TransformerSettings, parts: LayerWeights, device: torch.device) -> None:
        self.settings, self.parts, self.device = settings, parts, device
        self._kept: dict[int, PositionTerms] = {}

    def __call__(
        self,
        e: Tensor,
        flat: Tensor,
        drop: Dropout | None = None,
        *,
        keep: float | None = None,
        seen: list[Tensor] | None = None,
        listening: bool = False,
    ) -> Tensor:
        """Embeddings U[x] to the decoder's input, both (B, T, d); ``seen`` collects the attention of each layer.

        ``listening``: attention is uniform (but for relative positions), and logits have their gradient there.
        """
        s, (length, width) = self.settings, e.shape[1:]
        w = self.parts.views(flat)
        x = e
        if s.positions == "learned":
            x = x + w["positions"][:length]
        if s.scaled:
            x = x * math.sqrt(width)
        place = self.place(length)
        if place.added is not None:
            x = x + place.added
        dropped = _as_it_is if drop is None else drop
        x = dropped(x)
        for i in range(s.layers):
            at = f"layer{i}."
            a = self._attend(self._norm("pre", x, w, at + "norm1"), w, at, place, drop, keep, seen, listening)
            x = self._norm("post", dropped(a) + x if s.residual else dropped(a), w, at + "norm1")
            if s.feed_forward:
                y = affine(self._norm("pre", x, w, at + "norm2"), w[at + "w_1"], w.get(at + "b_1")).relu()  # (B, T, f)
                y = affine(dropped(y), w[at + "w_2"], w.get(at + "b_2"))  # (B, T, d)
                x = self._norm("post", dropped(y) + x if s.residual else dropped(y), w, at + "norm2")
        return self._norm("pre", x, w, "norm")

    def _attend(
        self, x: Tensor, w: dict[str, Tensor], at: str, place: PositionTerms,
        drop: Dropout | None, keep: float | None, seen: list[Tensor] | None, listening: bool,
    ) -> Tensor:  # fmt: skip
        """W_O Σ_s b_ts v_s, (B, T, d). Fused unless the weights b themselves are wanted, or dropped out."""
        heads, causal = self.settings.heads, self.settings.objective == "next"
        qkv = affine(x, w[at + "w_qkv"], w.get(at + "b_qkv"))  # (B, T, 3d)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))  # (B, H, T, d_head)
        if place.turn is not None:
            q, k = positions.rotate(q, place.turn), positions.rotate(k, place.turn)
        if seen is None and keep is None and drop is None and not listening:
            mixed = F.scaled_dot_product_attention(q, k, v, place.bias, is_causal=causal and place.bias is None)
        else:
            z = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
            z = z - z.detach() if listening else z
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

    def place(self, length: int) -> PositionTerms:
        """Kept, as a recorded graph reads them where they lie."""
        if length not in self._kept:
            s, device, dtype = self.settings, self.device, self.settings.work_dtype
            ahead = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
            bias = positions.alibi(length, s.heads, device, dtype) if s.positions == "alibi" else None
            if bias is not None and s.objective == "next":
                bias = bias.masked_fill(ahead, -torch.inf)
            self._kept[length] = PositionTerms(
                added=positions.sinusoidal(length, s.width, device, dtype) if s.positions == "sinusoidal" else None,
                bias=bias,
                turn=positions.rotation(length, s.width // s.heads, device, dtype) if s.positions == "rope" else None,
                ahead=ahead,
            )
        return self._kept[length]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b: x (…, d) with weight (k, d) and perhaps a bias (k,).

    The gradient of b is a matrix product: on CUDA a column sum takes longer than the other two together.
    """
    return F.linear(x, weight) if bias is None else _Affine.apply(x, weight, bias)


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        g = gradients[0].flatten(0, -2)  # (N, k)
        ones = g.new_ones(g.shape[0])
        return gradients[0] @ weight, g.mT @ x.flatten(0, -2), g.mT @ ones
