"""The layers of a transformer, from embeddings to the decoder's input; gradients are autograd's.

    b_ts = softmax_s(q_t·k_s/√d_head)   q, k, v = W_Q x, W_K x, W_V x, s ≤ t
    x ← LN(x + W_O Σ_s b_ts v_s)        attention
    x ← LN(x + W_2 relu(W_1 x))         feed-forward

They are explicit because torch's encoder layer returns no attention weights, has no relative positions, and draws its
dropout from a global generator. They are as fast on a CPU (benchmarks/README.md). Positions enter in one of these ways:

    sinusoidal  PE[t, 2i] = sin(t ω_i), PE[t, 2i+1] = cos(t ω_i), ω_i = 10000^(−2i/d)     (Vaswani et al. 2017)
    alibi       −slope_h · |t − s| on the logit, slope_h = 2^(−8(h+1)/H)                  (Press et al. 2022)
    rope        the pair (i, i + d/2) of q and k is rotated by the angle t ω_i            (Su et al. 2021)
    learned     parameters of the model
    none        the causal mask alone

    B windows · T positions · H heads · d width
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.text.model import sparsify_attention
from scansnap.text.transformer.draws import Dropout
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.transformer.weights import LayerWeights

BASE = 10000.0  # of the wavelengths of positions


class PositionTerms(NamedTuple):
    """The terms that depend on positions alone, for windows of one length."""

    encoding: Tensor | None  # (T, d), added to embeddings
    bias: Tensor | None  # (H, T, T), added to attention logits; −∞ after a causal query
    rotation: tuple[Tensor, Tensor] | None  # of queries and keys
    is_future: Tensor  # (T, T), keys after their query


class LayerStack:
    """The forward pass of a model's layers; ``layout`` finds their weights in one vector."""

    def __init__(self, settings: TransformerSettings, layout: LayerWeights, device: torch.device) -> None:
        self.settings, self.layout, self.device = settings, layout, device
        self._position_terms: dict[int, PositionTerms] = {}

    def __call__(
        self,
        e: Tensor,
        flat: Tensor,
        dropout: Dropout | None = None,
        *,
        attention_mass: float | None = None,
        attention: list[Tensor] | None = None,
        uniform: bool = False,
    ) -> Tensor:
        """Embeddings U[x] to the decoder's input, both (B, T, d); ``attention`` collects that of each layer.

        ``uniform``: attention is uniform (but for relative positions), and logits have their gradient there.
        """
        s, (length, width) = self.settings, e.shape[1:]
        w = self.layout.views(flat)
        x = e
        if s.positions == "learned":
            x = x + w["positions"][:length]
        if s.scaled:
            x = x * math.sqrt(width)
        terms = self.position_terms(length)
        if terms.encoding is not None:
            x = x + terms.encoding
        drop = _identity if dropout is None else dropout
        x = drop(x)
        for i in range(s.layers):
            at = f"layer{i}."
            y = self._norm("pre", x, w, at + "norm1")
            y = drop(self._attend(y, w, at, terms, dropout, attention_mass, attention, uniform))
            x = self._norm("post", y + x if s.residual else y, w, at + "norm1")
            if s.feed_forward:
                y = affine(self._norm("pre", x, w, at + "norm2"), w[at + "w_1"], w.get(at + "b_1")).relu()  # (B, T, f)
                y = drop(affine(drop(y), w[at + "w_2"], w.get(at + "b_2")))  # (B, T, d)
                x = self._norm("post", y + x if s.residual else y, w, at + "norm2")
        return self._norm("pre", x, w, "norm")

    def _attend(
        self, x: Tensor, w: dict[str, Tensor], at: str, terms: PositionTerms, dropout: Dropout | None,
        attention_mass: float | None, attention: list[Tensor] | None, uniform: bool,
    ) -> Tensor:  # fmt: skip
        """W_O Σ_s b_ts v_s, (B, T, d). Fused unless the weights b are needed."""
        heads, causal = self.settings.heads, self.settings.objective == "next"
        qkv = affine(x, w[at + "w_qkv"], w.get(at + "b_qkv"))  # (B, T, 3d)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))  # (B, H, T, d_head)
        if terms.rotation is not None:
            q, k = rotate(q, terms.rotation), rotate(k, terms.rotation)
        if attention is None and attention_mass is None and dropout is None and not uniform:
            mixed = F.scaled_dot_product_attention(q, k, v, terms.bias, is_causal=causal and terms.bias is None)
        else:
            z = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
            z = z - z.detach() if uniform else z
            z = z if terms.bias is None else z + terms.bias
            b = torch.softmax(z.masked_fill(terms.is_future, -torch.inf) if causal else z, -1)
            b = b if attention_mass is None else sparsify_attention(b, attention_mass)
            if attention is not None:
                attention.append(b)
            mixed = (b if dropout is None else dropout(b)) @ v  # (B, H, T, d_head)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, T, d)
        return affine(mixed, w[at + "w_o"], w.get(at + "b_o")) if self.settings.mixing else mixed

    def _norm(self, where: str, x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
        return (
            F.layer_norm(x, x.shape[-1:], w[name + "_gain"], w[name + "_shift"]) if self.settings.norm == where else x
        )

    def position_terms(self, length: int) -> PositionTerms:
        """Stored, since a captured graph reads them from the same memory."""
        if length not in self._position_terms:
            s, device, dtype = self.settings, self.device, self.settings.work_dtype
            is_future = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
            bias = alibi(length, s.heads, device, dtype) if s.positions == "alibi" else None
            if bias is not None and s.objective == "next":
                bias = bias.masked_fill(is_future, -torch.inf)
            self._position_terms[length] = PositionTerms(
                encoding=sinusoidal(length, s.width, device, dtype) if s.positions == "sinusoidal" else None,
                bias=bias,
                rotation=rotation(length, s.width // s.heads, device, dtype) if s.positions == "rope" else None,
                is_future=is_future,
            )
        return self._position_terms[length]


def _identity(x: Tensor) -> Tensor:
    return x


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b: x (…, d) with weight (k, d) and perhaps a bias (k,).

    The gradient of b is a matrix product: on CUDA a column sum is slower than the other two together.
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


def angles(length: int, width: int, device: torch.device) -> Tensor:
    """t ω_i: (T, d/2), in float64, so that late positions are as exact as early ones."""
    t = torch.arange(length, dtype=torch.float64, device=device)
    i = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    return t[:, None] * torch.exp(-math.log(BASE) / width * i)


def sinusoidal(length: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """PE (T, d)."""
    a = angles(length, width, device)
    return torch.stack([a.sin(), a.cos()], -1).flatten(1).to(dtype)


def alibi(length: int, heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Biases (H, T, T); those of keys after the query count in bidirectional attention only."""
    t = torch.arange(length, device=device)
    distance = (t[:, None] - t[None, :]).abs()
    slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64, device=device) / heads)
    return (-slope[:, None, None] * distance).to(dtype)


def rotation(length: int, width: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin for `rotate`, both (T, d_head/2)."""
    a = angles(length, width, device)
    return a.cos().to(dtype), a.sin().to(dtype)


def rotate(x: Tensor, angle: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of x (B, H, T, d_head); products of a query and a key then depend on t − s only."""
    cos, sin = angle
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
