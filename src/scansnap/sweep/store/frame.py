"""What a store has from the beginning: its folders, the coordinates of all runs, and empty arrays for what comes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.results.trajectory import identity, versions
from scansnap.storage.checksums import NAME, PARTS
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Plan
from scansnap.sweep.schema import PER_RUN, Schema, Variable, summary
from scansnap.sweep.store.arrays import create_array

FORMAT, FORMER = "scansnap sweep 2", "scansnap sweep 1"
ROOT_CHUNK = 1 << 16  # runs in a chunk of the root's arrays
DONE = Variable("done", ("run",), (), np.dtype(bool), {"long_name": "whether the run's group is complete"})

ClassSetNumber = int | None  # None: the root


def set_name(s: int) -> str:
    """The folder of a class set."""
    return f"classes-{s}.zarr"


def folder_of(path: Path, s: ClassSetNumber) -> Path:
    """The folder of a class set, or of the root, of the store at ``path``."""
    return path if s is None else path / set_name(s)


@dataclass(frozen=True)
class Frame:
    """All that a sweep and its plan say about a store before any run is made."""

    sweep: Sweep
    plan: Plan
    schemas: tuple[Schema, ...]

    @property
    def places(self) -> list[ClassSetNumber]:
        """The class sets, and None for the root, which repeats what they say of themselves, hence last."""
        return [*range(len(self.schemas)), None]

    @cached_property
    def summary(self) -> tuple[Variable, ...]:
        """The root's variables."""
        return summary(self.schemas[0].variables)

    def grown(self, s: ClassSetNumber) -> tuple[Variable, ...]:
        """The arrays that are filled later, the marks first."""
        return (DONE, *(self.summary if s is None else self.schemas[s].variables))

    def is_fixed(self, s: ClassSetNumber, name: str) -> bool:
        """Whether a file is there from the beginning, rather than of a group, the summary or a table."""
        top, _, rest = name.partition("/")
        if name == NAME or top == PARTS or (s is None and top.startswith("classes-")):
            return False
        return top not in {v.name for v in self.grown(s)} or rest == "zarr.json"

    @property
    def n_bytes(self) -> int:
        """Size of the whole store before compression."""
        in_sets = sum(self.plan.n_runs * (found.run_bytes + 80) for found in self.schemas)
        return in_sets + len(self.sweep) * (sum(v.run_bytes for v in self.summary) + 80)

    # --- on disk -----------------------------------------------------------------------------------------------

    def create(self, folder: Path) -> None:
        """The frame in an empty folder."""
        import zarr

        attrs: Any = {"format": FORMAT, "complete": 0, "sweep": self.sweep.text, "plan": self.plan.to_json(),
                      "settings": self._settings(), "versions": json.dumps(versions())}  # fmt: skip
        root = zarr.open_group(folder, mode="w", attributes=attrs)
        self._create_root(root)
        for s in range(len(self.schemas)):
            self._create_set(root, s)

    def _create_root(self, root: Any) -> None:
        total = len(self.sweep)
        chunk = min(total, ROOT_CHUNK)
        knobs = dict.fromkeys(name for one in self.sweep.class_sets for name in one.knobs)
        n = self.plan.n_runs
        coords: dict[str, np.ndarray] = self._rates(len(self.schemas))
        coords["class_set"] = np.repeat(np.arange(len(self.schemas)), n)
        for name in knobs:
            values = np.array([one.knobs.get(name, np.nan) for one in self.sweep.class_sets])
            coords[self._knob(name)] = np.repeat(values, n)
        create_array(root, "run", ("run",), np.arange(total), chunk)
        create_array(root, "step", ("step",), np.array(self.sweep.settings.record, dtype=np.int64))
        for name, values in coords.items():
            create_array(root, name, ("run",), values, chunk)
        health = [v.name for v in self.summary if v.name in ("status", "failed_step")]
        root.attrs["coordinates"] = " ".join([*coords, *health, "done"])
        for one in self.grown(None):
            create_array(root, one.name, one.dims, (total, *one.shape), chunk, dtype=one.dtype, attrs=one.attrs)

    def _create_set(self, root: Any, s: int) -> None:
        one, found, n = self.sweep.class_sets[s], self.schemas[s], self.plan.n_runs
        knobs = {self._knob(name): np.full(n, value) for name, value in one.knobs.items()}
        coords = self._rates(1) | {"class_set": np.full(n, s)} | knobs
        names = [*coords, *(name for name, (dims, *_) in found.fixed.items() if dims != (name,)), "status",
                 "failed_step", "done"]  # fmt: skip
        group = root.create_group(set_name(s), attributes={
            **identity(one.classes), "complete": 0, "settings": self._settings(),
            "knobs": json.dumps(one.knobs), "coordinates": " ".join(names),
        })  # fmt: skip
        chunk = min(n, ROOT_CHUNK)
        create_array(group, "run", ("run",), np.arange(s * n, (s + 1) * n), chunk)
        for name, values in coords.items():
            create_array(group, name, ("run",), values, chunk)
        for name, (dims, values, attrs) in found.fixed.items():
            create_array(group, name, dims, values, attrs=attrs)
        for v in self.grown(s):
            create_array(group, v.name, v.dims, (n, *v.shape), self.plan.sizes[s], dtype=v.dtype, attrs=v.attrs)

    def _knob(self, knob: str) -> str:
        """A knob's name as a coordinate; ``seed`` and the like are taken by the runs."""
        found = self.schemas[0]
        taken = {*PER_RUN, "run", "class_set", "done", *found.fixed, *(v.name for v in found.variables)}
        return f"classes_{knob}" if knob in taken else knob

    def _rates(self, times: int) -> dict[str, np.ndarray]:
        runs = self.sweep.axes.take(0, self.plan.n_runs)
        return {name: np.tile(getattr(runs, name), times) for name in PER_RUN}

    def _settings(self) -> str:
        found = self.sweep.settings.to_dict()
        context = "inf" if math.isinf(found["context"]) else found["context"]  # JSON has no infinity
        return json.dumps({**found, "context": context, "device": self.plan.device})
