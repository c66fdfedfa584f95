"""What a step draws: dropout's masks, and the tokens hidden in a window by the masked objective.

All of it comes from the model's own generator, seeded anew for each step: a function of (seed, step), so an
interrupted run goes on with the same draws, nobody else's random numbers are touched, and there is no state to save.
"""

from __future__ import annotations

from typing import NamedTuple

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
    """Multiplies each argument with the next of its masks, entries 0 or 1/(1 − p); all are drawn in one call."""

    def __init__(
        self, settings: TransformerSettings, shape: torch.Size, generator: torch.Generator, device: torch.device
    ) -> None:
        self.windows, length = shape
        n, p = self.windows * length, settings.dropout
        per_layer = settings.heads * n * length + n * settings.width
        if settings.feed_forward:
            per_layer += n * (settings.feed_forward + settings.width)
        drawn = torch.empty(n * settings.width + settings.layers * per_layer, dtype=settings.work_dtype, device=device)
        self.masks = drawn.bernoulli_(1 - p, generator=generator).mul_(1 / (1 - p))
        self.used = 0

    def __call__(self, x: Tensor) -> Tensor:
        size = self.windows * x[0].numel()
        mask = self.masks[self.used : self.used + size].view(self.windows, *x.shape[1:])
        self.used += size
        return x * mask


class MaskedBatch(NamedTuple):
    """A batch with tokens hidden, to be told from what stands on both sides.

    Each window hides the same number of tokens, so that all shapes are known beforehand and only the hidden places
    need logits, a seventh of the work of predicting every position.
    """

    inputs: Tensor  # (B, T), the mask's id at the hidden places
    places: Tensor  # (B, k)
    tokens: Tensor  # (B, k), what stood there


def n_hidden(length: int, share: float) -> int:
    """How many tokens of a window are hidden: at least one, and one fewer than all where there are several."""
    return max(1, min(round(share * length), length - 1))


def hide(inputs: Tensor, draws: Tensor, share: float, mask: int) -> MaskedBatch:
    """``draws`` (B, T) are uniforms; the smallest of each row are hidden: every subset is equally likely."""
    places = draws.argsort(dim=-1, stable=True)[:, : n_hidden(inputs.shape[1], share)]
    return MaskedBatch(inputs.scatter(1, places, mask), places, inputs.gather(1, places))


def rounds(inputs: Tensor, share: float, mask: int) -> list[MaskedBatch]:
    """Hide every token of a batch exactly once, every r-th at a time, for a score that draws nothing."""
    length = inputs.shape[1]
    r = max(1, -(-length // n_hidden(length, share)))
    found = []
    for first in range(min(r, length)):
        places = torch.arange(first, length, r, device=inputs.device).expand(inputs.shape[0], -1)
        found.append(MaskedBatch(inputs.scatter(1, places, mask), places, inputs.gather(1, places)))
    return found
