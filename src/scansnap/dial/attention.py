"""Attention of the models: queries, keys and values, positions, and the compiled kernel where it trains.

R runs · H heads · B sequences · Q queries · S keys · d width
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from scansnap.dial.components import ATTENTIONS, Flags
from scansnap.kernels.cpu import step

ROPE_BASE = 10_000.0
ALIBI = 1 / 16  # slope of a single head; of several: 2^(−8h/H)
_LARGE = 1 << 22  # multiplications below which the library's product is as fast as the kernel's
_FEW = 8  # queries below which the kernel's work on keys does not pay, unless RoPE rotates them


def uses_kernel(flags: Flags, h_q: Tensor) -> bool:
    """Whether the compiled kernel computes attention, from scores to attended values."""
    enough = h_q.shape[2] >= _FEW or flags.positions == "rope"
    return flags.attention == "softmax" and enough and step.takes(h_q)


def project(
    p: dict[str, Tensor], flags: Flags, h_q: Tensor, h_k: Tensor, at: str, *, interleaved: bool = True
) -> tuple[Tensor, ...]:
    """Queries of h_q, keys and values of h_k, for `step.attend`; inputs instead of values where a norm precedes W_V.

    Factors and RoPE's order of entries are applied to the small matrices, not to every position.
    """
    if not flags.separate:
        z = p[f"z{at}"]
        queries = times(h_q, z[:, 0])[:, None] if flags.heads == 1 else times(h_q[:, None], z)
        return queries, h_k[:, None], h_k[:, None]
    w_q, w_k = p[f"w_q{at}"], p[f"w_k{at}"]
    w_q = w_q / math.sqrt(w_q.shape[-1])
    if interleaved and _is_interleaved(flags, w_q.shape[-1]):
        w_q, w_k = (w.unflatten(-1, (2, -1)).mT.flatten(-2) for w in (w_q, w_k))
    w_v = [p[f"w_v{at}"]] if values_come_first(flags, h_q, h_k) else []
    if h_q is h_k and w_v:
        return (_by_head(h_k, [w_q, w_k, *w_v]),)
    q, rest = _by_head(h_q, [w_q])[:, :, :, 0].permute(0, 3, 1, 2, 4), _by_head(h_k, [w_k, *w_v])
    return (q, rest) if w_v else (q, rest[:, :, :, 0].permute(0, 3, 1, 2, 4), h_k[:, None])


def values_come_first(flags: Flags, h_q: Tensor, h_k: Tensor) -> bool:
    """Whether W_V is applied before attention: there is no norm between, and many queries make it cheaper."""
    return flags.norm == "none" and 2 * h_q.shape[2] > h_k.shape[2]


def attend_by_kernel(flags: Flags, qkv: tuple[Tensor, ...], bias: Tensor, positions: Tensor | None) -> Tensor:
    """Attended values (R, H, B, Q, d) by the kernel; RoPE and ALiBi as in `scores`."""
    q, k, _ = step.heads(qkv)
    rotation = None
    if flags.positions == "rope":
        rotation = _rotations(k.shape[-2], q.shape[-1] // 2)
    if flags.positions == "alibi":
        bias = bias - _alibi(flags, q, k, positions)
    return step.attend(qkv, bias, rotation, positions).permute(0, 3, 1, 2, 4)


def weights(flags: Flags, score: Tensor, bias: Tensor) -> Tensor:
    """From logits to attention, (R, H, B, Q, S)."""
    attended: Tensor = ATTENTIONS[flags.attention](score, bias)
    return attended


def scores(flags: Flags, q: Tensor, k: Tensor, positions: Tensor | None = None) -> Tensor:
    """Attention logits (R, H, B, Q, S): x_q Z x_kᵀ, or q kᵀ/√d; RoPE rotates both, ALiBi subtracts distance.

    ``positions``: (R or 1, B, Q) of the queries; None: the last ones.
    """
    if flags.positions == "rope":
        interleaved = _is_interleaved(flags, q.shape[-1])
        q, k = _rotated(q, _positions(q, k, positions), interleaved), _rotated(k, _positions(k, k, None), interleaved)
    score = q @ k.mT
    return score - _alibi(flags, q, k, positions) if flags.positions == "alibi" else score


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Rows (R or 1, B, N, d) of x (R or 1, B or 1, S, d) at positions (R or 1, B, N)."""
    n, b = max(len(x), len(positions)), positions.shape[1]
    return x.expand(n, b, -1, -1).gather(2, positions[..., None].expand(n, -1, -1, x.shape[-1]))


def times(x: Tensor, matrix: Tensor) -> Tensor:
    """x (R, [1 or H,] B, Q, i) times its run's matrix (R, [H,] i, j): B and Q as one, so that no matrix is copied."""
    return _product(x.flatten(-3, -2), matrix).unflatten(-2, x.shape[-3:-1])


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    large = x.ndim == 3 and x.numel() * matrix.shape[-1] >= _LARGE
    return step.product(x, matrix) if large and step.takes(x) else x @ matrix


def _by_head(x: Tensor, matrices: list[Tensor]) -> Tensor:
    """x (R, B, S, d) times n matrices (R, H, d, i) in one product, (R, B, S, n, H, i)."""
    wide = torch.cat([matrix.transpose(1, 2).flatten(2) for matrix in matrices], dim=2)  # (R, d, n·H·i)
    out = _product(x.flatten(1, 2), wide).unflatten(1, x.shape[1:3])
    return out.unflatten(3, (len(matrices), matrices[0].shape[1], -1))


def _positions(x: Tensor, k: Tensor, positions: Tensor | None) -> Tensor:
    """Positions of the rows of x: (Q,), or (R or 1, 1, B, Q)."""
    n = k.shape[-2]
    return torch.arange(n - x.shape[-2], n, device=x.device) if positions is None else positions[:, None]


def _alibi(flags: Flags, q: Tensor, k: Tensor, positions: Tensor | None) -> Tensor:
    """ALiBi: what the distance to keys subtracts from the logits, (1, H or 1, 1, Q, S) or with runs and sequences."""
    distance = (_positions(q, k, positions)[..., None] - torch.arange(k.shape[-2], device=q.device)).abs().to(q.dtype)
    h = torch.arange(1, flags.heads + 1, device=q.device)
    slope = ALIBI if flags.heads == 1 else 2.0 ** (-8.0 * h[:, None, None, None] / flags.heads)
    return slope * (distance if positions is not None else distance[None, None, None])


def _is_interleaved(flags: Flags, inner: int) -> bool:
    """Whether pairs that RoPE rotates are adjacent: then a rotation is one complex product."""
    return flags.separate and flags.positions == "rope" and inner % 2 == 0


def _rotated(x: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
    """RoPE: pairs of entries rotated by an angle that grows with the position; an odd last entry stays."""
    half = x.shape[-1] // 2
    angles = _angles(positions, half, x.dtype)
    if interleaved:
        rotation = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * rotation).flatten(-2)
    cos, sin = angles.cos(), angles.sin()
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)


@cache
def _rotations(n: int, half: int) -> Tensor:
    """(n, 2·half): cosines and sines of the angles at the first n positions, for the kernel."""
    angles = _angles(torch.arange(n), half, torch.float32)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _angles(positions: Tensor, half: int, dtype: torch.dtype) -> Tensor:
    """(…, half) angles at positions (…)."""
    return positions[..., None].to(dtype) * ROPE_BASE ** (
        -torch.arange(half, device=positions.device, dtype=dtype) / half
    )
