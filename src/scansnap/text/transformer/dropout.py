"""Dropout whose masks are a function of (seed, step): an interrupted run goes on with the same ones.

All masks of a step are drawn in one call from the model's own generator, seeded anew for each step; nobody else's
random numbers are touched, and there is no state to save.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.text.transformer.settings import TransformerSettings

WORD = 2**64 - 1


def step_seed(seed: int, step: int) -> int:
    """One 64-bit word for a seed and a step, all bits mixed (the finaliser of SplitMix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xD1342543DE82EF95 + 1) & WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = ((x ^ x >> shift) * factor) & WORD
    return x ^ x >> 31


class Dropout:
    """Multiplies what it is given with the next of its masks, entries 0 or 1/(1 − p)."""

    def __init__(
        self, settings: TransformerSettings, shape: torch.Size, generator: torch.Generator, device: torch.device
    ) -> None:
        batch, length = shape
        n, p = batch * length, settings.dropout
        per_layer = settings.heads * n * length + n * settings.width
        if settings.feed_forward:
            per_layer += n * (settings.feed_forward + settings.width)
        drawn = torch.empty(n * settings.width + settings.layers * per_layer, dtype=settings.work_dtype, device=device)
        self.masks = drawn.bernoulli_(1 - p, generator=generator).mul_(1 / (1 - p))
        self.used = 0

    def __call__(self, x: Tensor) -> Tensor:
        mask = self.masks[self.used : self.used + x.numel()]
        self.used += x.numel()
        return x * mask.view(x.shape)
