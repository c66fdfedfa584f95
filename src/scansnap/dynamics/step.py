"""One update of a group of runs, as a function of tensors alone: gradients, optimisers, and the health check."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.dynamics import yz
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State


class Rates(NamedTuple):
    """One number per run, (R,)."""

    eta_y: Tensor
    eta_z: Tensor
    momentum: Tensor
    weight_decay: Tensor

    def scaled(self, factor_y: float, factor_z: float) -> Rates:
        """With the schedules' factors on the two rates."""
        return self._replace(eta_y=self.eta_y * factor_y, eta_z=self.eta_z * factor_z)

    def take(self, runs: Tensor) -> Rates:
        """Those of some of the runs."""
        return Rates(*[values[runs] for values in self])


def one_step(
    state: State, batch: yz.Batch, rates: Rates, step: int | Tensor, tables: yz.Tables, settings: Settings
) -> State:
    """The state after update number ``step``; a run that would become non-finite stays as it is and is marked."""
    grad = yz.gradients(state.y, state.z, batch, tables, settings.model)
    y, moments_y = settings.optimizer_y.update(
        state.y, grad.dy, state.moments_y, step=step, eta=rates.eta_y, momentum=rates.momentum,
        weight_decay=rates.weight_decay, multiplicity=tables.multiplicity,
    )  # fmt: skip
    z, moments_z = settings.optimizer_z.update(
        state.z, grad.dz, state.moments_z, step=step, eta=rates.eta_z, momentum=rates.momentum,
        weight_decay=rates.weight_decay,
    )  # fmt: skip
    finite = (_size(y) < largest_y(y.dtype, z.shape[-1])) & torch.isfinite(_size(z))
    now = step.to(torch.int64) if isinstance(step, Tensor) else step
    failed_step = torch.where(state.alive & ~finite, now, state.failed_step)
    keep = failed_step < 0
    return State(
        state.step + 1,
        torch.where(keep[:, None, None], y, state.y),
        torch.where(keep[:, None, None, None], z, state.z),
        moments_y, moments_z, failed_step,
    )  # fmt: skip


def largest_y(dtype: torch.dtype, vocab_size: int) -> float:
    """Beyond this size of Y the logits, and so the loss, can overflow although the table itself is finite."""
    return torch.finfo(dtype).max / (8 * vocab_size)


def _size(table: Tensor) -> Tensor:
    """The largest absolute value in each run's table, or NaN; (R,)."""
    return torch.linalg.vector_norm(table.flatten(1), ord=torch.inf, dim=1)
