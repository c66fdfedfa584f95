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

MOST_ROWS = 8192  # of one table that are kept side by side, before those of equal ids are summed


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

    def summed(self) -> Touched:
        """Rows of equal ids as one, in the order of the ids. On CUDA this waits for the device, for their number."""
        at = groups(self.ids)
        found = at.sorted[at.first]
        total = self.rows.new_zeros(len(found), *self.rows.shape[1:])
        add_rows(total, at.group, self.rows)
        return Touched(found, total, distinct=True)


Directions = dict[str, Tensor | Touched]


def asked_for(calls: list[Call]) -> Directions:
    """The movements of tables that a step asked for, by their number.

    Rows are summed by token, as they are long and tokens repeat; single entries are left as they come, since pairs of
    tokens seldom do.
    """
    found: Directions = {}
    for i, call in enumerate(calls):
        if call.ids is None:
            found[str(i)] = call.d
        elif call.distinct:
            n = int((call.ids >= 0).sum())
            found[str(i)] = Touched(call.ids[:n], call.d[:n], distinct=True)
        else:
            touched = Touched(call.ids, call.d, distinct=False)
            found[str(i)] = touched if call.d.ndim == 1 else touched.summed()
    return found


class Sum:
    """Directions of parts that come one after the other. Each part is copied: the next may lie in the same place."""

    def __init__(self) -> None:
        self.whole: dict[str, Tensor] = {}
        self.touched: dict[str, list[Touched]] = {}
        self.names: list[str] = []

    def add(self, part: Directions, share: float) -> None:
        """``share`` times the directions of a part."""
        self.names = list(part)
        for name, d in part.items():
            if isinstance(d, Tensor):
                self.whole[name] = self.whole[name].add_(d, alpha=share) if name in self.whole else d * share
                continue
            kept = self.touched.setdefault(name, [])
            kept.append(Touched(d.ids.clone(), d.rows * share, d.distinct))
            if d.distinct and sum(len(one.ids) for one in kept) > MOST_ROWS:
                kept[:] = [_joined(kept).summed()]

    def result(self, *, summed: bool) -> Directions:
        """All parts together; ``summed``: no row twice where parts had none twice."""
        found: Directions = {}
        for name in self.names:
            if name in self.whole:
                found[name] = self.whole[name]
                continue
            parts = self.touched[name]
            found[name] = _joined(parts).summed() if summed and parts[0].distinct and len(parts) > 1 else _joined(parts)
        return found


def _joined(parts: list[Touched]) -> Touched:
    if len(parts) == 1:
        return parts[0]
    return Touched(torch.cat([one.ids for one in parts]), torch.cat([one.rows for one in parts]), parts[0].distinct)
