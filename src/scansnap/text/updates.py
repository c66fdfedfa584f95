"""The registered update rules on the weights of a text model: in place, on whole tables or on the rows a batch touched.

What a rule is stands in :mod:`scansnap.dynamics.optimizers`; a text model is one run of it. Where a batch touches
little of a table (rows of Y, entries of Z) a step moves only that: moments and weight decay are *lazy*, a row that is
not touched keeps its value and its moments. SGD has no moments, so nothing is approximated there. Everything has a
fixed shape (no ``unique``) and the step is a tensor, so an update can be recorded as a CUDA graph, and repeated rows
are added in a fixed order, so a run can be repeated bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.checks import InputError, check_choice, check_float
from scansnap.dynamics.optimizers import RULES, Moments, Optimizer
from scansnap.kernels.cuda import triton_available
from scansnap.text.settings import rules

USUAL = 0.9  # momentum where none is given, but for sgd, which then has none
MOST_ROWS = 2048  # up to which rows of equal ids are added up on CUDA by a product with E, E_ij = [id_i = id_j]
BLOCK = 1 << 17  # entries a rule is applied to at a time on a CPU: what it makes on the way stays in the cache


@dataclass(frozen=True)
class Update:
    """A rule with its numbers. ``d`` is minus the gradient; ``eta`` and ``step`` (from 1) are 0-dim tensors."""

    optimizer: Optimizer
    momentum: float
    weight_decay: float

    @classmethod
    def of(
        cls, name: str, momentum: float | None, weight_decay: float, beta1: float, beta2: float, eps: float
    ) -> Update:
        """Any registered rule that moves entries on their own; ``momentum`` is sgd with one."""
        known = rules()
        if name in list(RULES) and name not in known:
            parts = f"one of {', '.join(known)} (tables move in parts here, and it needs whole matrices)"
            raise InputError("optimizer", name, parts)
        check_choice("optimizer", name, known)
        optimizer = Optimizer("sgd" if name == "momentum" else name, beta1, beta2, eps)
        if momentum is None:
            momentum = USUAL if optimizer.rule.momentum and name != "sgd" else 0.0
        elif not optimizer.rule.momentum:
            raise InputError("momentum", momentum, f"left out with {name}, which has none")
        return cls(
            optimizer,
            check_float("momentum", momentum, least=0, below=1),
            check_float("weight_decay", weight_decay, least=0),
        )

    @property
    def linear(self) -> bool:
        """Plain SGD: a table gets η d, whether at once or bit by bit."""
        return self.optimizer.name == "sgd" and not self.momentum and not self.weight_decay

    def moments(self, table: Tensor) -> Moments:
        """Empty moments of a table. Without momentum SGD's would be the direction itself: it is not kept."""
        return {} if self.optimizer.name == "sgd" and not self.momentum else self.optimizer.start(table)

    def move(self, table: Tensor, d: Tensor, moments: Moments, eta: Tensor, step: Tensor) -> None:
        """All of a table, in place; d may be overwritten."""
        form = {"sgd": self._sgd, "adam": self._adam, "adamw": self._adam}.get(self.optimizer.name)
        if form is None:
            self._by_rule(table, d, moments, eta, step)
            return
        if self.weight_decay and self.optimizer.rule.decoupled:
            table.mul_(1 - eta * self.weight_decay)
        elif self.weight_decay:
            d.sub_(table, alpha=self.weight_decay)
        form(table, d, moments, eta, step)

    def move_rows(self, table: Tensor, ids: Tensor, d: Tensor, moments: Moments, eta: Tensor, step: Tensor) -> None:
        """Rows ``ids`` (P,) of a table (R, …) by directions d (P, …), which are first summed over equal ids."""
        if self.linear:
            add_rows(table, ids, d.mul_(eta))
            return
        if d.is_cuda and d.ndim == 2 and len(d) <= MOST_ROWS:
            d = (ids[:, None] == ids).to(d.dtype) @ d
        else:
            at = groups(ids)
            total = torch.zeros_like(d)
            add_rows(total, at.group, d)
            d = total[at.group]
        # (P, …) repeated ids now carry the same numbers, so it does not matter which is written
        rows, part = table.index_select(0, ids), {name: m.index_select(0, ids) for name, m in moments.items()}
        self.move(rows, d, part, eta, step)
        table.index_copy_(0, ids, rows)
        for name, moment in moments.items():
            moment.index_copy_(0, ids, part[name])

    def _by_rule(self, table: Tensor, d: Tensor, moments: Moments, eta: Tensor, step: Tensor) -> None:
        """The rule itself, a function of tensors with a first dimension of one run."""
        momentum, decay = table.new_full((1,), self.momentum), table.new_full((1,), self.weight_decay)
        some = len(table) if table.is_cuda else max(1, BLOCK * len(table) // max(table.numel(), 1))
        for first in range(0, len(table), some):
            at = slice(first, first + some)
            moved, after = self.optimizer.update(
                table[at][None], d[at][None], {name: moment[at][None] for name, moment in moments.items()},
                step=step - 1, eta=eta.view(1), momentum=momentum, weight_decay=decay,
            )  # fmt: skip
            table[at] = moved[0]
            for name, moment in moments.items():
                moment[at] = after[name][0]

    # The rules most used, once more without intermediate tables; benchmarks/README.md says what that is worth.

    def _sgd(self, table: Tensor, d: Tensor, moments: Moments, eta: Tensor, step: Tensor) -> None:
        if moments:
            d = moments["velocity"].mul_(self.momentum).add_(d)
        table.addcmul_(d, eta)

    def _adam(self, table: Tensor, d: Tensor, moments: Moments, eta: Tensor, step: Tensor) -> None:
        beta1, beta2 = self.optimizer.beta1, self.optimizer.beta2
        if table.is_cuda and table.dtype == torch.float32 and triton_available():
            from scansnap.kernels.cuda.adam import adam_  # imports Triton

            adam_(table, d, moments["mean"], moments["square"], eta, step, beta1, beta2, self.optimizer.eps)
            return
        mean = moments["mean"].mul_(beta1).add_(d, alpha=1 - beta1)
        square = moments["square"].mul_(beta2).addcmul_(d, d, value=1 - beta2)
        spread = torch.div(square, 1 - beta2**step, out=d).sqrt_().add_(self.optimizer.eps)
        table.add_(torch.div(mean, spread, out=d).mul_(eta / (1 - beta1**step)))


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
