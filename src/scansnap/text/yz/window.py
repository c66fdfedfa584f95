"""Attention of every position of a window to the positions before it, for states that are single tokens.

The token-level attention c_l = k_l e^{z_ml} / Σ is kept as the weights b of *positions*: those of one token add up to
its c. Norms are those of the token-level vector, ‖c‖² = Σ_{s,s'} b_s b_s' [x_s = x_s'] = bᵀ E b, so that nothing of
size M is needed and equal tokens count as one, as in the paper.

    B windows · T positions · t the query's position · s the key's

The first position has nothing before it and attends to itself: c = e_m, f = e_m, and its row of z has no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.text.attention_statistics import keep_mass


def allowed(length: int, query_in_keys: bool, device: torch.device) -> Tensor:
    """Which keys s a query t looks at, (T, T)."""
    t = torch.arange(length, device=device)
    keys = t <= t[:, None] if query_in_keys else t < t[:, None]
    return keys | (t + t[:, None] == 0)


def soft(z: Tensor, query_in_keys: bool, keep: float | None = None) -> Tensor:
    """b, the softmax of logits (B, T, T) over the keys of each query, or over the fewest with this mass."""
    keys = allowed(z.shape[-1], query_in_keys, z.device)
    b = torch.softmax(z.masked_fill(~keys, -torch.inf), dim=-1)
    return b if keep is None else keep_mass(b, keep)


def soft_backward(b: Tensor, db: Tensor) -> Tensor:
    """dz = (diag(b) − b bᵀ) db."""
    return b * (db - (b * db).sum(-1, keepdim=True))


class Attended(NamedTuple):
    """From logits to f, as weights of positions (B, T, T)."""

    b: Tensor  # attention
    inner: Tensor  # norm(c) where the residual needs it, else c
    f: Tensor
    size: Tensor  # (B, T, 1) ‖·‖ by which the last norm divided
    inner_size: Tensor  # (B, T, 1) the same of the inner norm


def attend(
    z: Tensor, same: Tensor, *, norm: str, residual: str, query_in_keys: bool, keep: float | None = None
) -> Attended:
    """``same`` is E (B, T, T), 1 where two positions hold the same token."""
    b = soft(z, query_in_keys, keep)
    inner, inner_size = _norm(b, same, norm if residual == "normed" else "none")
    v = inner if residual == "none" else inner + torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    f, size = _norm(v, same, norm)
    return Attended(b, inner, f, size, inner_size)


def attend_backward(g: Tensor, a: Attended, same: Tensor, *, norm: str, residual: str) -> Tensor:
    """dz from g (B, T, T): g_ts = (Y (e_n − α_t)) at token x_s, the direction of f at that token."""
    d = _norm_backward(g, a.f, a.size, same, norm)
    if residual == "normed":
        d = _norm_backward(d, a.inner, a.inner_size, same, norm)
    return soft_backward(a.b, d)


def _norm(v: Tensor, same: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    if kind == "none":
        return v, torch.ones_like(v[..., :1])
    size = (v * (v @ same)).sum(-1, keepdim=True).sqrt()
    return v / size, size


def _norm_backward(g: Tensor, f: Tensor, size: Tensor, same: Tensor, kind: str) -> Tensor:
    """(g − f (f·g))/‖v‖ at the token of each position: f there is the sum over its positions, f E."""
    return g if kind == "none" else (g - (f @ same) * (f * g).sum(-1, keepdim=True)) / size
