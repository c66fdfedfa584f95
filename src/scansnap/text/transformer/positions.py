"""Where a token stands: vectors added to embeddings, biases added to attention logits, rotations of queries and keys.

    sinusoidal  PE[t, 2i] = sin(t ω_i), PE[t, 2i+1] = cos(t ω_i), ω_i = 10000^(−2i/d)     (Vaswani et al. 2017)
    alibi       −slope_h · |t − s| on the logit, slope_h = 2^(−8(h+1)/H)                  (Press et al. 2022)
    rope        the pair (i, i + d/2) of q and k is turned by the angle t ω_i             (Su et al. 2021)

``learned`` positions are parameters of the model; ``none`` leaves the order to the causal mask.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BASE = 10000.0


def angles(length: int, width: int, device: torch.device) -> Tensor:
    """t ω_i: (T, d/2), in float64 so that late positions are as exact as early ones."""
    t = torch.arange(length, dtype=torch.float64, device=device)
    i = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    return t[:, None] * torch.exp(-math.log(BASE) / width * i)


def sinusoidal(length: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """PE (T, d)."""
    a = angles(length, width, device)
    return torch.stack([a.sin(), a.cos()], -1).flatten(1).to(dtype)


def alibi(length: int, heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Biases (H, T, T); those of keys ahead of the query count in bidirectional attention only."""
    t = torch.arange(length, device=device)
    distance = (t[:, None] - t[None, :]).abs()
    slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64, device=device) / heads)
    return (-slope[:, None, None] * distance).to(dtype)


def rotation(length: int, width: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin for :func:`rotate`, both (T, d_head/2)."""
    a = angles(length, width, device)
    return a.cos().to(dtype), a.sin().to(dtype)


def rotate(x: Tensor, by: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair of x (B, H, T, d_head); products of a query and a key then depend on t − s only."""
    cos, sin = by
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
