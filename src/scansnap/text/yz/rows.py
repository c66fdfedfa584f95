"""Optimisers for tables of which a batch touches little: rows of Y, entries of Z.

A step moves only what the batch touched, whatever the optimiser: the moments of momentum and Adam are *lazy*, a row
(or entry) that is not touched keeps its value and its moments. SGD has no moments, so nothing is approximated
there. Everything has a fixed shape (no ``unique``), so a step can be recorded as a CUDA graph, and adds repeated
rows in a fixed order, so a run can be repeated bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

NAMES = ("sgd", "momentum", "adam")
_MOMENTS = {"sgd": (), "momentum": ("velocity",), "adam": ("mean", "square")}


class Groups(NamedTuple):
    """Repeated ids gathered: those of group g stand side by side in ``order``."""

    order: Tensor  # (P,) places of the ids in ascending order, equal ones as they came
    sorted: Tensor  # (P,) the ids in that order
    group: Tensor  # (P,) the group of each id as they came
    first: Tensor  # (P,) in sorted order: whether a group begins here


def groups(ids: Tensor) -> Groups:
    """Equal ids put together."""
    ascending, order = torch.sort(ids, stable=True)
    first = torch.ones_like(ascending, dtype=torch.bool)
    first[1:] = ascending[1:] != ascending[:-1]
    group = torch.empty_like(order)
    group[order] = first.cumsum(0) - 1
    return Groups(order, ascending, group, first)


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids] += rows, repeated ids added up one after the other (``index_add_`` on CUDA is in any order)."""
    if table.is_cuda:
        table.index_put_((ids,), rows, accumulate=True)
    else:
        table.index_add_(0, ids, rows)


@dataclass(frozen=True)
class Rule:
    """How a direction (minus the gradient) moves a table; ``eta`` and ``step`` are 0-dim tensors on its device."""

    name: str = "sgd"
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def moments(self, table: Tensor) -> dict[str, Tensor]:
        """Empty moments of a table."""
        return {name: torch.zeros_like(table) for name in _MOMENTS[self.name]}

    def move(self, table: Tensor, d: Tensor, moments: dict[str, Tensor], eta: Tensor, step: Tensor) -> None:
        """All of a table, in place; step counts from 1."""
        if self.name == "sgd":
            table.add_(d.mul_(eta))
        elif self.name == "momentum":
            velocity = moments["velocity"].mul_(self.momentum).add_(d)
            table.addcmul_(velocity, eta)
        else:
            mean = moments["mean"].mul_(self.beta1).add_(d, alpha=1 - self.beta1)
            square = moments["square"].mul_(self.beta2).addcmul_(d, d, value=1 - self.beta2)
            spread = torch.div(square, 1 - self.beta2**step, out=d).sqrt_().add_(self.eps)
            table.add_(torch.div(mean, spread, out=d).mul_(eta / (1 - self.beta1**step)))

    def move_rows(
        self, table: Tensor, ids: Tensor, d: Tensor, moments: dict[str, Tensor], eta: Tensor, step: Tensor
    ) -> None:
        """Rows ``ids`` (P,) of a table (R, …) by directions d (P, …), which are first summed over equal ids."""
        if self.name == "sgd":
            add_rows(table, ids, d.mul_(eta))
            return
        at = groups(ids)
        total = torch.zeros_like(d)
        add_rows(total, at.group, d)
        d = total[at.group]  # (P, …) repeated ids now carry the same numbers, so it does not matter which is written
        rows, part = table[ids], {name: moment[ids] for name, moment in moments.items()}
        self.move(rows, d, part, eta, step)
        table[ids] = rows
        for name, moment in moments.items():
            moment[ids] = part[name]
