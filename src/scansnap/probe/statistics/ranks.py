"""Does attention follow a measure of its keys: Spearman's rank correlation, query by query.

Over the keys that a query may look at and of which something is known. Keys are those that any head of the attention
may look at: what a head gives exactly nothing is a key still, the lowest. Ranks of ties are averaged.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEAST = 3  # keys without which an order says nothing


def rank_correlation(p: Tensor, visible: Tensor, scores: Tensor) -> Tensor:
    """(…, H, against): means over sequences and queries of attention (…, B, H, q, S) against scores (against, B, q, S).

    Scores are NaN where unknown: in a key's whole column, or in a query's whole row of one of the measures. NaN where
    fewer than three keys are known or one side is constant.
    """
    asked = ~scores.isnan().all(-1)  # (against, B, q): rows of which something is known
    unknown = (scores.isnan() & asked[..., None]).any(0)  # (B, q, S)
    known = visible.expand(p.shape).any(-3) & ~unknown & asked.any(0)[..., None]  # (…, B, q, S)
    n = known.sum(-1)  # (…, B, q)
    of_attention = _centred(p, known.unsqueeze(-3).expand(p.shape))  # (…, B, H, q, S)
    size = of_attention.square().sum(-1)  # (…, B, H, q)
    found = []
    for score, of in zip(scores, asked, strict=True):
        of_keys = _centred(score.expand(known.shape), known).unsqueeze(-3)  # (…, B, 1, q, S)
        both = size * of_keys.square().sum(-1)
        counts = (both > 0) & ((n >= LEAST) & of).unsqueeze(-2)
        each = torch.where(counts, (of_attention * of_keys).sum(-1) / both.sqrt(), torch.nan)
        found.append(each.nanmean((-3, -1)))
    return torch.stack(found, -1)


def _centred(values: Tensor, known: Tensor) -> Tensor:
    """Ranks among the known of each row less their mean, over their number; 0 for the others."""
    s = values.shape[-1]
    at = torch.arange(s, device=values.device)
    ordered, place = _sorted(values.masked_fill(~known, torch.inf))
    new = torch.ones_like(known)  # where a run of equal values begins
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ends = torch.ones_like(known)
    ends[..., :-1] = new[..., 1:]
    first = torch.where(new, at, 0).cummax(-1).values
    last = torch.where(ends, at, s).flip(-1).cummin(-1).values.flip(-1)
    rank = torch.empty_like(ordered).scatter_(-1, place, (first + last).to(values.dtype) / 2)
    n = known.sum(-1, keepdim=True)
    return torch.where(known, (rank - (n - 1) / 2) / n.clamp_min(1), 0.0)


def _sorted(values: Tensor) -> tuple[Tensor, Tensor]:
    """In order, and where each came from; on the CPU by NumPy, whose sort takes an eighth of torch's time."""
    if values.device.type != "cpu":
        ordered, place = values.sort(dim=-1)
        return ordered, place
    place = torch.from_numpy(np.argsort(values.numpy(), axis=-1))
    return values.gather(-1, place), place
