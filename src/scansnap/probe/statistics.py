"""What is in the attention of some queries, by sequence and head, beside what uniform attention would give.

A query with a single key has no choice and counts nowhere; nor does a row that is all masked. Patterns (previous token,
same token, induction, copy) are means over the queries that have such a key, so that a rare pattern is not a weak one.

    B sequences · H heads · Q queries · S keys
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.probe.capture import Rows
from scansnap.text.attention_statistics import smallest_set

MASS = 0.95  # of the attention whose keys are counted


@dataclass(frozen=True)
class Statistic:
    """A mean over queries: of the attention, of uniform attention, and over how many."""

    value: Tensor  # (B, H), NaN where no query counts
    uniform: Tensor  # (B, H)
    n_queries: Tensor  # (B, H)


def statistics(rows: Rows, queries: Tensor, tokens: Tensor | None = None) -> dict[str, Statistic]:
    """All of them, from the rows of ``queries`` (Q,); with ``tokens`` (B, S) those about words too.

    entropy      nats; entropy_rel is it over ln(number of keys), support its exponential
    top1         the largest weight; share95 the share of the keys that together have 95 %
    sink         attention to the first key; self to the own position, previous to the one before
    same_token   to earlier positions with the query's token
    induction    to positions after an earlier occurrence of the query's token
    copy         to positions with the token that comes next
    """
    p, visible = rows.p, rows.visible.expand(rows.p.shape)
    counts = (visible.sum(-1) > 1) & p.isfinite().all(-1)  # (B, H, Q)
    n_keys = visible.sum(-1).clamp_min(1).to(p.dtype)
    p = torch.where(counts[..., None], p, 0.0)
    even = visible / n_keys[..., None]  # what uniform attention gives
    entropy, most = torch.special.entr(p).sum(-1), n_keys.log()
    found = {
        "entropy": _mean(entropy, most, counts),
        "entropy_rel": _mean(entropy / most.clamp_min(1e-9), torch.ones_like(most), counts),
        "support": _mean(entropy.exp(), n_keys, counts),
        "top1": _mean(p.amax(-1), 1 / n_keys, counts),
        "share95": _mean(_share(p, n_keys), _share(even, n_keys), counts),
    }
    for name, keys in _patterns(p.shape[-1], queries, tokens).items():
        there = visible & keys
        some = counts & there.any(-1)
        found[name] = _mean((p * there).sum(-1), (even * there).sum(-1), some)
    return found


def _patterns(n_keys: int, queries: Tensor, tokens: Tensor | None) -> dict[str, Tensor]:
    """Which keys a pattern is about, broadcasting to (B, H, Q, S)."""
    key, query = torch.arange(n_keys, device=queries.device), queries[:, None]
    found = {"sink": (key == 0).expand(len(queries), n_keys), "self": key == query, "previous": key == query - 1}
    if tokens is not None:
        of_query = tokens[:, queries][:, None, :, None]  # (B, 1, Q, 1)
        of_key = tokens[:, None, None, :]  # (B, 1, 1, S)
        before = torch.cat([torch.full_like(of_key[..., :1], -1), of_key[..., :-1]], dim=-1)  # the token before a key
        following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -1)], dim=1)[:, queries]
        found["same_token"] = (of_key == of_query) & (key < query)
        found["induction"] = (before == of_query) & (key <= query)
        found["copy"] = (of_key == following[:, None, :, None]) & (key <= query)
    return found


def _share(p: Tensor, n_keys: Tensor) -> Tensor:
    return smallest_set(p, MASS).sum(-1) / n_keys


def _mean(value: Tensor, uniform: Tensor, counts: Tensor) -> Statistic:
    n = counts.sum(-1)
    both = [torch.where(counts, one, 0.0).sum(-1) / n for one in (value, uniform)]  # 0/0 where nothing counts
    return Statistic(both[0], both[1], n)
