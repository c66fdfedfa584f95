"""Compute the statistics of one attention in blocks of queries, on its device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available
from scansnap.probe.capture import AttentionCall, AttentionRows
from scansnap.probe.schema import STATISTICS
from scansnap.probe.statistics import plain

BLOCK = {"cpu": 1 << 22, "cuda": 1 << 23}  # weights in memory at once


@dataclass(frozen=True)
class StatisticsPlan:
    """Which queries to measure in attention of one shape, and facts about its keys; on its device."""

    queries: Tensor  # (Q,) positions
    sampled: Tensor  # (q,) indices into ``queries`` of the rows to store
    tokens: Tensor | None = None  # (B, S) of the keys; None if they are not tokens of the batch
    distinctness: Tensor | None = None  # (B, S) of the keys, 0 to 1, NaN if unknown
    decile: Tensor | None = None  # (B, S) of the keys, −1 if unknown
    start: Tensor | None = None  # (B,) first key of each sequence; None: 0
    padding: Tensor | None = None  # (B, T) 0 at queries that do not count
    sinks: Tensor | None = None  # (B, S) keys that count as sinks, beside the first

    def tables(self, queries: Tensor) -> plain.KeyTables:
        """Tables for ``plain``; those of all queries are shared by all layers."""
        return self._tables if queries is self.queries else plain.KeyTables(queries, *self._of_keys)

    @cached_property
    def _tables(self) -> plain.KeyTables:
        return plain.KeyTables(self.queries, *self._of_keys)

    @property
    def _of_keys(self) -> tuple[Tensor | None, ...]:
        return self.tokens, self.distinctness, self.decile, self._sink_keys, self.start

    @property
    def _sink_keys(self) -> Tensor | None:
        """(B, S) all keys that count as sinks; None: the first one."""
        if self.sinks is None:
            return None
        keys = torch.arange(self.sinks.shape[1], device=self.sinks.device)
        start = torch.zeros(len(self.sinks), 1, device=keys.device) if self.start is None else self.start[:, None]
        return self.sinks | (keys == start)

    @cached_property
    def slot(self) -> Tensor:
        """(Q,) index of each query's row in the sample, −1 if it is not stored."""
        slot = torch.full_like(self.queries, -1, dtype=torch.int32)
        slot[self.sampled] = torch.arange(len(self.sampled), dtype=torch.int32, device=slot.device)
        return slot

    @cached_property
    def keys(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Tokens, deciles and distinctness in the dtypes of the CUDA kernel."""

        def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
            return None if tensor is None else tensor.to(dtype).contiguous()

        return cast(self.tokens, torch.int32), cast(self.decile, torch.int32), cast(self.distinctness, torch.float32)


@dataclass(frozen=True)
class AttentionSums:
    """Sums of one attention over its queries, with a line for each statistic, each decile, and the distinctness.

    The last axis has the sum, that of uniform attention, and the number of queries. Means are NaN without queries.
    """

    sums: Tensor  # (K, B, H, 3)
    sample: AttentionRows  # rows of the sampled queries, (B, H, q, S)
    n_nonfinite: Tensor  # (B, H) queries with NaN or infinite attention, which the sums do not count

    @property
    def value(self) -> Tensor:
        """(statistic, B, H), in the order of STATISTICS."""
        return self._mean(0)[: len(STATISTICS)]

    @property
    def uniform(self) -> Tensor:
        """(statistic, B, H)."""
        return self._mean(1)[: len(STATISTICS)]

    @property
    def n_queries(self) -> Tensor:
        """(B, H) with more than one visible key."""
        return self.sums[0, ..., 2]

    @property
    def mass(self) -> Tensor:
        """(DECILES, B, H)."""
        return self._mean(0)[len(STATISTICS) : -1]

    @property
    def uniform_mass(self) -> Tensor:
        """(DECILES, B, H)."""
        return self._mean(1)[len(STATISTICS) : -1]

    @property
    def distinctness(self) -> Tensor:
        """(B, H)."""
        return self._mean(0)[-1]

    @property
    def uniform_distinctness(self) -> Tensor:
        """(B, H)."""
        return self._mean(1)[-1]

    def _mean(self, column: int) -> Tensor:
        return self.sums[..., column] / self.sums[..., 2]  # 0/0 without queries


def compute_sums(call: AttentionCall, plan: StatisticsPlan, block: int | None = None) -> AttentionSums:
    """All statistics of one attention, with at most ``block`` weights in memory at once."""
    b, h, _, s = call.shape
    size = max(1, (block or BLOCK.get(call.device.type, BLOCK["cpu"])) // (b * h * s))
    parts = [plan.queries] if size >= len(plan.queries) else list(plan.queries.split(size))
    return _by_kernel(call, plan, parts) if _kernel_takes(call, plan) else _by_torch(call, plan, parts)


def _by_torch(call: AttentionCall, plan: StatisticsPlan, parts: list[Tensor]) -> AttentionSums:
    results = []
    for queries in parts:
        rows = call.rows(queries)
        results.append(plain.sums(rows, plan.tables(queries)))
    if len(parts) > 1:
        rows = call.rows(plan.queries[plan.sampled])
    elif len(plan.sampled) < len(plan.queries):
        rows = AttentionRows(rows.p[:, :, plan.sampled], rows.visible[..., plan.sampled, :])
    p = rows.p.nan_to_num_(0.0, 0.0, 0.0).mul_(rows.visible.any(-1, keepdim=True).to(rows.p.dtype)).float()
    sums, n_nonfinite = (torch.stack(part).sum(0) for part in zip(*results, strict=True))
    return AttentionSums(sums, AttentionRows(p, rows.visible), n_nonfinite)


def _kernel_takes(call: AttentionCall, plan: StatisticsPlan) -> bool:
    """Whether the CUDA kernel supports it: at most float32, rows that fit into registers, and 0 as the first key."""
    if plan.start is not None or plan.sinks is not None or call.device.type != "cuda" or not triton_available():
        return False
    from scansnap.kernels.cuda import attention

    inputs = call.products
    narrow = inputs is None or (inputs.q.dtype == inputs.k.dtype and inputs.q.dtype in attention.DTYPES)
    return narrow and call.shape[3] <= attention.LONGEST


def _by_kernel(call: AttentionCall, plan: StatisticsPlan, parts: list[Tensor]) -> AttentionSums:
    from scansnap.kernels.cuda import attention

    b, h, _, s = call.shape
    p = torch.empty(b, h, len(plan.sampled), s, device=call.device)
    visible = torch.empty(p.shape, dtype=torch.bool, device=call.device)
    keys, inputs, results, first = attention.Keys(*plan.keys), call.products, [], 0
    n_nonfinite = torch.zeros(b, h, dtype=torch.long, device=call.device)
    for queries in parts:
        sample = attention.Sample(plan.slot[first : first + len(queries)], p, visible)
        first += len(queries)
        if inputs is None:
            rows = call.rows(queries)
            p_rows, seen = rows.p.float().contiguous(), rows.visible.expand(rows.p.shape)
            n_nonfinite += (seen.any(-1) & ~p_rows.amax(-1).isfinite()).sum(-1)
            results.append(attention.row_sums(p_rows, queries, False, seen, keys, sample, made=True))
        else:
            logits = attention.logits(inputs.q, inputs.k, inputs.scale, queries)
            mask = None if inputs.mask is None else inputs.mask.expand(call.shape)
            visible_logits = logits
            if mask is not None:
                some = mask[:, :, queries]
                hidden = ~some if some.dtype == torch.bool else some == -torch.inf
                visible_logits = logits.masked_fill(hidden, -torch.inf)
            n_nonfinite += (~(visible_logits.amax(-1) < torch.inf)).sum(-1)
            results.append(attention.row_sums(logits, queries, inputs.causal, mask, keys, sample, made=False))
    sums = results[0] if len(results) == 1 else torch.stack(results).sum(0)
    return AttentionSums(sums, AttentionRows(p, visible), n_nonfinite)
