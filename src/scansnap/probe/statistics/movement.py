"""How far attention has moved, between what the same queries attend to at two times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scansnap.probe.capture import Rows

BETWEEN = 0.5  # e-folds of steps between measurements whose attention is kept for later


def anchors(steps: Sequence[int]) -> list[int]:
    """Which measurements are kept to be compared with later ones: the first after step 0, then each half an e-fold on.

    Those of fewer steps are the first of these, so that a training that goes back finds the same.
    """
    found: list[int] = []
    for i, step in enumerate(steps):
        if step > 0 and (not found or step >= steps[found[-1]] * math.exp(BETWEEN) - 1e-9):
            found.append(i)
    return found


def a_fold_before(steps: Sequence[int], step: int) -> int | None:
    """The latest of these measurements from which it is an e-fold to ``step``; half an e-fold more at most, about."""
    return next((i for i in reversed(anchors(steps)) if steps[i] <= step / math.e + 1e-9), None)


def still_needed(steps: Sequence[int], back: int = 0) -> list[int]:
    """Those that a next measurement may be compared with, also after a training has gone back by so many."""
    before = list(steps)[: max(len(steps) - back, 0)]
    oldest = a_fold_before(before, before[-1]) if before else None
    return [i for i in anchors(steps) if i >= (oldest or 0)]


def choosing(rows: Rows) -> Tensor:
    """(…, B, H, q): rows with attention on something and more than one key to choose from; others cannot move."""
    several = rows.visible.expand(rows.p.shape).any(-3, keepdim=True).sum(-1) > 1  # keys that any head may look at
    return several & (rows.p.sum(-1) > 0)


def distance(now: Rows, then: Tensor) -> Tensor:
    """Total variation: mean over sequences and queries of ½ Σ_k |p_k − p′_k|, from rows (…, B, H, q, S) to (…, H).

    Queries without a choice do not count. NaN where ``then`` is.
    """
    counts = choosing(now)
    apart = (now.p - then).abs().sum(-1) / 2
    return torch.where(counts, apart, 0.0).sum((-3, -1)) / counts.sum((-3, -1))


def by_chance(now: Rows, then: Tensor, place: Tensor, spread: Tensor) -> Tensor:
    """How large a scan index would be by chance, (…, H): its standard deviation if tokens had distinctness at random.

    With Δ_l what attention to the token l has changed by, in the mean over rows, the index is Σ_l Δ_l s_l. Over all
    ways to deal the values s out to the tokens its mean is 0, since Σ Δ_l is, and its variance is Σ_l Δ_l² times that
    of s (exact, for a variance with n − 1). It is large for a head that leaves a few frequent tokens: whether they are
    left because they are common no number of sequences can tell.

    place   (B·S,) which of the known tokens a key is, B·S where it is none
    spread  the standard deviation of s
    """
    rows = choosing(now).sum((-3, -1))  # (…, H)
    change = (now.p - then).sum(-2).transpose(-3, -2).flatten(-2)  # (…, H, B·S)
    types = change.new_zeros(*change.shape[:-1], len(place) + 1)  # no more of them than places, and one for none
    by_token = types.index_add_(-1, place, change)[..., :-1]
    return (by_token / rows[..., None]).square().sum(-1).sqrt() * spread
