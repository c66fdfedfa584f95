"""The results of a sweep: one Zarr store, written group by group, whole after any interruption.

::

    sweep.zarr/                 all runs: coordinates, and every variable along run and step (those by class as means)
      classes-0.zarr/           the first class set in full; itself a trajectory: scansnap.load reads it
      classes-1.zarr/           …

Runs are numbered class set by class set; ``run`` in ``classes-1.zarr`` goes on where ``classes-0.zarr`` ends. A group
is one chunk of runs of its class set, so no two groups ever write to the same file. When all chunks of a group
are on disk (synced, at most once a second), and only then, its chunk of ``done`` is put in place. What has no such
mark is deleted before it is made again. The root's summary is computed from the class sets when all groups are
through. Nothing in the store depends on when, where or in which order it was made.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.storage import remove, replacing
from scansnap.sweep.config import Sweep
from scansnap.sweep.metadata import create_array, seal
from scansnap.sweep.plan import Group, Plan
from scansnap.sweep.schema import PER_RUN, Schema, Variable, class_mean, summary
from scansnap.sweep.work import Arrays
from scansnap.trajectory import identity, versions

FORMAT = "scansnap sweep 1"
_SYNC_SECONDS = 1.0  # what a killed process can lose of finished groups
_ROOT_CHUNK = 1 << 16  # runs in a chunk of the root's arrays
_DONE = Variable("done", ("run",), (), np.dtype(bool), {"long_name": "whether the run's group is complete"})


class StoreError(Exception):
    """The disk does not take the results."""


class Store:
    """A sweep's store on disk, for one writer."""

    def __init__(self, path: Path, sweep: Sweep, plan: Plan, schemas: tuple[Schema, ...]) -> None:
        self.path, self.sweep, self.plan, self.schemas = path, sweep, plan, schemas
        self._unmarked: list[Group] = []  # written, not yet known to be on the disk
        self._synced = 0.0

    # --- beginning and ending ------------------------------------------------------------------------------

    def create(self) -> None:
        """An empty store in place of whatever was there, at once."""
        import zarr

        try:
            with replacing(self.path) as scratch:
                attrs: Any = {"format": FORMAT, "complete": 0, "sweep": self.sweep.text, "plan": self.plan.to_json(),
                         "settings": self._settings(), "versions": json.dumps(versions())}  # fmt: skip
                root = zarr.open_group(scratch, mode="w", attributes=attrs)
                self._create_root(root)
                for s in range(len(self.schemas)):
                    self._create_set(root, s)
                for folder in self._folders(scratch):
                    seal(folder, complete=False)
                _sync(scratch)
        except OSError as error:
            raise InputError("--out", str(self.path), f"a place that can be written ({error})") from error

    def _create_root(self, root: Any) -> None:
        total = len(self.sweep)
        chunk = min(total, _ROOT_CHUNK)
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
        health = [v.name for v in self._summary() if v.name in ("status", "failed_step")]
        root.attrs["coordinates"] = " ".join([*coords, *health, "done"])
        for one in (*self._summary(), _DONE):
            create_array(root, one.name, one.dims, (total, *one.shape), chunk, dtype=one.dtype, attrs=one.attrs)

    def _create_set(self, root: Any, s: int) -> None:
        one, found, n = self.sweep.class_sets[s], self.schemas[s], self.plan.n_runs
        knobs = {self._knob(name): np.full(n, value) for name, value in one.knobs.items()}
        coords = self._rates(1) | {"class_set": np.full(n, s)} | knobs
        names = [*coords, *(name for name, (dims, *_) in found.fixed.items() if dims != (name,)), "status",
                 "failed_step", "done"]  # fmt: skip
        group = root.create_group(_name(s), attributes={
            **identity(one.classes), "complete": 0, "settings": self._settings(),
            "knobs": json.dumps(one.knobs), "coordinates": " ".join(names),
        })  # fmt: skip
        chunk = min(n, _ROOT_CHUNK)
        create_array(group, "run", ("run",), np.arange(s * n, (s + 1) * n), chunk)
        for name, values in coords.items():
            create_array(group, name, ("run",), values, chunk)
        for name, (dims, values, attrs) in found.fixed.items():
            create_array(group, name, dims, values, attrs=attrs)
        for v in (*found.variables, _DONE):
            create_array(group, v.name, v.dims, (n, *v.shape), self.plan.sizes[s], dtype=v.dtype, attrs=v.attrs)

    def finish(self) -> bool:
        """Write the root's summary; True, and the store says so, if no group is missing."""
        self.flush()
        with self._disk("the summary"):
            done = [self._done(s) for s in range(len(self.schemas))]
            self._summarise()
            complete = all(len(chunks) == -(-self.plan.n_runs // size)
                           for chunks, size in zip(done, self.plan.sizes, strict=True))  # fmt: skip
            _sync(self.path)  # what is sealed is whole
            for folder in self._folders(self.path):
                seal(folder, complete=complete)
            _sync(self.path)
            return complete

    def _summarise(self) -> None:
        """The root's arrays, chunk by chunk, from the class sets'."""
        import zarr

        root: Any = zarr.open_group(self.path, mode="r+", use_consolidated=False)
        n, total = self.plan.n_runs, len(self.sweep)
        by_class = {v.name: v.dims.index("class") for v in self.schemas[0].variables if "class" in v.dims}
        for one in (*self._summary(), _DONE):
            for first in range(0, total, _ROOT_CHUNK):
                last, parts = min(first + _ROOT_CHUNK, total), []
                for s in range(first // n, (last - 1) // n + 1):
                    source = root[f"{_name(s)}/{one.name}"]
                    values = np.asarray(source[max(first - s * n, 0) : min(last - s * n, n)])
                    axis = by_class.get(one.name)
                    parts.append(values if axis is None else class_mean(values, axis))
                root[one.name][first:last] = np.concatenate(parts)

    # --- groups --------------------------------------------------------------------------------------------

    def missing(self) -> list[Group]:
        """Groups without a mark, after removing whatever a stopped writer left of them."""
        with self._disk("what was left unfinished"):
            done = [self._done(s) for s in range(len(self.schemas))]
            for s, chunks in enumerate(done):
                for v in (*self.schemas[s].variables, _DONE):
                    folder = self.path / _name(s) / v.name / "c"
                    for place in folder.iterdir() if folder.exists() else ():
                        if not place.name.isdecimal() or int(place.name) not in chunks:
                            remove(place)
            for v in (*self._summary(), _DONE):  # made again from the class sets
                remove(self.path / v.name / "c")
        return [group for group in self.plan.groups() if group.chunk not in done[group.class_set]]

    def write(self, group: Group, arrays: Arrays) -> None:
        """All chunks of a group; its mark follows at the latest with :meth:`flush`."""
        import zarr

        folder, variables = self.path / _name(group.class_set), self.schemas[group.class_set].variables
        with self._disk(str(group)):
            try:
                members: Any = zarr.open_group(folder, mode="r+", use_consolidated=False)
                for v in variables:
                    members[v.name][group.start : group.stop] = arrays[v.name]
            except OSError:
                for v in variables:  # give its room back
                    remove(folder / v.name / "c" / str(group.chunk))
                raise
        self._unmarked.append(group)
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Put everything on the disk, then mark what was written until now as done."""
        with self._disk("the marks of finished groups"):
            if self._unmarked:
                _sync(self.path)
            while self._unmarked:
                group = self._unmarked[-1]
                place = self.path / _name(group.class_set) / _DONE.name / "c" / str(group.chunk)
                with replacing(place) as scratch:
                    scratch.write_bytes(self._mark(group.class_set))
                self._unmarked.pop()
            self._synced = time.monotonic()

    def _mark(self, s: int) -> bytes:
        return bytes([1]) * self.plan.sizes[s]  # a chunk of true, uncompressed

    def _done(self, s: int) -> set[int]:
        """Chunks of a class set that are marked."""
        folder, mark = self.path / _name(s) / _DONE.name / "c", self._mark(s)
        files = [place for place in folder.iterdir() if place.name.isdecimal()] if folder.exists() else []
        return {int(place.name) for place in files if place.read_bytes() == mark}

    @contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"{what} could not be written to {self.path} ({reason})") from error

    # --- parts ---------------------------------------------------------------------------------------------

    def _summary(self) -> tuple[Variable, ...]:
        return summary(self.schemas[0].variables)

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

    def _folders(self, path: Path) -> Iterable[Path]:
        """Zarr groups, the root last: its consolidated metadata repeats the others'."""
        return [*(path / _name(s) for s in range(len(self.schemas))), path]

    @property
    def n_bytes(self) -> int:
        """Size before compression."""
        in_sets = sum(self.plan.n_runs * (found.run_bytes + 80) for found in self.schemas)
        return in_sets + len(self.sweep) * (sum(v.run_bytes for v in self._summary()) + 80)


def stored_plan(path: Path, sweep: Sweep) -> tuple[Plan, dict[str, str]]:
    """The plan of the store to be resumed, and the versions it was begun with; refuses another sweep's."""
    try:
        attrs = json.loads((path / "zarr.json").read_text())["attributes"]
        if attrs["format"] != FORMAT:
            raise KeyError(FORMAT)
        stored, plan, made_with = json.loads(attrs["sweep"]), Plan.from_json(attrs["plan"]), attrs["versions"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("--out", str(path), f"a store of the format '{FORMAT}' to resume") from None
    if attrs["sweep"] != sweep.text:
        given = json.loads(sweep.text)
        tables = [name for name in sorted(stored.keys() | given.keys()) if stored.get(name) != given.get(name)]
        differs = ", ".join(f"[{name}]" for name in tables)
        raise InputError("the sweep to resume", f"changed in {differs}",
                         f"the one that {path} was begun with (or say --overwrite to start again)")  # fmt: skip
    return plan, json.loads(made_with)


def _name(s: int) -> str:
    return f"classes-{s}.zarr"


def _sync(path: Path) -> None:
    """All that was written to the file system of ``path`` to its disk: one call, however many files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux
        if syncfs is None:
            os.sync()
        elif syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)
