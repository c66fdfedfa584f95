"""One group of runs, from rates to arrays: what every worker does, on this machine or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.progress import Progress
from scansnap.runs import Runs
from scansnap.sweep.axes import Axes
from scansnap.sweep.measures import Measure

Arrays = dict[str, np.ndarray]  # each with the run dimension first
HEALTH = ("status", "failed_step")  # coordinates of a trajectory that only running it tells


@dataclass(frozen=True)
class Job:
    """What all groups have in common, apart from the classes; small, and sent to each worker once."""

    axes: Axes
    options: dict[str, Any]
    stored: tuple[str, ...]
    measures: tuple[Measure, ...]
    device: str


def run_group(job: Job, classes: SequenceClasses, start: int, stop: int, progress: Progress | None = None) -> Arrays:
    """Simulate and measure runs start … stop − 1; Ctrl-C raises, as half a group is of no use."""
    data = _simulated(job, classes, job.axes.take(start, stop), progress)
    found = results(data, classes, job.stored, job.measures)
    return {str(name): np.ascontiguousarray(v.values) for name, v in found.variables.items() if v.dims[:1] == ("run",)
            and (name in found.data_vars or name in HEALTH)}  # fmt: skip


def _simulated(job: Job, classes: SequenceClasses, runs: Runs, progress: Progress | None) -> xr.Dataset:
    return simulate(classes, runs, **job.options, device=job.device, progress=progress)


def results(
    data: xr.Dataset, classes: SequenceClasses, stored: tuple[str, ...], measures: tuple[Measure, ...]
) -> xr.Dataset:
    """The stored variables of a trajectory and what was measured on it, run first; coordinates as the trajectory's.

    Dimensions and coordinates that a measure brings of its own get its name before theirs: ``fates_pair`` and, along
    it, ``fates_seq_class`` and ``fates_token``.
    """
    found = data[list(stored)]
    for one in measures:
        seen = one(data, classes)
        for name in seen.data_vars:
            if name in found.variables:
                raise InputError(f"the name of the measured variable {name!r}", name, "used once: rename the measure")
        own = {dim: f"{one.name}_{dim}" for dim in seen.dims if dim not in data.dims}
        new: dict[str, Any] = {}
        for name, v in seen.variables.items():
            plain = (tuple(own.get(dim, dim) for dim in v.dims), v.values, v.attrs)
            if name in seen.data_vars:
                new[str(name)] = plain
            elif own.keys() & set(v.dims):
                new[own.get(name, f"{one.name}_{name}")] = plain
        found = found.assign(new).set_coords([name for name in new if name not in seen.data_vars])
    return found.transpose("run", "step", ..., missing_dims="ignore")
