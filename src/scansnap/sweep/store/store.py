"""The store as its one writer uses it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.storage import checksums, put, remove, replacing, sweep_up, sync
from scansnap.storage.checksums import PARTS, ChecksumTable, Damaged, Entry
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Group, Plan
from scansnap.sweep.schema import Schema, class_mean
from scansnap.sweep.store.arrays import SetArrays
from scansnap.sweep.store.frame import DONE, ROOT_CHUNK, Frame, folder_of, set_name
from scansnap.sweep.store.repair import keep_only, part_of, sound_groups
from scansnap.sweep.store.seals import check_frame, read_attributes, seal_final, seal_growing
from scansnap.sweep.work import Arrays

_SYNC_SECONDS = 1.0  # what a killed process can lose of finished groups


class StoreError(Exception):
    """The disk does not take the results."""


class Store:
    """A sweep's store on disk, for one writer."""

    def __init__(self, path: Path, sweep: Sweep, plan: Plan, schemas: tuple[Schema, ...]) -> None:
        self.path, self.frame = path, Frame(sweep, plan, schemas)
        self.n_bytes = self.frame.n_bytes  # before compression
        self.mended: list[str] = []  # groups of a resumed store that were damaged, and what was wrong
        self._arrays: dict[int, SetArrays] = {}  # by class set
        self._unmarked: list[tuple[Group, dict[str, Entry]]] = []  # written, not yet known to be on the disk
        self._synced = 0.0
        self._whole = False  # complete and as it was written: nothing to do

    def create(self) -> None:
        """An empty store in place of whatever was there, at once."""
        with replacing(self.path) as scratch:
            self.frame.create(scratch)
            seal_growing(scratch, self.frame)
            sync(scratch)

    def missing(self) -> list[Group]:
        """Groups without a mark or with damage, after removing what there is of them; refuses a damaged frame."""
        with self._disk("what was left unfinished"):
            self._whole = self._is_whole()
            if self._whole:
                return []
            check_frame(self.path, self.frame)
            sound: dict[Group, ChecksumTable] = {}
            for s in range(len(self.frame.schemas)):
                groups = [group for group in self.frame.plan.groups() if group.class_set == s]
                found, damaged = sound_groups(self._set(s), groups)
                sound |= found
                self.mended += [f"{group}: {set_name(s)}/{problem}" for group, problem in damaged.items()]
            seal_growing(self.path, self.frame)
            for place in reversed(self.frame.places):  # the root's summary is made again from the class sets
                names = [v.name for v in self.frame.grown(place)]  # the marks first
                known = [f"{name}/zarr.json" for name in names]
                for group, table in sound.items():
                    known += [part_of(group), *table.files] if group.class_set == place else []
                keep_only(folder_of(self.path, place), [PARTS, *names], known)
        return [group for group in self.frame.plan.groups() if group not in sound]

    def write(self, group: Group, arrays: Arrays) -> None:
        """All chunks of a group; its mark follows at the latest with :meth:`flush`."""
        with self._disk(str(group)):
            members = self._set(group.class_set)
            try:
                members.write(group, arrays)
                sums = checksums.of_files(members.folder, members.files(group))
            except OSError:
                for name in members.files(group):  # give its room back
                    remove(members.folder / name)
                raise
        self._unmarked.append((group, sums))
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Put everything on the disk, then the checksums and marks of what was written until now."""
        with self._disk("the marks of finished groups"):
            if self._unmarked:
                sync(self.path)
            while self._unmarked:
                group, sums = self._unmarked[-1]
                members = self._set(group.class_set)
                place, mark = members.mark(group)
                table = ChecksumTable({**sums, place: checksums.of_bytes(mark)})
                put(members.folder / part_of(group), table.to_json())
                put(members.folder / place, mark)
                self._unmarked.pop()
            self._synced = time.monotonic()

    def finish(self) -> bool:
        """Write the root's summary and the final checksums; True, and the store says so, if no group is missing."""
        if self._whole:
            return True
        self.flush()
        with self._disk("the summary"):
            complete = self._summarise()
            sync(self.path)  # what is sealed is whole
            seal_final(self.path, self.frame, complete=complete)
            sync(self.path)
            return complete

    def _summarise(self) -> bool:
        """The root's arrays, chunk by chunk, from the class sets'; whether every run is done."""
        import zarr

        root: Any = zarr.open_group(self.path, mode="r+", use_consolidated=False)
        n, total = self.frame.plan.n_runs, len(self.frame.sweep)
        by_class = {v.name: v.dims.index("class") for v in self.frame.schemas[0].variables if "class" in v.dims}
        for one in reversed(self.frame.grown(None)):  # the marks last
            for first in range(0, total, ROOT_CHUNK):
                last, parts = min(first + ROOT_CHUNK, total), []
                for s in range(first // n, (last - 1) // n + 1):
                    source = root[f"{set_name(s)}/{one.name}"]
                    values = np.asarray(source[max(first - s * n, 0) : min(last - s * n, n)])
                    axis = by_class.get(one.name)
                    parts.append(values if axis is None else class_mean(values, axis))
                root[one.name][first:last] = np.concatenate(parts)
        return bool(np.all(root[DONE.name][...]))

    def _is_whole(self) -> bool:
        """Whether there is nothing to do: complete, and every byte as it was written."""
        for place in (self.path.parent, *(folder_of(self.path, s) for s in reversed(self.frame.places))):
            sweep_up(place)
        try:
            checksums.check("--out", self.path)
        except Damaged:
            return False
        return bool(read_attributes(self.path)["complete"])

    def _set(self, s: int) -> SetArrays:
        """The arrays of a class set, opened once."""
        if s not in self._arrays:
            names = [v.name for v in self.frame.schemas[s].variables]
            self._arrays[s] = SetArrays(folder_of(self.path, s), names, DONE.name)
        return self._arrays[s]

    @contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"{what} could not be written to {self.path} ({reason})") from error
