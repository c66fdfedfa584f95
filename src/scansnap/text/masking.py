"""The masked-token objective: some tokens of a window are hidden and told from what stands on both sides.

Each window hides the same number of tokens, so that all shapes are known beforehand and only the hidden places need
logits, a seventh of the work of predicting every position. Which ones is drawn anew for each step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Hidden(NamedTuple):
    """A batch with tokens hidden."""

    inputs: Tensor  # (B, T), the mask's id at the hidden places
    places: Tensor  # (B, k)
    tokens: Tensor  # (B, k), what stood there


def n_hidden(length: int, share: float) -> int:
    """How many tokens of a window are hidden: at least one, and one fewer than all where there are several."""
    return max(1, min(round(share * length), length - 1))


def hide(inputs: Tensor, draws: Tensor, share: float, mask: int) -> Hidden:
    """``draws`` (B, T) are uniforms; the smallest of each row are hidden: every subset is equally likely."""
    places = draws.argsort(dim=-1, stable=True)[:, : n_hidden(inputs.shape[1], share)]
    return Hidden(inputs.scatter(1, places, mask), places, inputs.gather(1, places))


def rounds(inputs: Tensor, share: float, mask: int) -> list[Hidden]:
    """Hide every token of a batch exactly once, every r-th at a time, for a score that draws nothing."""
    length = inputs.shape[1]
    r = max(1, -(-length // n_hidden(length, share)))
    found = []
    for first in range(min(r, length)):
        places = torch.arange(first, length, r, device=inputs.device).expand(inputs.shape[0], -1)
        found.append(Hidden(inputs.scatter(1, places, mask), places, inputs.gather(1, places)))
    return found
