"""What a store has from the beginning: its folders, the coordinates of all runs, and empty arrays for what comes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scansnap.results.trajectory import identity, versions
from scansnap.runs import run_fields
from scansnap.storage.checksums import NAME, PARTS, ChecksumTable
from scansnap.storage.objects import of_bytes
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Plan
from scansnap.sweep.schema import Schema, StoredVariable, summary
from scansnap.sweep.store.arrays import Memory, create_array
from scansnap.sweep.work import HEALTH

FORMAT, FORMER = "scansnap sweep 2", "scansnap sweep 1"
ROOT_CHUNK = 1 << 16  # runs in a chunk of the root's arrays
DONE = StoredVariable("done", ("run",), (), np.dtype(bool), {"long_name": "whether the run's group is complete"})
_TOGETHER = "consolidated_metadata"

ClassSetNumber = int | None  # None: the root


def set_name(s: int) -> str:
    """The folder of a class set."""
    return f"classes-{s}.zarr"


def prefix_of(s: ClassSetNumber) -> str:
    """What the names of a class set's objects begin with, or those of the root."""
    return "" if s is None else f"{set_name(s)}/"


def metadata(document: bytes, *, complete: bool) -> bytes:
    """The ``zarr.json`` of a group that says whether it and the groups in it are complete."""
    own = json.loads(document)
    members = own[_TOGETHER]["metadata"].values()
    for group in (own, *(member for member in members if member["node_type"] == "group")):
        group["attributes"]["complete"] = int(complete)
    return json.dumps(own, indent=2, sort_keys=True).encode()


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
    def summary(self) -> tuple[StoredVariable, ...]:
        """The root's variables."""
        return summary(self.schemas[0].variables)

    def grown(self, s: ClassSetNumber) -> tuple[StoredVariable, ...]:
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

    # --- in the store ------------------------------------------------------------------------------------------

    def create(self) -> dict[str, bytes]:
        """All objects of the frame, by name."""
        import zarr

        settings = self.sweep.settings.to_dict()
        if math.isinf(settings["context"]):
            settings["context"] = "inf"  # JSON has no infinity
        common: Any = {"complete": 0, "settings": json.dumps({**settings, "device": self.plan.device})}
        own = {"format": FORMAT, "sweep": self.sweep.text, "plan": self.plan.to_json(),
               "versions": json.dumps(versions())}  # fmt: skip
        memory = Memory()
        root = zarr.open_group(memory.store, mode="w", zarr_format=3, attributes=common | own)
        steps: Any = {"step": (("step",), np.array(self.sweep.settings.record, dtype=np.int64), {})}
        self._fill(root, None, range(len(self.schemas)), steps, min(len(self.sweep), ROOT_CHUNK))
        for s, one in enumerate(self.sweep.class_sets):
            own = identity(one.classes) | {"knobs": json.dumps(one.knobs)}
            group = root.create_group(set_name(s), attributes=common | own)
            self._fill(group, s, [s], self.schemas[s].fixed, self.plan.sizes[s])
        contents = memory.take()
        plain = {name: json.loads(content) for name, content in contents.items() if name.endswith("zarr.json")}
        for place in self.places:
            contents |= self._sealed(place, contents, _consolidated(plain, prefix_of(place)))
        return contents

    def _sealed(self, s: ClassSetNumber, contents: Mapping[str, bytes], document: dict[str, Any]) -> dict[str, bytes]:
        """The metadata of a class set or the root, and the table that vouches for all that it begins with."""
        prefix = prefix_of(s)
        now, other = (metadata(json.dumps(document).encode(), complete=one) for one in (False, True))
        inside = tuple(map(set_name, range(len(self.schemas)))) if s is None else ()
        files = {name.removeprefix(prefix): of_bytes(content) for name, content in contents.items()
                 if name.startswith(prefix) and self.is_fixed(s, name.removeprefix(prefix))}  # fmt: skip
        table = ChecksumTable(files | {"zarr.json": of_bytes(now)}, {"zarr.json": of_bytes(other)}, True, inside)
        return {f"{prefix}zarr.json": now, f"{prefix}{NAME}": table.to_json().encode()}

    def _fill(self, group: Any, s: ClassSetNumber, sets: Sequence[int], fixed: dict[str, Any], chunk: int) -> None:
        """The arrays of a folder with the runs of these class sets: what is known of them, and room for the rest."""
        coords, n = self._coords(sets), self.plan.n_runs
        create_array(group, "run", ("run",), np.arange(sets[0] * n, (sets[-1] + 1) * n), min(n * len(sets), ROOT_CHUNK))
        for name, values in coords.items():
            create_array(group, name, ("run",), values, min(len(values), ROOT_CHUNK))
        for name, (dims, values, attrs) in fixed.items():
            create_array(group, name, dims, values, attrs=attrs)
        for v in self.grown(s):
            shape = (n * len(sets), *v.shape)
            create_array(group, v.name, v.dims, shape, chunk, dtype=v.dtype, attrs=v.attrs)
        labels = [name for name, (dims, *_) in fixed.items() if dims != (name,)]
        health = [v.name for v in self.grown(s) if v.name in HEALTH]
        group.attrs["coordinates"] = " ".join([*coords, *labels, *health, DONE.name])

    def _coords(self, sets: Sequence[int]) -> dict[str, np.ndarray]:
        """What is known of each run of these class sets beforehand."""
        n, found = self.plan.n_runs, self.schemas[0]
        taken = {*run_fields(), "run", "class_set", "done", *found.fixed, *(v.name for v in found.variables)}
        runs, ones = self.sweep.axes.take(0, n), [self.sweep.class_sets[s] for s in sets]
        coords = {name: np.tile(getattr(runs, name), len(sets)) for name in self.sweep.axes.coordinates}
        coords["class_set"] = np.repeat(np.array(sets), n)
        for knob in dict.fromkeys(name for one in ones for name in one.knobs):
            values = np.array([one.knobs.get(knob, np.nan) for one in ones])
            coords[f"classes_{knob}" if knob in taken else knob] = np.repeat(values, n)  # seed is the runs'
        return coords


def _consolidated(plain: Mapping[str, dict[str, Any]], prefix: str) -> dict[str, Any]:
    """The metadata of a group that repeats its members', so that xarray opens it in one read. Sorted by name, which
    Zarr's own does not promise: the same sweep has the same bytes."""
    members = {
        name.removeprefix(prefix).removesuffix("/zarr.json"): {k: v for k, v in one.items() if k != _TOGETHER}
        for name, one in sorted(plain.items())
        if name.startswith(prefix) and name != f"{prefix}zarr.json"
    }
    together = {"kind": "inline", "must_understand": False, "metadata": members}
    return {**plain[f"{prefix}zarr.json"], _TOGETHER: together}
