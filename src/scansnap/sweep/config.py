"""A sweep as a TOML file, read and checked before anything starts.

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
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError, check_choice, check_integer, check_keys
from scansnap.classes import PRESETS, SequenceClasses
from scansnap.classes.toml import load_table
from scansnap.dynamics.settings import Settings, arguments, run_settings, settings
from scansnap.runs import SHARED
from scansnap.settings import SettingSpec, settings_of
from scansnap.sweep.axes import Axes
from scansnap.sweep.measures import Measure, measures

TABLES = ("classes", "grid", "run", "measure", "groups")
_STORED = ("loss", "entropy")


@dataclass(frozen=True)
class ClassSet:
    """One set of classes and the numbers that tell it from the others."""

    classes: SequenceClasses
    knobs: dict[str, float | int]


@dataclass(frozen=True)
class Sweep:
    """What a sweep file says: class sets × axes, all with the same settings and measures."""

    class_sets: tuple[ClassSet, ...]
    axes: Axes
    options: dict[str, Any]  # of simulate; what the measures need is recorded too
    settings: Settings  # the same, checked
    stored: tuple[str, ...]  # variables of the trajectory that go into the store
    measures: tuple[Measure, ...]
    most_runs: int | None  # in a group
    text: str  # the file's content as canonical JSON: what decides the numbers

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
            raise InputError(f"the table [{name}] in {where}", None, "given")
    for name in TABLES[1:]:
        if not isinstance(table.get(name, {}), dict):
            raise InputError(name, table[name], f"a table: [{name}]")
    run = dict(table.get("run", {}))
    check_keys("[run]", run, (*run_settings(), *SHARED))
    axes_table = dict(table["grid"])
    for name in SHARED:
        if name in run:
            if name in axes_table:
                raise InputError(f"{name} in [run]", run[name], "left out, since [grid] gives it")
            if isinstance(run[name], list | str):
                raise InputError(f"{name} in [run]", run[name], "one number (several belong to [grid])")
            axes_table[name] = run.pop(name)
    wanted = measures(table.get("measure", {}))
    stored = settings({"variables": run.get("variables", _STORED)}).variables
    if repeated := [one.name for one in wanted if one.name in stored]:
        raise InputError("the name in [measure]", repeated[0], "another one, since a variable of the run has it")
    needed = dict.fromkeys((*stored, *(name for one in wanted for name in one.needs)))
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
        measures=wanted,
        most_runs=most_runs,
        text=json.dumps(table, sort_keys=True),
    )


def _class_sets(given: Any) -> tuple[ClassSet, ...]:
    tables = given if isinstance(given, list) else [given]
    if not tables or not all(isinstance(one, dict) for one in tables):
        raise InputError("classes", given, "a table [classes], or several [[classes]]")
    found = []
    for table in tables:
        specs = settings_of(PRESETS[check_choice("preset", table["preset"], PRESETS)]) if "preset" in table else {}
        lists = {name: value for name, value in table.items()
                 if "preset" in table and _is_axis(specs.get(name), value)}  # fmt: skip
        for name, value in lists.items():
            if not value:
                raise InputError(f"{name} in [classes]", "empty", "at least one value")
        for point in product(*lists.values()):
            one = table | dict(zip(lists, point, strict=True))
            knobs = {name: v for name, v in one.items() if isinstance(v, int | float) and "preset" in table}
            found.append(ClassSet(SequenceClasses.from_table(one, "[classes]"), knobs))
    return tuple(found)


def _is_axis(setting: SettingSpec | None, value: Any) -> bool:
    if setting is not None and setting.kind == "text":  # a list is one value of it
        return isinstance(value, list) and any(isinstance(one, list) for one in value)
    return isinstance(value, list)
