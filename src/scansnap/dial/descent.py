"""Updates of the models in place: all trained tables of all runs are one vector, moved in one pass or a few.

The rules are those of :mod:`scansnap.dynamics.optimizers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scansnap.dynamics.optimizers import InPlaceOptimizer


class Descent:
    """Tables of R runs, and how an optimiser moves them.

    ``eta`` and ``decay`` are rates and weight decays, (R,) for each table. What becomes non-finite stays so, and no
    other run sees it.
    """

    def __init__(
        self, optimizer: str, tables: dict[str, Tensor], eta: dict[str, Tensor], decay: dict[str, Tensor]
    ) -> None:
        shapes = [t.shape for t in tables.values()]
        self.sizes = [math.prod(shape) for shape in shapes]
        self.all = torch.cat([t.flatten() for t in tables.values()])
        views = zip(tables, self.all.split(self.sizes), shapes, strict=True)
        self.tables = {name: view.view(shape) for name, view, shape in views}  # parts of one vector
        self.step = torch.zeros((), dtype=torch.float64, device=self.all.device)  # on the device: graphs count it too
        rule = InPlaceOptimizer.of(optimizer)
        if rule.optimizer.rule.entrywise:
            self.parts = [_Part(optimizer, self.all, _spread(tables, eta), _spread(tables, decay))]
        else:
            matrices = {name: t if t.ndim > 2 else t[:, None] for name, t in self.tables.items()}
            self.parts = [_Part(optimizer, t, _along(eta[name], t), _along(decay[name], t))
                          for name, t in matrices.items()]  # fmt: skip

    @property
    def moments(self) -> list[Tensor]:
        """Everything that the optimiser remembers."""
        return [moment for part in self.parts for moment in part.moments.values()]

    @torch.no_grad()
    def move(self, gradients: Sequence[Tensor]) -> None:
        """One update; ``gradients`` are those of minus the loss, in the order of the tables."""
        d = torch.cat([gradient.flatten() for gradient in gradients])
        each = [d] if len(self.parts) == 1 else d.split(self.sizes)
        for part, direction in zip(self.parts, each, strict=True):
            part.move(direction.view_as(part.table), self.step)
        self.step += 1


class _Part:
    """What is updated as a whole: the vector of all tables, or a table where its rule looks at matrices."""

    def __init__(self, optimizer: str, table: Tensor, eta: Tensor, decay: Tensor) -> None:
        self.table, self.eta = table, eta
        self.optimizer = InPlaceOptimizer.of(optimizer, weight_decay=decay if bool((decay != 0).any()) else 0.0)
        self.moments = self.optimizer.start(table)

    def move(self, d: Tensor, step: Tensor) -> None:
        self.optimizer.update(self.table, d, self.moments, eta=self.eta, step=step)


def _spread(tables: dict[str, Tensor], per_run: dict[str, Tensor]) -> Tensor:
    """One number per run, as many times as its table has entries."""
    return torch.cat([per_run[name].repeat_interleave(t[0].numel()) for name, t in tables.items()])


def _along(per_run: Tensor, table: Tensor) -> Tensor:
    return per_run.reshape(-1, *[1] * (table.ndim - 1))
