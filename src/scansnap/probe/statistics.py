"""What is in the attention of some queries, by sequence and head, beside what uniform attention would give.

A query with a single key has no choice and counts nowhere; nor does a row that is all masked. Patterns (same token,
induction, copy) are means over the queries that have such a key, so that a rare pattern is not a weak one; ``…_all``
are means over all queries.

    B sequences · H heads · Q queries · S keys
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.probe.capture import AttentionCall, Rows
from scansnap.probe.schema import DECILES, STATISTICS
from scansnap.text.attention_statistics import smallest_set

MASS = 0.95  # of the attention whose keys are counted
BLOCK = 1 << 22  # weights looked at at once


@dataclass(frozen=True)
class Plan:
    """What is looked at in an attention of one shape, all on its device."""

    queries: Tensor  # (Q,) positions
    sampled: Tensor  # (q,) places in ``queries`` whose rows are kept whole
    tokens: Tensor | None = None  # (B, S) of the keys; None where they are not tokens of the batch
    distinctness: Tensor | None = None  # (B, S) of the keys, 0 to 1, NaN where unknown
    decile: Tensor | None = None  # (B, S) of the keys, −1 where unknown


@dataclass(frozen=True)
class Gathered:
    """Of one attention. Means over queries, NaN where none counts."""

    value: Tensor  # (statistic, B, H), in the order of STATISTICS
    uniform: Tensor  # (statistic, B, H)
    n_queries: Tensor  # (B, H) with a choice
    mass: Tensor  # (DECILES, B, H)
    uniform_mass: Tensor  # (DECILES, B, H)
    distinctness: Tensor  # (B, H)
    uniform_distinctness: Tensor  # (B, H)
    sample: Rows  # of the sampled queries, (B, H, q, S)


def gather(call: AttentionCall, plan: Plan, block: int = BLOCK) -> Gathered:
    """All statistics of one attention, some queries at a time, so that at most ``block`` weights are there at once."""
    b, h, _, s = call.shape
    size = max(1, block // (b * h * s))
    sums = sum_of([_sums(call.rows(some), some, plan) for some in plan.queries.split(size)])
    value, uniform, n = sums[..., 0], sums[..., 1], sums[..., 2]  # (row, B, H) each
    value, uniform = value / n, uniform / n  # 0/0 where nothing counts
    k, d = len(STATISTICS), DECILES
    kept = call.rows(plan.queries[plan.sampled])
    return Gathered(
        value[:k], uniform[:k], n[0], value[k : k + d], uniform[k : k + d], value[-1], uniform[-1],
        Rows(torch.where(kept.p.isfinite(), kept.p, 0.0).float(), kept.visible),
    )  # fmt: skip


def sum_of(parts: list[Tensor]) -> Tensor:
    """Added in order."""
    return torch.stack(parts).sum(0)


def _sums(rows: Rows, queries: Tensor, plan: Plan) -> Tensor:
    """(statistics + deciles + 1, B, H, 3): over the queries the sum, that of uniform attention, and how many count."""
    visible = rows.visible.expand(rows.p.shape)
    counts = (visible.sum(-1) > 1) & rows.p.isfinite().all(-1)  # (B, H, Q)
    n_keys = visible.sum(-1).clamp_min(1).to(rows.p.dtype)
    p = torch.where(counts[..., None], rows.p, 0.0)
    even = visible / n_keys[..., None]  # what uniform attention gives
    entropy, most = torch.special.entr(p).sum(-1), n_keys.log()
    one = torch.ones_like(most)
    found = [
        (entropy, most, counts),
        (entropy / most.clamp_min(1e-9), one, counts),
        (entropy.exp(), n_keys, counts),
        (p.amax(-1), 1 / n_keys, counts),
        (_share(p, n_keys), _share(even, n_keys), counts),
    ]
    key, query = torch.arange(p.shape[-1], device=p.device), queries[:, None]
    for keys in ((key == 0).expand(len(queries), -1), key == query, key == query - 1):
        found.append(_on(p, even, visible & keys, counts))
    patterns = _patterns(key, queries, plan.tokens) if plan.tokens is not None else [torch.zeros_like(visible)] * 3
    some = [_on(p, even, visible & keys, counts) for keys in patterns]
    found += some
    found += [(value, uniform, counts if plan.tokens is not None else counts & False) for value, uniform, _ in some]
    for d in range(DECILES):
        own = plan.decile[:, None, None, :] == d if plan.decile is not None else torch.zeros_like(visible)
        value, uniform, _ = _on(p, even, visible & own, counts)
        found.append((value, uniform, counts if plan.decile is not None else counts & False))
    found.append(_weighted(p, even, plan.distinctness, counts))
    return torch.stack([torch.stack([torch.where(c, v, 0).sum(-1), torch.where(c, u, 0).sum(-1), c.sum(-1)], -1)
                        for v, u, c in found])  # fmt: skip


def _on(p: Tensor, even: Tensor, keys: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Attention on some keys, for queries that have any."""
    return (p * keys).sum(-1), (even * keys).sum(-1), counts & keys.any(-1)


def _weighted(p: Tensor, even: Tensor, score: Tensor | None, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean score of the keys whose score is known, by attention."""
    if score is None:
        return torch.zeros_like(p[..., 0]), torch.zeros_like(p[..., 0]), counts & False
    score = score[:, None, None, :]
    known = score.isfinite()
    score = torch.where(known, score, 0.0)
    on = (p * known).sum(-1), (even * known).sum(-1)
    means = [(w * score).sum(-1) / total for w, total in zip((p, even), on, strict=True)]
    return means[0], means[1], counts & (on[0] > 0)


def _patterns(key: Tensor, queries: Tensor, tokens: Tensor) -> list[Tensor]:
    """Keys with the same token, after such a key, and with the next token, broadcasting to (B, H, Q, S)."""
    query = queries[:, None]
    of_query = tokens[:, queries][:, None, :, None]  # (B, 1, Q, 1)
    of_key = tokens[:, None, None, :]  # (B, 1, 1, S)
    before = torch.cat([torch.full_like(of_key[..., :1], -1), of_key[..., :-1]], dim=-1)  # the token before a key
    following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -1)], dim=1)[:, queries][:, None, :, None]
    return [(of_key == of_query) & (key < query), (before == of_query) & (key <= query),
            (of_key == following) & (key <= query)]  # fmt: skip


def _share(p: Tensor, n_keys: Tensor) -> Tensor:
    return smallest_set(p, MASS).sum(-1) / n_keys
