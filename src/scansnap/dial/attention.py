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


def uses_kernel(flags: Flags, ask: Tensor) -> bool:
    """Whether the compiled kernel computes attention, from scores to attended values."""
    enough = ask.shape[2] >= _FEW or flags.positions == "rope"
    return flags.attention == "softmax" and enough and step.takes(ask)


def project(
    p: dict[str, Tensor], flags: Flags, ask: Tensor, keys: Tensor, at: str, *, beside: bool = True
) -> tuple[Tensor, ...]:
    """Queries, keys and values (inputs instead of values where a norm comes before W_V), for `step.attend`.

    Factors and RoPE's order of entries are applied to the small matrices, not to every position.
    """
    if not flags.separate:
        z = p[f"z{at}"]
        queries = times(ask, z[:, 0])[:, None] if flags.heads == 1 else times(ask[:, None], z)
        return queries, keys[:, None], keys[:, None]
    w_q, w_k = p[f"w_q{at}"], p[f"w_k{at}"]
    w_q = w_q / math.sqrt(w_q.shape[-1])
    if beside and _beside(flags, w_q.shape[-1]):
        w_q, w_k = (w.unflatten(-1, (2, -1)).mT.flatten(-2) for w in (w_q, w_k))
    w_v = [p[f"w_v{at}"]] if values_come_first(flags, ask, keys) else []
    if ask is keys and w_v:
        return (_by_head(keys, [w_q, w_k, *w_v]),)
    q, rest = _by_head(ask, [w_q])[:, :, :, 0].permute(0, 3, 1, 2, 4), _by_head(keys, [w_k, *w_v])
    return (q, rest) if w_v else (q, rest[:, :, :, 0].permute(0, 3, 1, 2, 4), keys[:, None])


def values_come_first(flags: Flags, ask: Tensor, keys: Tensor) -> bool:
    """Whether W_V is applied before attention: there is no norm between, and many queries make it cheaper."""
    return flags.norm == "none" and 2 * ask.shape[2] > keys.shape[2]


def attend_by_kernel(flags: Flags, qkv: tuple[Tensor, ...], bias: Tensor, place: Tensor | None) -> Tensor:
    """Attended values (R, H, B, Q, d) by the kernel; RoPE and ALiBi as in `scores`."""
    q, k, _ = step.heads(qkv)
    turn = None
    if flags.positions == "rope":
        turn = _rotations(k.shape[-2], q.shape[-1] // 2)
    if flags.positions == "alibi":
        bias = bias - _alibi(flags, q, k, place)
    return step.attend(qkv, bias, turn, place).permute(0, 3, 1, 2, 4)


def weights(flags: Flags, score: Tensor, bias: Tensor) -> Tensor:
    """From logits to attention, (R, H, B, Q, S)."""
    attended: Tensor = ATTENTIONS[flags.attention](score, bias)
    return attended


def scores(flags: Flags, q: Tensor, k: Tensor, place: Tensor | None = None) -> Tensor:
    """Attention logits (R, H, B, Q, S): x_q Z x_kᵀ, or q kᵀ/√d; RoPE rotates both, ALiBi subtracts distance.

    ``place``: (R or 1, B, Q) positions of the queries; None: the last ones.
    """
    if flags.positions == "rope":
        beside = _beside(flags, q.shape[-1])
        q, k = _rotated(q, _positions(q, k, place), beside), _rotated(k, _positions(k, k, None), beside)
    score = q @ k.mT
    return score - _alibi(flags, q, k, place) if flags.positions == "alibi" else score


def gather_positions(x: Tensor, place: Tensor) -> Tensor:
    """Rows (R or 1, B, N, d) of x (R or 1, B or 1, S, d) at positions (R or 1, B, N)."""
    n, b = max(len(x), len(place)), place.shape[1]
    return x.expand(n, b, -1, -1).gather(2, place[..., None].expand(n, -1, -1, x.shape[-1]))


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


def _positions(x: Tensor, k: Tensor, place: Tensor | None) -> Tensor:
    """Positions of the rows of x: (Q,), or (R or 1, 1, B, Q)."""
    n = k.shape[-2]
    return torch.arange(n - x.shape[-2], n, device=x.device) if place is None else place[:, None]


def _alibi(flags: Flags, q: Tensor, k: Tensor, place: Tensor | None) -> Tensor:
    """ALiBi: what the distance to keys subtracts from the logits, (1, H or 1, 1, Q, S) or with runs and sequences."""
    distance = (_positions(q, k, place)[..., None] - torch.arange(k.shape[-2], device=q.device)).abs().to(q.dtype)
    h = torch.arange(1, flags.heads + 1, device=q.device)
    slope = ALIBI if flags.heads == 1 else 2.0 ** (-8.0 * h[:, None, None, None] / flags.heads)
    return slope * (distance if place is not None else distance[None, None, None])


def _beside(flags: Flags, inner: int) -> bool:
    """Whether pairs that RoPE rotates are adjacent: then a rotation is one complex product."""
    return flags.separate and flags.positions == "rope" and inner % 2 == 0


def _rotated(x: Tensor, place: Tensor, beside: bool) -> Tensor:
    """RoPE: pairs of entries rotated by an angle that grows with the position; an odd last entry stays."""
    half = x.shape[-1] // 2
    angle = _angles(place, half, x.dtype)
    if beside:
        turn = torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)
    cos, sin = angle.cos(), angle.sin()
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)


@cache
def _rotations(n: int, half: int) -> Tensor:
    """(n, 2·half): cosines and sines of the angles at the first n positions, for the kernel."""
    angle = _angles(torch.arange(n), half, torch.float32)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


def _angles(place: Tensor, half: int, dtype: torch.dtype) -> Tensor:
    """(…, half) angles at positions (…)."""
    return place[..., None].to(dtype) * ROPE_BASE ** (-torch.arange(half, device=place.device, dtype=dtype) / half)
