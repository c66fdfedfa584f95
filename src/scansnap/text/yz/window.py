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

from scansnap.dynamics import norms
from scansnap.kernels.cuda import triton_available
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


class AttentionActivations(NamedTuple):
    """From logits to f, as weights of positions (B, T, T)."""

    b: Tensor  # attention
    inner: Tensor  # norm(c) where the residual needs it, else c
    v: Tensor  # what the last norm was given
    f: Tensor


def attend(
    z: Tensor, same: Tensor, *, norm: str, residual: str, query_in_keys: bool, keep: float | None = None
) -> AttentionActivations:
    """``same`` is E (B, T, T), 1 where two positions hold the same token."""
    b = soft(z, query_in_keys, keep)
    inner = norms.apply(norm, b, lambda v: v @ same) if residual == "normed" else b
    v = inner if residual == "none" else inner + torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    return AttentionActivations(b, inner, v, norms.apply(norm, v, lambda v: v @ same))


def attend_backward(g: Tensor, a: AttentionActivations, same: Tensor, *, norm: str, residual: str) -> Tensor:
    """dz from g (B, T, T): g_ts = (Y (e_n − α_t)) at token x_s, the direction of f at that token."""
    d = norms.pull_back(norm, g, a.v, a.f, lambda v: v @ same)
    if residual == "normed":
        d = norms.pull_back(norm, d, a.b, a.inner, lambda v: v @ same)
    return soft_backward(a.b, d)


def against(a: Tensor, b: Tensor) -> Tensor:
    """a bᵀ of each window, (B, T, U), for states (B, T, M) and (B, U, M): few outputs and long sums.

    Libraries are slow at it (on 5,000 words 9 of them took a quarter of a step of five layers), so on CUDA and in tf32
    it is a kernel of our own.
    """
    if a.is_cuda and a.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 and triton_available():
        from scansnap.text.yz import states_triton as kernels  # imports Triton

        if a.shape == b.shape and a.shape[-1] > 2 * kernels.STRETCH and a.shape[1] <= kernels.LONGEST:
            found: Tensor = kernels.against(a, b)
            return found
    return a @ b.mT
