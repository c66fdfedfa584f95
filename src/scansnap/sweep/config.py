"""Read and check the TOML file of a sweep.

::

    [classes]                    # as in a run file; a setting of a preset may be a list: one class set for each
    preset = "syn-medium"
    n_queries = [1, 3, 5, 10]

    [grid]                       # rates and seeds; the runs are the outer product, for every class set
    eta_z = [0.5, 1, 2, 3]
    ratio = [1, 2, 5, 10]
    seed = "0:10"

    [run]                        # settings of simulate, the same for all runs
    steps = 100
    momentum = 0.9
    record = [100]
    variables = ["entropy"]      # what is stored of the trajectory [default: loss and entropy]

    [measure]                    # functions of scansnap.measure, with their options (see measures.py)
    recall = { threshold = 0.01 }

    [groups]                     # optional
    runs = 1000                  # at most so many runs in one group

``[[classes]]`` (an array of tables) gives class sets that differ in more than the settings of one preset.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError, check_choice, check_integer, check_keys, digits
from scansnap.classes import PRESETS, SequenceClasses
from scansnap.classes.toml import load_table
from scansnap.dynamics.settings import Settings, arguments, run_settings, settings
from scansnap.runs import DECAYS, SHARED, Runs, grid, run_fields, values_of
from scansnap.settings import SettingSpec, settings_of
from scansnap.sweep.measures import Measure, measures

_RANGE = "a number, a list of numbers, or for integers a range such as '0:10' (10 not included)"


@dataclass(frozen=True)
class Axes:
    """Values of each axis, slowest first; the runs are their outer product.

    The seed varies slowest, whatever the order in the file. So neighbouring runs share their data, which a slice
    samples once.
    """

    values: dict[str, np.ndarray]

    @classmethod
    def of(cls, table: dict[str, Any]) -> Axes:
        """From the ``[grid]`` table, checked as `scansnap.grid` checks it."""
        check_keys("[grid]", table, run_fields())
        # grid refuses fields that do not go together
        grid(**{name: 1 if name in ("eta_y", "eta_z", "ratio") else 0 for name in table})
        values = {name: _values(name, value) for name, value in table.items()}
        seeds = {"seed": values.pop("seed")} if "seed" in values else {}
        if "ratio" in values and not math.isfinite(float(values["ratio"].max()) * float(values["eta_z"].max())):
            raise InputError("ratio · eta_z", math.inf, "a finite number")
        return cls(seeds | values)

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.values.values())

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Run fields in the store: one weight decay, or one per table if the file sets them separately."""
        apart = any(name in self.values for name in DECAYS)
        return tuple(name for name in run_fields() if name not in (("weight_decay",) if apart else DECAYS))

    @property
    def decays(self) -> bool:
        """Whether any run has weight decay."""
        return any(np.any(self.values[name]) for name in ("weight_decay", *DECAYS) if name in self.values)

    @property
    def n_seeds(self) -> int:
        return len(self.values.get("seed", [0]))

    def take(self, start: int, stop: int) -> Runs:
        """Runs start … stop − 1."""
        at = np.unravel_index(np.arange(start, stop), [len(v) for v in self.values.values()])
        column = {name: v[i] for (name, v), i in zip(self.values.items(), at, strict=True)}
        return replace(Runs.of(column), fields_set=SHARED)


def _values(name: str, value: Any) -> np.ndarray:
    if isinstance(value, str):
        low, colon, high = value.partition(":")
        first, last = digits(low.strip()), digits(high.strip())
        if not colon or first is None or last is None or first >= last:
            raise InputError(name, value, _RANGE)
        value = np.arange(first, last)
        if name == "seed":
            return value
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, list | dict) for item in value)):
        raise InputError(name, value, _RANGE)
    return np.array(values_of(run_fields()[name], value))


TABLES = ("classes", "grid", "run", "measure", "groups")
_STORED = ("loss", "entropy")


