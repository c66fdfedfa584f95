"""Updates of the dial in place: all trained tables of all runs are one vector, moved by one pass over it or a few.

The rules are those of :mod:`scansnap.dynamics.optimizers`, which make a new table of every intermediate result; for
the small tables here that took longer than the gradients (5.9 of 7.5 ms a step for the YZ model with AdamW).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scansnap.dynamics.optimizers import Optimizer, orthogonalize
from scansnap.kernels.cpu import step

MOMENTUM = {"momentum": 0.9, "muon": 0.9, "sign": 0.9}
DECOUPLED = ("adamw", "muon")


class Descent:
    """Tables of R runs, and how an optimiser moves them.

    ``eta`` and ``decay`` are rates and weight decays, (R,) for each table. What becomes non-finite stays so, and no
    other run sees it.
    """

    def __init__(
        self, optimizer: str, tables: dict[str, Tensor], eta: dict[str, Tensor], decay: dict[str, Tensor]
    ) -> None:
        self.optimizer, self.adam = optimizer, Optimizer("adam")  # its constants
        shapes = [t.shape for t in tables.values()]
        sizes = [math.prod(shape) for shape in shapes]
        self.all = torch.cat([t.flatten() for t in tables.values()])
        parts = zip(tables, self.all.split(sizes), shapes, strict=True)
        self.tables = {name: part.view(shape) for name, part, shape in parts}  # parts of one vector
        self.eta = _spread(tables, eta)
        shrink = _spread(tables, decay)
        self.decay = shrink if bool((shrink != 0).any()) else None
        self.step = torch.zeros((), dtype=torch.float64, device=self.all.device)  # on the device: graphs count it too
        self._work = torch.empty_like(self.all)
        self.moments = [torch.zeros_like(self.all) for _ in range(MOMENTS[optimizer])]

    @torch.no_grad()
    def move(self, gradients: Sequence[Tensor]) -> None:
        """One update; ``gradients`` are those of the loss, in the order of the tables."""
        self.step += 1
        g = torch.cat([one.flatten() for one in gradients])
        if self.decay is not None:
            if self.optimizer in DECOUPLED:
                self.all.sub_(torch.mul(self.eta, self.decay, out=self._work).mul_(self.all))
            else:
                g.addcmul_(self.decay, self.all)
        if self.optimizer in ("adam", "adamw"):
            self._adam(g)
            return
        if self.moments:
            (velocity,) = self.moments
            g = velocity.mul_(MOMENTUM[self.optimizer]).add_(g)
        if self.optimizer == "sign":
            g = torch.sign(g, out=self._work)
        elif self.optimizer == "muon":
            g = self._orthogonal(g)
        self.all.addcmul_(self.eta, g, value=-1)

    def _adam(self, g: Tensor) -> None:
        (mean, square), rule = self.moments, self.adam
        if step.takes(g):
            step.adam(self.all, g, self.eta, self.moments, (rule.beta1, rule.beta2), rule.eps, int(self.step))
            return
        mean.lerp_(g, 1 - rule.beta1)
        square.mul_(rule.beta2).addcmul_(g, g, value=1 - rule.beta2)
        spread = torch.mul(square, 1 / (1 - rule.beta2**self.step), out=self._work).sqrt_().add_(rule.eps)
        moved = torch.div(mean, spread, out=spread).mul_(1 / (1 - rule.beta1**self.step))
        self.all.addcmul_(self.eta, moved, value=-1)

    def _orthogonal(self, velocity: Tensor) -> Tensor:
        parts = zip(velocity.split([t.numel() for t in self.tables.values()]), self.tables.values(), strict=True)
        matrices = (part.view(t.shape if t.ndim > 2 else (len(t), 1, -1)) for part, t in parts)
        return torch.cat([orthogonalize(matrix).flatten() for matrix in matrices])


MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "sign": 1, "muon": 1}


def _spread(tables: dict[str, Tensor], per_run: dict[str, Tensor]) -> Tensor:
    """One number per run, as many times as its table has entries."""
    return torch.cat([per_run[name].repeat_interleave(t[0].numel()) for name, t in tables.items()])
