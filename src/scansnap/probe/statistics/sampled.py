"""Statistics of the stored rows: how far attention has moved, and its rank correlation with measures of the keys.

Rank correlation is Spearman's, query by query, over the visible keys with a known score. A key that any head of the
attention can see is visible to all; ties get their mean rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
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
    several = rows.visible.any(-3, keepdim=True).sum(-1) > 1  # visible to any head
    return several & (rows.p.sum(-1) > 0)


def total_variation(change: Tensor, counts: Tensor) -> Tensor:
    """Total variation: the mean over sequences and queries of ½ Σ_k |p_k − p′_k|, from p − p′ (…, B, H, q, S), (…, H).

    Of the rows that count (`rows_with_choice`). NaN where the change is NaN.
    """
    distance = change.abs().sum(-1) / 2
    return torch.where(counts, distance, 0.0).sum((-3, -1)) / counts.sum((-3, -1))


def chance_deviation(change: Tensor, counts: Tensor, token: Tensor, spread: Tensor) -> Tensor:
    """Standard deviation of the scan index, (…, H), under permutations of distinctness among the tokens.

    With Δ_l the change of attention to the token l, mean over rows, the index is Σ_l Δ_l s_l. Over all permutations of
    s its mean is 0, since Σ Δ_l is, and its variance is Σ_l Δ_l² times that of s (exact, for a variance with n − 1).
    It is large for a head that leaves a few frequent tokens.

    token   (B·S,) index of each key among the known tokens, B·S if it is unknown
    spread  the standard deviation of s
    """
    by_key = change.sum(-2).transpose(-3, -2).flatten(-2)  # (…, H, B·S)
    types = change.new_zeros(*by_key.shape[:-1], len(token) + 1)  # at most as many as keys, and one for unknown
    by_token = types.index_add_(-1, token, by_key)[..., :-1]
    return (by_token / counts.sum((-3, -1))[..., None]).square().sum(-1).sqrt() * spread


LEAST = 3  # keys for a rank correlation


class KeyScores:
    """Scores (against, B, q, S) of the keys of some queries, for rank correlations with their attention.

    Scores are NaN if unknown: in the whole column of a key, or the whole row of a query for one measure.
    """

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores
        self.has_scores = ~scores.isnan().all(-1)  # (against, B, q): rows with known scores
        unknown = (scores.isnan() & self.has_scores[..., None]).any(0)  # (B, q, S)
        self.usable = ~unknown & self.has_scores.any(0)[..., None]
        self._ranks: tuple[Tensor, list[Tensor]] | None = None  # of the keys that were known last

    def correlation(self, p: Tensor, visible: Tensor) -> Tensor:
        """(…, H, against): means over sequences and queries of the correlation with attention (…, B, H, q, S).

        NaN if fewer than three keys are known or one side is constant.
        """
        known = (visible.any(-3) & self.usable).expand(*p.shape[:-3], *p.shape[-2:])  # (…, B, q, S)
        enough = known.sum(-1) >= LEAST
        of_attention = _centred(p, known.unsqueeze(-3))  # (…, B, H, q, S)
        size = torch.linalg.vector_norm(of_attention, dim=-1)  # (…, B, H, q)
        correlations = []
        for of_keys, known_row in zip(self._centred_ranks(known), self.has_scores, strict=True):
            norm = size * torch.linalg.vector_norm(of_keys, dim=-1)
            counts = (norm > 0) & (enough & known_row).unsqueeze(-2)
            each = torch.where(counts, (of_attention * of_keys).sum(-1) / norm, torch.nan)
            correlations.append(each.nanmean((-3, -1)))
        return torch.stack(correlations, -1)

    def _centred_ranks(self, known: Tensor) -> list[Tensor]:
        """(…, B, 1, q, S) of each measure; the same in all passes, as long as the same keys are visible."""
        is_cpu = known.device.type == "cpu"  # elsewhere a comparison waits for the device
        if is_cpu and self._ranks is not None and torch.equal(self._ranks[0], known):
            return self._ranks[1]
        ranks = [_centred(score.expand(known.shape), known).unsqueeze(-3) for score in self.scores]
        self._ranks = (known, ranks) if is_cpu else None
        return ranks


def _centred(values: Tensor, known: Tensor) -> Tensor:
    """Ranks among the known of each row less their mean, over their number; 0 for the others."""
    ordered, index = _sorted(values.masked_fill(~known, torch.inf))
    equal = ordered[..., 1:] == ordered[..., :-1]  # to the one before
    places = torch.arange(values.shape[-1], device=values.device, dtype=ordered.dtype).expand(ordered.shape)
    if values.device.type == "cpu":
        equal &= ordered[..., 1:] < torch.inf
        if equal.any():
            some, places = equal.any(-1), places.clone()
            places[some] = _mean_places(equal[some]).to(places.dtype)
    else:
        places = _mean_places(equal).to(places.dtype)
    n = known.sum(-1, keepdim=True)
    rank = torch.empty_like(ordered).scatter_(-1, index, places)
    return rank.sub_((n - 1) / 2).div_(n.clamp_min(1)).mul_(known.to(ordered.dtype))


def _mean_places(equal: Tensor) -> Tensor:
    """The mean place of each group of equal values in sorted rows, of which ``equal`` marks all but the first."""
    n = equal.shape[-1] + 1
    at = torch.arange(n, device=equal.device)
    first = torch.where(F.pad(~equal, (1, 0), value=True), at, 0).cummax(-1).values
    last = torch.where(F.pad(~equal, (0, 1), value=True), at, n).flip(-1).cummin(-1).values.flip(-1)
    return (first + last) / 2


def _sorted(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted values and their indices; on the CPU by NumPy, which takes an eighth of torch's time."""
    if values.device.type != "cpu":
        ordered, index = values.sort(dim=-1)
        return ordered, index
    index = torch.from_numpy(np.argsort(values.numpy(), axis=-1))
    return values.gather(-1, index), index
