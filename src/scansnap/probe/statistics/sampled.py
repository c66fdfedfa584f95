"""Statistics of the stored rows: how far attention has moved, and its rank correlation with measures of the keys.

Rank correlation is Spearman's, query by query, over the visible keys with a known score. A key that any head of the
attention can see is visible to all; ties get their mean rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scansnap.probe.capture import AttentionRows

BETWEEN = 0.5  # e-folds of steps between measurements whose samples are stored


def anchor_indices(steps: Sequence[int]) -> list[int]:
    """Measurements to compare later ones with: the first after step 0, then one per half an e-fold.

    They do not depend on later steps, so that a training that goes back to a checkpoint uses the same ones.
    """
    indices: list[int] = []
    for i, step in enumerate(steps):
        if step > 0 and (not indices or step >= steps[indices[-1]] * math.exp(BETWEEN) - 1e-9):
            indices.append(i)
    return indices


def index_before_fold(steps: Sequence[int], step: int) -> int | None:
    """The latest anchor at least an e-fold before ``step``; at most about half an e-fold more."""
    return next((i for i in reversed(anchor_indices(steps)) if steps[i] <= step / math.e + 1e-9), None)


def needed_indices(steps: Sequence[int], back: int = 0) -> list[int]:
    """Anchors that a next measurement may need, also after going back by ``back`` measurements."""
    before = list(steps)[: max(len(steps) - back, 0)]
    oldest = index_before_fold(before, before[-1]) if before else None
    return [i for i in anchor_indices(steps) if i >= (oldest or 0)]


def rows_with_choice(rows: AttentionRows) -> Tensor:
    """(…, B, H, q): rows that are not masked and have more than one visible key; others cannot move."""
    several = rows.visible.expand(rows.p.shape).any(-3, keepdim=True).sum(-1) > 1  # visible to any head
    return several & (rows.p.sum(-1) > 0)


def total_variation(now: AttentionRows, then: Tensor) -> Tensor:
    """Total variation: the mean over sequences and queries of ½ Σ_k |p_k − p′_k|, from rows (…, B, H, q, S) to (…, H).

    Queries with a single visible key are not counted. NaN where ``then`` is NaN.
    """
    counts = rows_with_choice(now)
    distance = (now.p - then).abs().sum(-1) / 2
    return torch.where(counts, distance, 0.0).sum((-3, -1)) / counts.sum((-3, -1))


def chance_deviation(now: AttentionRows, then: Tensor, token: Tensor, spread: Tensor) -> Tensor:
    """Standard deviation of the scan index, (…, H), under permutations of distinctness among the tokens.

    With Δ_l the change of attention to the token l, mean over rows, the index is Σ_l Δ_l s_l. Over all permutations of
    s its mean is 0, since Σ Δ_l is, and its variance is Σ_l Δ_l² times that of s (exact, for a variance with n − 1).
    It is large for a head that leaves a few frequent tokens.

    token   (B·S,) index of each key among the known tokens, B·S if it is unknown
    spread  the standard deviation of s
    """
    rows = rows_with_choice(now).sum((-3, -1))  # (…, H)
    change = (now.p - then).sum(-2).transpose(-3, -2).flatten(-2)  # (…, H, B·S)
    types = change.new_zeros(*change.shape[:-1], len(token) + 1)  # at most as many as keys, and one for unknown
    by_token = types.index_add_(-1, token, change)[..., :-1]
    return (by_token / rows[..., None]).square().sum(-1).sqrt() * spread


LEAST = 3  # keys for a rank correlation


def rank_correlation(p: Tensor, visible: Tensor, scores: Tensor) -> Tensor:
    """(…, H, against): means over sequences and queries of attention (…, B, H, q, S) against scores (against, B, q, S).

    Scores are NaN if unknown: in the whole column of a key, or the whole row of a query for one measure. NaN if
    fewer than three keys are known or one side is constant.
    """
    has_scores = ~scores.isnan().all(-1)  # (against, B, q): rows with known scores
    unknown = (scores.isnan() & has_scores[..., None]).any(0)  # (B, q, S)
    known = visible.expand(p.shape).any(-3) & ~unknown & has_scores.any(0)[..., None]  # (…, B, q, S)
    n = known.sum(-1)  # (…, B, q)
    of_attention = _centred(p, known.unsqueeze(-3).expand(p.shape))  # (…, B, H, q, S)
    size = of_attention.square().sum(-1)  # (…, B, H, q)
    correlations = []
    for score, known_row in zip(scores, has_scores, strict=True):
        of_keys = _centred(score.expand(known.shape), known).unsqueeze(-3)  # (…, B, 1, q, S)
        norm = size * of_keys.square().sum(-1)
        counts = (norm > 0) & ((n >= LEAST) & known_row).unsqueeze(-2)
        each = torch.where(counts, (of_attention * of_keys).sum(-1) / norm.sqrt(), torch.nan)
        correlations.append(each.nanmean((-3, -1)))
    return torch.stack(correlations, -1)


def _centred(values: Tensor, known: Tensor) -> Tensor:
    """Ranks among the known of each row less their mean, over their number; 0 for the others."""
    s = values.shape[-1]
    at = torch.arange(s, device=values.device)
    ordered, index = _sorted(values.masked_fill(~known, torch.inf))
    new = torch.ones_like(known)  # the first of equal values
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ends = torch.ones_like(known)
    ends[..., :-1] = new[..., 1:]
    first = torch.where(new, at, 0).cummax(-1).values
    last = torch.where(ends, at, s).flip(-1).cummin(-1).values.flip(-1)
    rank = torch.empty_like(ordered).scatter_(-1, index, (first + last).to(values.dtype) / 2)
    n = known.sum(-1, keepdim=True)
    return torch.where(known, (rank - (n - 1) / 2) / n.clamp_min(1), 0.0)


def _sorted(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted values and their indices; on the CPU by NumPy, which takes an eighth of torch's time."""
    if values.device.type != "cpu":
        ordered, index = values.sort(dim=-1)
        return ordered, index
    index = torch.from_numpy(np.argsort(values.numpy(), axis=-1))
    return values.gather(-1, index), index
