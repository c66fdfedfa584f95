"""Updates of whole tables, or of the rows that a batch touches, by the rules of `scansnap.dynamics.optimizers`.

Where a batch touches little of a table (rows of Y, entries of Z) an update changes only that: moments and weight decay
are *lazy*, so a row that is not touched keeps its value and its moments. For plain SGD this is exact. All shapes are
fixed (no ``unique``) and the step is a tensor, so an update can be recorded as a CUDA graph. Repeated rows are added in
a fixed order, so a run repeats bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.dynamics.optimizers import InPlaceOptimizer, Moments

MAX_PRODUCT_ROWS = 2048  # up to which CUDA sums rows of equal ids by a product with E, E_ij = [id_i = id_j]


@dataclass(frozen=True)
class TableOptimizer(InPlaceOptimizer):
    """A rule that updates rows of tables too. ``d`` is minus the gradient, ``eta`` and ``step`` are 0-dim tensors."""

    def update_rows(
        self, table: Tensor, ids: Tensor, d: Tensor, moments: Moments, *, eta: Tensor, step: Tensor
    ) -> None:
        """Update rows ``ids`` (P,) of a table (R, …) by directions d (P, …), summed over equal ids."""
        if self.is_plain_sgd:
            add_rows(table, ids, d.mul_(eta))
            return
        if d.is_cuda and d.ndim == 2 and len(d) <= MAX_PRODUCT_ROWS:
            d = (ids[:, None] == ids).to(d.dtype) @ d
        else:
            group = group_ids(ids).group
            total = torch.zeros_like(d)
            add_rows(total, group, d)
            d = total[group]
        # (P, …) repeated ids now have the same numbers, so the order of writing does not matter
        rows, part = table.index_select(0, ids), {name: m.index_select(0, ids) for name, m in moments.items()}
        self.update(rows, d, part, eta=eta, step=step)
        table.index_copy_(0, ids, rows)
        for name, moment in moments.items():
            moment.index_copy_(0, ids, part[name])


class IdGroups(NamedTuple):
    """Repeated ids in groups: those of one group are adjacent in ``order``."""

    order: Tensor  # (P,) positions of the ids in ascending order, equal ids in their original order
    sorted: Tensor  # (P,) the ids in that order
    group: Tensor  # (P,) the group of each id in the original order


def group_ids(ids: Tensor) -> IdGroups:
    """Groups of equal ids, numbered in ascending order."""
    ascending, order = torch.sort(ids, stable=True)
    is_first = torch.ones_like(ascending, dtype=torch.bool)
    is_first[1:] = ascending[1:] != ascending[:-1]
    group = torch.empty_like(order)
    group[order] = is_first.cumsum(0) - 1
    return IdGroups(order, ascending, group)


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids] += rows, with repeated ids added in a fixed order (``index_add_`` on CUDA has none)."""
    if table.is_cuda:
        table.index_put_((ids,), rows, accumulate=True)
    else:
        table.index_add_(0, ids, rows)