@dataclass(frozen=True)
class ClassSet:
    """One set of classes, and the numbers by which it differs from the others."""

    classes: SequenceClasses
    settings: dict[str, float | int]  # of the preset


@dataclass(frozen=True)
class Sweep:
    """A sweep: class sets × axes with common settings and measures."""

    class_sets: tuple[ClassSet, ...]
    axes: Axes
    options: dict[str, Any]  # of simulate; what the measures need is recorded too
    settings: Settings  # the same, checked
    stored: tuple[str, ...]  # variables of the trajectory that go into the store
    measures: tuple[Measure, ...]
    most_runs: int | None  # in a group
    text: str  # the file's content as canonical JSON, which determines the numbers

    def __len__(self) -> int:
        return len(self.class_sets) * len(self.axes)


def read(path: str | Path) -> Sweep:
    """A sweep from its TOML file."""
    return from_table(load_table(path), where=str(path))


def from_table(table: dict[str, Any], where: str = "the sweep") -> Sweep:
    """A sweep from the parsed file."""
    check_keys(where, table, TABLES)
    for name in ("classes", "grid"):
        if name not in table:
            raise InputError(f"[{name}]", None, f"a table in {where}")
    for name in TABLES[1:]:
        if not isinstance(table.get(name, {}), dict):
            raise InputError(name, table[name], f"a table [{name}]")
    run = dict(table.get("run", {}))
    check_keys("[run]", run, (*run_settings(), *SHARED))
    axes_table = dict(table["grid"])
    for name in SHARED:
        if name in run:
            if name in axes_table:
                raise InputError(f"{name} in [run]", run[name], "no value", "[grid] has it too")
            if isinstance(run[name], list | str):
                raise InputError(f"{name} in [run]", run[name], "one number", "put several into [grid]")
            axes_table[name] = run.pop(name)
    functions = measures(table.get("measure", {}))
    stored = settings({"variables": run.get("variables", _STORED)}).variables
    if repeated := [measure.name for measure in functions if measure.name in stored]:
        raise InputError("name in [measure]", repeated[0], "a name that no variable of the run has")
    needed = dict.fromkeys((*stored, *(name for measure in functions for name in measure.needs)))
    options = {**run, "variables": tuple(needed)}
    checked, axes = settings(options), Axes.of(axes_table)
    checked.refuse_idle_momentum(axes.values.get("momentum", np.zeros(1)))
    groups = table.get("groups", {})
    check_keys("[groups]", groups, ("runs",))
    most_runs = check_integer("runs in [groups]", groups["runs"], least=1) if "runs" in groups else None
    return Sweep(
        class_sets=_class_sets(table["classes"]),
        axes=axes,
        options=arguments(options),
        settings=checked,
        stored=stored,
        measures=functions,
        most_runs=most_runs,
        text=json.dumps(table, sort_keys=True),
    )


def _class_sets(value: Any) -> tuple[ClassSet, ...]:
    tables = value if isinstance(value, list) else [value]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError("classes", value, "a table [classes], or several [[classes]]")
    class_sets = []
    for table in tables:
        specs = settings_of(PRESETS[check_choice("preset", table["preset"], PRESETS)]) if "preset" in table else {}
        lists = {name: values for name, values in table.items()
                 if "preset" in table and _is_axis(specs.get(name), values)}  # fmt: skip
        for name, values in lists.items():
            if not values:
                raise InputError(f"{name} in [classes]", "empty", "at least one value")
        for point in product(*lists.values()):
            single = table | dict(zip(lists, point, strict=True))
            numbers = {name: v for name, v in single.items() if isinstance(v, int | float) and "preset" in table}
            class_sets.append(ClassSet(SequenceClasses.from_table(single, "[classes]"), numbers))
    return tuple(class_sets)


def _is_axis(spec: SettingSpec | None, value: Any) -> bool:
    if spec is not None and spec.kind == "text":  # a list is a single value
        return isinstance(value, list) and any(isinstance(item, list) for item in value)
    return isinstance(value, list)
