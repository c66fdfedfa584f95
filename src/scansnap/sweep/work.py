"""Simulate and measure one group of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.progress import Progress
from scansnap.sweep.config import Axes
from scansnap.sweep.measures import Measure

Arrays = dict[str, np.ndarray]  # each with the run dimension first
HEALTH = ("status", "failed_step")  # coordinates of a trajectory that are known only after the run


@dataclass(frozen=True)
class SweepJob:
    """Settings that all groups share, apart from the classes; sent to each worker once."""

    axes: Axes
    options: dict[str, Any]
    stored: tuple[str, ...]
    measures: tuple[Measure, ...]
    device: str


def run_group(
    job: SweepJob, classes: SequenceClasses, start: int, stop: int, progress: Progress | None = None
) -> Arrays:
    """Simulate and measure runs start … stop − 1; Ctrl-C raises."""
    data = simulate(classes, job.axes.take(start, stop), **job.options, device=job.device, progress=progress)
    stored = results(data, classes, job.stored, job.measures)
    return {str(name): np.ascontiguousarray(v.values) for name, v in stored.variables.items()
            if v.dims[:1] == ("run",) and (name in stored.data_vars or name in HEALTH)}  # fmt: skip


def results(
    data: xr.Dataset, classes: SequenceClasses, stored: tuple[str, ...], measures: tuple[Measure, ...]
) -> xr.Dataset:
    """The stored variables of a trajectory and its measures, with run as the first dimension.

    Names of a measure's own dimensions and coordinates begin with its name: ``fates_pair``, ``fates_token``.
    """
    result = data[list(stored)]
    for measure in measures:
        measured = measure(data, classes)
        for name in measured.data_vars:
            if name in result.variables:
                raise InputError(f"{measure.name} in [measure]", str(name), "a variable that no other measure has",
                                 "rename the measure")  # fmt: skip
        dims = {dim: f"{measure.name}_{dim}" for dim in measured.dims if dim not in data.dims}
        new: dict[str, Any] = {}
        for name, v in measured.variables.items():
            renamed = (tuple(dims.get(dim, dim) for dim in v.dims), v.values, v.attrs)
            if name in measured.data_vars:
                new[str(name)] = renamed
            elif dims.keys() & set(v.dims):
                new[dims.get(name, f"{measure.name}_{name}")] = renamed
        result = result.assign(new).set_coords([name for name in new if name not in measured.data_vars])
    return result.transpose("run", "step", ..., missing_dims="ignore")
