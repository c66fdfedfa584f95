"""All statistics of one attention, a block of queries at a time, by whatever is fastest where it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available
from scansnap.probe.capture import AttentionCall, Rows
from scansnap.probe.schema import STATISTICS
from scansnap.probe.statistics import plain

BLOCK = {"cpu": 1 << 22, "cuda": 1 << 23}  # weights that are there at once


@dataclass(frozen=True)
class Plan:
    """What is looked at in attentions of one shape, all on their device."""

    queries: Tensor  # (Q,) positions
    sampled: Tensor  # (q,) places in ``queries`` whose rows are kept whole
    tokens: Tensor | None = None  # (B, S) of the keys; None where they are not tokens of the batch
    distinctness: Tensor | None = None  # (B, S) of the keys, 0 to 1, NaN where unknown
    decile: Tensor | None = None  # (B, S) of the keys, −1 where unknown

    def tables(self, queries: Tensor) -> plain.KeyTables:
        """For ``plain``, of some of the queries; if they are all of them, the next layer gets the same."""
        return self._tables if queries is self.queries else plain.KeyTables(queries, *self._of_keys)

    @cached_property
    def _tables(self) -> plain.KeyTables:
        return plain.KeyTables(self.queries, *self._of_keys)

    @property
    def _of_keys(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.tokens, self.distinctness, self.decile

    @cached_property
    def slot(self) -> Tensor:
        """(Q,) place of each query's row in the sample, −1 where it is not in it."""
        slot = torch.full_like(self.queries, -1, dtype=torch.int32)
        slot[self.sampled] = torch.arange(len(self.sampled), dtype=torch.int32, device=slot.device)
        return slot

    @cached_property
    def keys(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Tokens, deciles and distinctness as the CUDA kernel reads them."""

        def read(given: Tensor | None, dtype: torch.dtype) -> Tensor | None:
            return None if given is None else given.to(dtype).contiguous()

        return read(self.tokens, torch.int32), read(self.decile, torch.int32), read(self.distinctness, torch.float32)


@dataclass(frozen=True)
class Gathered:
    """Of one attention. ``sums`` has a line for each statistic, decile and the distinctness: over the queries the sum,
    that of uniform attention, and how many queries count. Means are NaN where none does."""

    sums: Tensor  # (K, B, H, 3)
    sample: Rows  # of the sampled queries, (B, H, q, S)

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
        """(B, H) with a choice."""
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

    def _mean(self, of: int) -> Tensor:
        return self.sums[..., of] / self.sums[..., 2]  # 0/0 where nothing counts


def gather(call: AttentionCall, plan: Plan, block: int | None = None) -> Gathered:
    """All statistics of one attention, so that at most ``block`` weights are there at once."""
    b, h, _, s = call.shape
    size = max(1, (block or BLOCK.get(call.device.type, BLOCK["cpu"])) // (b * h * s))
    parts = [plan.queries] if size >= len(plan.queries) else list(plan.queries.split(size))
    return _by_kernel(call, plan, parts) if _for_kernel(call) else _by_torch(call, plan, parts)


def _by_torch(call: AttentionCall, plan: Plan, parts: list[Tensor]) -> Gathered:
    found = []
    for queries in parts:
        rows = call.rows(queries)
        found.append(plain.sums(rows, plan.tables(queries)))
    if len(parts) == 1:
        kept = Rows(rows.p[:, :, plan.sampled], rows.visible[..., plan.sampled, :])
    else:
        kept = call.rows(plan.queries[plan.sampled])
    p = torch.where(kept.p.isfinite(), kept.p, 0.0).float()
    return Gathered(torch.stack(found).sum(0), Rows(p, kept.visible))


def _for_kernel(call: AttentionCall) -> bool:
    """Whether the CUDA kernel takes it: float32 or less, and rows that registers hold."""
    if call.device.type != "cuda" or not triton_available():
        return False
    from scansnap.kernels.cuda import attention

    given = call.products
    narrow = given is None or (given.q.dtype == given.k.dtype and given.q.dtype in attention.DTYPES)
    return narrow and call.shape[3] <= attention.LONGEST


def _by_kernel(call: AttentionCall, plan: Plan, parts: list[Tensor]) -> Gathered:
    from scansnap.kernels.cuda import attention

    b, h, _, s = call.shape
    p = torch.empty(b, h, len(plan.sampled), s, device=call.device)
    visible = torch.empty(p.shape, dtype=torch.bool, device=call.device)
    keys, given, found, first = attention.Keys(*plan.keys), call.products, [], 0
    for queries in parts:
        sample = attention.Sample(plan.slot[first : first + len(queries)], p, visible)
        first += len(queries)
        if given is None:
            rows = call.rows(queries)
            seen = rows.visible.expand(rows.p.shape)
            found.append(attention.row_sums(rows.p.float().contiguous(), queries, False, seen, keys, sample, made=True))
        else:
            logits = attention.logits(given.q, given.k, given.scale, queries)
            mask = None if given.mask is None else given.mask.expand(call.shape)
            found.append(attention.row_sums(logits, queries, given.causal, mask, keys, sample, made=False))
    sums = found[0] if len(found) == 1 else torch.stack(found).sum(0)
    return Gathered(sums, Rows(p, visible))
