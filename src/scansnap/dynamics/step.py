"""One update of a group of runs, as a function of tensors alone: optimisers, and the health check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.state import State
from scansnap.runs import Runs


@dataclass(frozen=True)
class RunRates:
    """One number per run (R,), by the name of the table where tables differ."""

    eta: dict[str, Tensor]
    weight_decay: dict[str, Tensor]
    momentum: Tensor

    @classmethod
    def of(cls, runs: Runs, tables: Mapping[str, str], device: torch.device, dtype: torch.dtype) -> RunRates:
        """Those of some runs; ``tables`` says which of the two rates, ``y`` or ``z``, a table is trained with."""

        def put(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.array(values)).to(device, dtype)

        return cls(
            {name: put(getattr(runs, f"eta_{kind}")) for name, kind in tables.items()},
            {name: put(getattr(runs, f"weight_decay_{kind}")) for name, kind in tables.items()},
            put(runs.momentum),
        )

    def scaled(self, factors: Mapping[str, float]) -> RunRates:
        """With the schedules' factors on the rates."""
        return replace(self, eta={name: eta * factors[name] for name, eta in self.eta.items()})

    def take(self, runs: Tensor) -> RunRates:
        """Those of some of the runs."""
        eta, decay = ({name: t[runs] for name, t in each.items()} for each in (self.eta, self.weight_decay))
        return RunRates(eta, decay, self.momentum[runs])


def one_step(
    state: State,
    directions: Mapping[str, Tensor],
    rates: RunRates,
    step: int | Tensor,
    optimizers: Mapping[str, Optimizer],
    *,
    limits: Mapping[str, float],
    multiplicity: Mapping[str, Tensor],
) -> State:
    """The state after update number ``step`` along ``directions``, the ascent direction of each table.

    A run of which a table would pass its limit, or become non-finite, stays as it is and is marked. ``multiplicity``
    is for tables whose columns stand for several.
    """
    tables, moments, finite = {}, {}, state.alive
    for name, table in state.tables.items():
        tables[name], moments[name] = optimizers[name].update(
            table, directions[name], state.moments[name], step=step, eta=rates.eta[name], momentum=rates.momentum,
            weight_decay=rates.weight_decay[name], multiplicity=multiplicity.get(name),
        )  # fmt: skip
        finite = finite & (_size(tables[name]) < limits[name])
    now = step.to(torch.int64) if isinstance(step, Tensor) else step
    failed_step = torch.where(state.alive & ~finite, now, state.failed_step)
    keep = failed_step < 0
    for name, table in state.tables.items():
        tables[name] = torch.where(keep.reshape(-1, *[1] * (table.ndim - 1)), tables[name], table)
    return State(state.step + 1, tables, moments, failed_step)


def _size(table: Tensor) -> Tensor:
    """The largest absolute value in each run's table, or NaN; (R,)."""
    return torch.linalg.vector_norm(table.flatten(1), ord=torch.inf, dim=1)
