"""Random numbers as a pure function of (seed, purpose, step, place): Philox4x32-10.

A counter-based generator (Salmon, Moraes, Dror, Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011)
has no state to carry: the data of step 57 of seed 3 can be made at any time, on any device, in any grouping of
runs, and is always the same. That is what makes runs independent of their neighbours and exactly resumable.

64-bit integers hold the 32-bit words; products wrap modulo 2^64, which keeps all the bits that are needed.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


class Purpose(IntEnum):
    """What a number is drawn for; different purposes never share a counter."""

    CLASS = 1
    COUNT = 2
    TOKEN = 3
    INIT_Y = 4
    INIT_Z = 5
    NEXT = 6
    WINDOW_ORDER = 101
    WINDOW_START = 102


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four 32-bit words (as int64 tensors) for each counter; all arguments broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) & WORD ^ c1 ^ k0, p1 & WORD, (p0 >> 32) & WORD ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def uniforms(seed: Tensor, purpose: Purpose, step: Tensor, major: Tensor, minor: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent float64 uniforms on [0, 1) with 53 random bits for each place (step, major, minor).

    All arguments are int64 tensors that broadcast; step, major and minor are below 2^32.
    """
    counter = (minor, major, step, torch.full_like(minor, int(purpose)))
    a, b, c, d = philox(counter, (seed & WORD, (seed >> 32) & WORD))
    return _unit(a, b), _unit(c, d)


def _unit(high: Tensor, low: Tensor) -> Tensor:
    return (high << 21 | low >> 11).to(torch.float64) * 2.0**-53
