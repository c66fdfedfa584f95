"""Names, dimensions and types of the variables that the store will have of a class set.

They come from one run of zero steps, whose record is repeated to the length of a real one and measured as real runs
are. So an option that a measure refuses is refused before anything starts.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.dynamics.simulate import simulate
from scansnap.runs import run_fields
from scansnap.sweep.config import ClassSet, Sweep
from scansnap.sweep.work import results


@dataclass(frozen=True)
class StoredVariable:
    """An array of the store along run and perhaps other dimensions."""

    name: str
    dims: tuple[str, ...]  # run first
    shape: tuple[int, ...]  # of one run: without the run dimension
    dtype: np.dtype  # object: text
    attrs: dict[str, Any]

    @property
    def run_bytes(self) -> int:
        return math.prod(self.shape) * (16 if self.dtype == object else self.dtype.itemsize)


@dataclass(frozen=True)
class Schema:
    """The variables of a class set, and the coordinates that are the same for all runs."""

    variables: tuple[StoredVariable, ...]
    fixed: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]  # dims, values, attributes
    recorded_bytes: int  # all records of a run, stored or not
    measuring_seconds: float  # for one run, of the measures that go run by run

    @property
    def run_bytes(self) -> int:
        return sum(variable.run_bytes for variable in self.variables)


def make_schema(sweep: Sweep, class_set: ClassSet) -> Schema:
    """The schema of one class set."""
    options = sweep.options | {"steps": 0, "record": [0]}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # means over nothing
        data = simulate(class_set.classes, sweep.axes.take(0, 1), **options, device="cpu")
        steps = np.array(sweep.settings.record, dtype=np.int64)
        data = data.isel(step=np.zeros(len(steps), dtype=int)).assign_coords(step=steps)
        stored = results(data, class_set.classes, sweep.stored, sweep.measures)
        began = time.perf_counter()
        results(data, class_set.classes, (), tuple(m for m in sweep.measures if m.one_by_one))
        seconds = time.perf_counter() - began
    variables, fixed = [], {}
    for name, variable in stored.variables.items():
        if name in run_fields() or name == "run":  # known before the runs
            continue
        if variable.dims[:1] == ("run",):
            kind = variable.dtype if variable.dtype.kind in "fiub" else np.dtype(object)
            variables.append(StoredVariable(str(name), tuple(map(str, variable.dims)), variable.shape[1:], kind,
                                      _plain(variable.attrs)))  # fmt: skip
        else:
            fixed[str(name)] = (tuple(map(str, variable.dims)), np.asarray(variable.values), _plain(variable.attrs))
    return Schema(tuple(variables), fixed, sum(v.nbytes for v in data.data_vars.values()), seconds)


def _plain(attrs: dict[Any, Any]) -> dict[str, Any]:
    return {str(k): v.item() if isinstance(v, np.generic) else v for k, v in attrs.items()}


def summary(variables: tuple[StoredVariable, ...]) -> tuple[StoredVariable, ...]:
    """The root's variables: those along run and step, and means over classes."""
    root = []
    for v in variables:
        dims = tuple(dim for dim in v.dims if dim != "seq_class")
        if not set(dims) <= {"run", "step"}:
            continue
        if dims == v.dims:
            root.append(v)
        elif v.dtype.kind == "f":
            shape = tuple(n for dim, n in zip(v.dims[1:], v.shape, strict=True) if dim != "seq_class")
            attrs = v.attrs | {"long_name": "mean over classes: " + v.attrs.get("long_name", v.name)}
            root.append(StoredVariable(v.name, dims, shape, v.dtype, attrs))
    return tuple(root)


def class_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean over classes without NaN (a class without distinct tokens has no entropy)."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return (np.where(known, values, 0).sum(axis) / known.sum(axis)).astype(values.dtype)
