"""Random draws of a step: the masks of dropout, and the tokens masked by the masked objective.

The model's own generator is seeded for each step from (seed, step). So a resumed run has the same draws, global random
states do not change, and there is no state to save.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.kernels.cpu import library
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
        self.masks = masks(drawn, 1 - p, generator)
        self.used = 0

    def __call__(self, x: Tensor) -> Tensor:
        size = self.windows * x[0].numel()
        mask = self.masks[self.used : self.used + size].view(self.windows, *x.shape[1:])
        self.used += size
        return x * mask


def masks(out: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """Entries 1/p with probability p, else 0; compiled where possible, with the draws of ``bernoulli_``."""
    if out.is_cuda or out.dtype != torch.float32 or library.find("dropout") is None:
        return out.bernoulli_(p, generator=generator).mul_(1 / p)
    state, pointer, real = generator.get_state(), ctypes.c_void_p, ctypes.c_double
    size = ctypes.c_int64(out.numel())
    library.load("dropout").masks(pointer(state.data_ptr()), size, real(p), real(1 / p), pointer(out.data_ptr()))
    generator.set_state(state)
    return out


class MaskedBatch(NamedTuple):
    """A batch with masked tokens, to be predicted from both sides.

    Each window has the same number of masked tokens, so all shapes are fixed, and only the masked positions need
    logits: a seventh of the work of predicting every position.
    """

    inputs: Tensor  # (B, T), with the mask's id at the masked positions
    positions: Tensor  # (B, k)
    tokens: Tensor  # (B, k), the masked tokens


def n_masked(length: int, share: float) -> int:
    """The masked tokens of a window: at least one, and not all of several."""
    return max(1, min(round(share * length), length - 1))


def mask_tokens(inputs: Tensor, draws: Tensor, share: float, mask: int) -> MaskedBatch:
    """``draws`` (B, T) are uniforms; the smallest of each row are masked, so every subset is equally likely."""
    positions = draws.argsort(dim=-1, stable=True)[:, : n_masked(inputs.shape[1], share)]
    return MaskedBatch(inputs.scatter(1, positions, mask), positions, inputs.gather(1, positions))


def mask_every_token(inputs: Tensor, share: float, mask: int) -> list[MaskedBatch]:
    """Mask every token of a batch exactly once, every r-th at a time, for a score without draws."""
    length = inputs.shape[1]
    r = max(1, -(-length // n_masked(length, share)))
    batches = []
    for first in range(min(r, length)):
        positions = torch.arange(first, length, r, device=inputs.device).expand(inputs.shape[0], -1)
        batches.append(MaskedBatch(inputs.scatter(1, positions, mask), positions, inputs.gather(1, positions)))
    return batches
