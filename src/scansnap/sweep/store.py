"""The results of a sweep: one Zarr store, written group by group, whole after any interruption.

::

    sweep.zarr/                 all runs: coordinates, and every variable along run and step (those by class as means)
      classes-0.zarr/           the first class set in full; itself a trajectory: scansnap.load reads it
      classes-1.zarr/           …

Runs are numbered class set by class set; ``run`` in ``classes-1.zarr`` goes on where ``classes-0.zarr`` ends. A group
is one chunk of runs of its class set, so no two groups ever write to the same file. When all chunks of a group
are on disk (synced, at most once a second), and only then, their checksums (``checksums/3.json`` of the class set)
and then the group's chunk of ``done`` are put in place. What has no such mark is deleted before it is made again. The
root's summary is computed from the class sets when all groups are through. Nothing in the store depends on when, where
or in which order it was made.

Each folder has its table ``checksums.json`` (see :mod:`scansnap.storage.checksums`), which grows with the store and
is final at its end. A store that is resumed is read as a whole: groups that are damaged are made again, anything
else is refused.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.results.trajectory import identity, versions
from scansnap.storage import checksums, put, remove, replacing, sweep_up
from scansnap.storage.checksums import NAME, PARTS, Damaged, Entry, Table
from scansnap.sweep.config import Sweep
from scansnap.sweep.metadata import create_array, sealed
from scansnap.sweep.plan import Group, Plan
from scansnap.sweep.schema import PER_RUN, Schema, Variable, class_mean, summary
from scansnap.sweep.work import Arrays

FORMAT, FORMER = "scansnap sweep 2", "scansnap sweep 1"
_SYNC_SECONDS = 1.0  # what a killed process can lose of finished groups
_ROOT_CHUNK = 1 << 16  # runs in a chunk of the root's arrays
_DONE = Variable("done", ("run",), (), np.dtype(bool), {"long_name": "whether the run's group is complete"})


class StoreError(Exception):
    """The disk does not take the results."""


class Store:
    """A sweep's store on disk, for one writer."""

    def __init__(self, path: Path, sweep: Sweep, plan: Plan, schemas: tuple[Schema, ...]) -> None:
        self.path, self.sweep, self.plan, self.schemas = path, sweep, plan, schemas
        self.mended: list[str] = []  # groups of a resumed store that were damaged, and what was wrong
        self._unmarked: list[tuple[Group, dict[str, Entry]]] = []  # written, not yet known to be on the disk
        self._synced = 0.0
        self._whole = False  # complete and as it was written: nothing to do

    # --- beginning and ending ------------------------------------------------------------------------------

    def create(self) -> None:
        """An empty store in place of whatever was there, at once."""
        import zarr

        with replacing(self.path) as scratch:
            attrs: Any = {"format": FORMAT, "complete": 0, "sweep": self.sweep.text, "plan": self.plan.to_json(),
                     "settings": self._settings(), "versions": json.dumps(versions())}  # fmt: skip
            root = zarr.open_group(scratch, mode="w", attributes=attrs)
            self._create_root(root)
            for s in range(len(self.schemas)):
                self._create_set(root, s)
            for place in self._places():
                folder = _folder(scratch, place)
                fixed = [name for name in checksums.files_in(folder) if self._is_fixed(place, name)]
                self._seal(scratch, place, checksums.of_files(folder, fixed), complete=False, growing=True)
            _sync(scratch)

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
        """Write the root's summary and the final checksums; True, and the store says so, if no group is missing."""
        if self._whole:
            return True
        self.flush()
        with self._disk("the summary"):
            done = [self._done(s) for s in range(len(self.schemas))]
            self._summarise()
            complete = all(len(chunks) == -(-self.plan.n_runs // size)
                           for chunks, size in zip(done, self.plan.sizes, strict=True))  # fmt: skip
            _sync(self.path)  # what is sealed is whole
            for s in self._places():
                folder = _folder(self.path, s)
                parts = [f"{PARTS}/{name}" for name in checksums.files_in(folder / PARTS)]
                files = self._fixed_files(s) | checksums.of_files(folder, parts if s is not None else self._ends())
                self._seal(self.path, s, files, complete=complete, growing=False)
            _sync(self.path)
            return complete

    def _seal(self, path: Path, s: int | None, files: dict[str, Entry], *, complete: bool, growing: bool) -> None:
        """Put a table and then ``zarr.json``: should the process end between them, the table knows of both."""
        folder = _folder(path, s)
        now, other = (sealed(folder, complete=one).encode() for one in (complete, not complete))
        inside = tuple(map(_name, range(len(self.schemas)))) if growing and s is None else ()
        table = Table({**files, "zarr.json": checksums.of_bytes(now)}, {"zarr.json": checksums.of_bytes(other)},
                      growing, inside)  # fmt: skip
        put(folder / NAME, table.to_json())
        put(folder / "zarr.json", now)

    def _ends(self) -> list[str]:
        """What the end adds to the root: the summary, and the class sets' tables."""
        found = [f"{v.name}/c/{name}" for v in (*self._summary(), _DONE)
                 for name in checksums.files_in(self.path / v.name / "c")]  # fmt: skip
        return [*found, *(f"{_name(s)}/{NAME}" for s in range(len(self.schemas)))]

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
        """Groups without a mark or with damage, after removing what there is of them; refuses a damaged frame."""
        with self._disk("what was left unfinished"):
            self._whole = self._is_whole()
            if self._whole:
                return []
            for s in self._places():
                self._check_frame(s)
            done = [self._sound(s) for s in range(len(self.schemas))]
            for s in reversed(self._places()):  # the root first: it speaks for the others
                self._seal(self.path, s, self._fixed_files(s), complete=False, growing=True)
            for v in (*self._summary(), _DONE):  # made again from the class sets
                remove(self.path / v.name / "c")
            for s, chunks in enumerate(done):
                self._remove_others(s, chunks)
        return [group for group in self.plan.groups() if group.chunk not in done[group.class_set]]

    def _is_whole(self) -> bool:
        """Whether there is nothing to do: complete, and every byte as it was written."""
        for place in (self.path.parent, self.path, *(_folder(self.path, s) for s in range(len(self.schemas)))):
            sweep_up(place)
        try:
            checksums.check("--out", self.path)
        except Damaged:
            return False
        return bool(read_attributes(self.path)["complete"])

    def _check_frame(self, s: int | None) -> None:
        """What a folder had from the beginning: it says what the groups are, so it cannot be made again."""
        folder, remedy = _folder(self.path, s), "--overwrite starts again"
        try:
            table = checksums.read_table("--out", folder)
            checksums.check_files("--out", folder, table, filter(lambda n: self._is_fixed(s, n), table.files),
                                  stopped=True)  # fmt: skip
            for name in checksums.files_in(folder):
                if name not in table.files and self._is_fixed(s, name) and checksums.would_count(name, {}):
                    raise Damaged("--out", folder, name, "is not one of its files")
        except Damaged as found:
            raise Damaged("--out", folder, found.part, found.problem, remedy) from None

    def _fixed_files(self, s: int | None) -> dict[str, Entry]:
        """From the table of a folder, what it had from the beginning."""
        files = checksums.read_table("--out", _folder(self.path, s)).files
        return {name: entry for name, entry in files.items() if self._is_fixed(s, name)}

    def _is_fixed(self, s: int | None, name: str) -> bool:
        """Whether a file is there from the beginning, rather than of a group, the summary or a table."""
        top, _, rest = name.partition("/")
        if name == NAME or top == PARTS or (s is None and top.startswith("classes-")):
            return False
        grown = {v.name for v in (*(self._summary() if s is None else self.schemas[s].variables), _DONE)}
        return top not in grown or rest == "zarr.json"

    def write(self, group: Group, arrays: Arrays) -> None:
        """All chunks of a group; its mark follows at the latest with :meth:`flush`."""
        import zarr

        folder, variables = self.path / _name(group.class_set), self.schemas[group.class_set].variables
        with self._disk(str(group)):
            try:
                members: Any = zarr.open_group(folder, mode="r+", use_consolidated=False)
                for v in variables:
                    members[v.name][group.start : group.stop] = arrays[v.name]
                sums = checksums.of_files(folder, self._chunks(group))
            except OSError:
                for v in variables:  # give its room back
                    remove(folder / v.name / "c" / str(group.chunk))
                raise
        self._unmarked.append((group, sums))
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Put everything on the disk, then the checksums and marks of what was written until now."""
        with self._disk("the marks of finished groups"):
            if self._unmarked:
                _sync(self.path)
            while self._unmarked:
                group, sums = self._unmarked[-1]
                folder, mark = self.path / _name(group.class_set), self._mark(group.class_set)
                place = f"{_DONE.name}/c/{group.chunk}"
                table = Table({**sums, place: checksums.of_bytes(mark)})
                put(folder / PARTS / f"{group.chunk}.json", table.to_json())
                put(folder / place, mark)
                self._unmarked.pop()
            self._synced = time.monotonic()

    def _chunks(self, group: Group) -> list[str]:
        """Files of a group, but for its mark."""
        folder, found = self.path / _name(group.class_set), []
        for v in self.schemas[group.class_set].variables:
            place = folder / v.name / "c" / str(group.chunk)
            names = [f"/{name}" for name in checksums.files_in(place)] if place.is_dir() else [""] * place.exists()
            found += [f"{v.name}/c/{group.chunk}{name}" for name in names]
        return found

    def _mark(self, s: int) -> bytes:
        return bytes([1]) * self.plan.sizes[s]  # a chunk of true, uncompressed

    def _done(self, s: int) -> set[int]:
        """Chunks of a class set that are marked."""
        folder, mark = self.path / _name(s) / _DONE.name / "c", self._mark(s)
        files = [place for place in folder.iterdir() if place.name.isdecimal()] if folder.exists() else []
        return {int(place.name) for place in files if place.read_bytes() == mark}

    def _sound(self, s: int) -> set[int]:
        """Chunks of a class set that are marked and as they were written; of the others it is kept what is wrong."""
        folder, sound = self.path / _name(s), set()
        final = checksums.read_table("--out", folder)  # or still growing: then it does not know of groups
        marked = {place.name for place in (folder / _DONE.name / "c").glob("*")}
        for group in self.plan.groups():
            part = f"{PARTS}/{group.chunk}.json"
            if group.class_set != s or (str(group.chunk) not in marked and part not in final.files):
                continue
            try:
                checksums.check_files("--out", folder, final, {part} & final.files.keys())
                table = checksums.read_table("--out", folder, part)
                checksums.check_files("--out", folder, table, table.files)
                for name in self._chunks(group):
                    if name not in table.files:
                        raise Damaged("--out", folder, name, "is not one of its files")
                sound.add(group.chunk)
            except Damaged as found:
                self.mended.append(f"{group}: {_name(s)}/{found.part} {found.problem}")
        return sound

    def _remove_others(self, s: int, chunks: set[int]) -> None:
        """Whatever is of groups that are not among these."""
        folder = self.path / _name(s)
        for part in folder.glob(f"{PARTS}/*"):
            if part.suffix != ".json" or not part.stem.isdecimal() or int(part.stem) not in chunks:
                remove(part)
        for v in (_DONE, *self.schemas[s].variables):  # the mark first
            for place in (folder / v.name / "c").glob("*"):
                if not place.name.isdecimal() or int(place.name) not in chunks:
                    remove(place)

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

    def _places(self) -> list[int | None]:
        """The class sets, and None for the root, which repeats what they say of themselves, hence last."""
        return [*range(len(self.schemas)), None]

    @property
    def n_bytes(self) -> int:
        """Size before compression."""
        in_sets = sum(self.plan.n_runs * (found.run_bytes + 80) for found in self.schemas)
        return in_sets + len(self.sweep) * (sum(v.run_bytes for v in self._summary()) + 80)


def stored_plan(path: Path, sweep: Sweep) -> tuple[Plan, dict[str, str]]:
    """The plan of the store to be resumed, and the versions it was begun with; refuses another sweep's."""
    attrs = read_attributes(path)
    stored, plan = json.loads(attrs["sweep"]), Plan.from_json(attrs["plan"])
    if attrs["sweep"] != sweep.text:
        given = json.loads(sweep.text)
        tables = [name for name in sorted(stored.keys() | given.keys()) if stored.get(name) != given.get(name)]
        differs = ", ".join(f"[{name}]" for name in tables)
        raise InputError("the sweep to resume", f"changed in {differs}",
                         f"the one that {path} was begun with (or say --overwrite to start again)")  # fmt: skip
    return plan, json.loads(attrs["versions"])


def read_attributes(path: Path, field: str = "--out") -> dict[str, Any]:
    """What a store says of itself, if that is as it was written."""
    foreign = InputError(field, str(path), f"a store of the format '{FORMAT}'")
    try:
        attrs = json.loads((path / "zarr.json").read_bytes())["attributes"]
        found = attrs["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        attrs, found = {}, None
    if found == FORMER:
        raise InputError(field, str(path), f"{checksums.EARLIER} (--overwrite)")
    if found != FORMAT and not (path / NAME).is_file():
        raise foreign
    table = checksums.read_table(field, path)
    checksums.check_files(field, path, table, ["zarr.json"], stopped=True)
    if found != FORMAT:
        raise foreign
    return attrs


def _folder(path: Path, s: int | None) -> Path:
    return path if s is None else path / _name(s)


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
