"""What a part of a batch would move the weights by, and sums of that over parts.

Of a table that a batch touches in few places only these rows are kept, with their ids: of the YZ model's (M, M) tables
there is never a direction of their size. Sums are made in a fixed order, so equal parts give equal bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.text.updates import Call, add_rows, groups


class Portion(NamedTuple):
    """Which windows of the whole batch a part is: what is drawn for them must not depend on the division."""

    first: int
    of: int


@dataclass(frozen=True)
class Touched:
    """Directions of some rows of a table."""

    ids: Tensor  # (P,)
    rows: Tensor  # (P, …)
    distinct: bool  # no id repeats; else there are as many ids for each window, whatever the tokens

    def __add__(self, other: Touched) -> Touched:
        ids, rows = torch.cat([self.ids, other.ids]), torch.cat([self.rows, other.rows])
        return compact(ids, rows) if self.distinct else Touched(ids, rows, distinct=False)

    def __mul__(self, share: float) -> Touched:
        return Touched(self.ids.clone(), self.rows * share, self.distinct)


Directions = dict[str, Tensor | Touched]


def compact(ids: Tensor, rows: Tensor) -> Touched:
    """Rows of equal ids summed, in the order of the ids. On CUDA this waits for the device: how many is its secret."""
    at = groups(ids)
    found = at.sorted[at.first]
    total = rows.new_zeros(len(found), *rows.shape[1:])
    add_rows(total, at.group, rows)
    return Touched(found, total, distinct=True)


def asked_for(calls: list[Call]) -> Directions:
    """The movements of tables that a step asked for, by their number; each table's rows summed by token."""
    found: Directions = {}
    for i, call in enumerate(calls):
        if call.ids is None:
            found[str(i)] = call.d
        elif call.distinct:
            there = call.ids >= 0
            found[str(i)] = Touched(call.ids[there], call.d[there], distinct=True)
        else:
            found[str(i)] = compact(call.ids, call.d)
    return found


def add(total: Directions | None, new: Directions, share: float) -> Directions:
    """``total`` with ``share`` times ``new``, whose tensors may be overwritten afterwards."""
    if total is None:
        return {name: d * share for name, d in new.items()}
    return {name: total[name] + d * share for name, d in new.items()}  # type: ignore[operator]
