"""What a worker does to the store: its own part of it and nothing else, whichever machine it is on.

A group is one chunk of runs of every array of its class set, so no two groups have an object in common. Its chunks come
first, then their checksums (``checksums/3.json`` of the class set), and last its chunk of ``done``: whoever finds that
finds all of them. A group that is written twice, by a worker that was thought dead or by a second driver, is written
with the same bytes. So there is nothing to lock.

The root's summary is cut in the same way: a piece is one chunk of runs of its arrays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scansnap.storage.checksums import PARTS, ChecksumTable
from scansnap.storage.objects import Entry, Objects, of_bytes
from scansnap.sweep.plan import Group, Plan
from scansnap.sweep.schema import class_mean
from scansnap.sweep.store.arrays import Encoder
from scansnap.sweep.store.frame import DONE, ROOT_CHUNK, ClassSetNumber, Frame, prefix_of, set_name
from scansnap.sweep.work import Arrays


class StoreError(Exception):
    """The place does not take the results."""


@dataclass(frozen=True)
class Written:
    """What the driver is told of a group: what the table is that vouches for it, and how many objects it has in all."""

    record: Entry
    objects: int


@dataclass(frozen=True)
class Piece:
    """Runs start … stop − 1 of the whole sweep: one chunk of the root's arrays."""

    start: int
    stop: int

    def __str__(self) -> str:
        return f"the summary of runs {self.start} to {self.stop - 1}"


@dataclass(frozen=True)
class Summed:
    """What became of a piece: its objects, and whether all of its runs are done."""

    entries: dict[str, Entry]
    complete: bool


@dataclass(frozen=True)
class Writer:
    """Small, and sent to each worker once."""

    place: Objects
    sweep: str  # as the store has it: a store of another is not written to
    plan: Plan
    means: dict[str, int | None]  # the root's arrays, and along which dimension a class set's are averaged
    _encoders: dict[ClassSetNumber, Encoder] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, place: Objects, frame: Frame) -> Writer:
        by_class = {v.name: v.dims.index("seq_class") for v in frame.schemas[0].variables if "seq_class" in v.dims}
        means = {v.name: by_class.get(v.name) for v in reversed(frame.grown(None))}  # the marks last
        return cls(place, frame.sweep.text, frame.plan, means)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoders": {}}  # Zarr's are of one process

    def write(self, group: Group, arrays: Arrays) -> Written:
        """All objects of a group."""
        with self._writing(str(group)):
            self._refuse_another()
            prefix, encoder = prefix_of(group.class_set), self._encoder(group.class_set)
            chunks = encoder.chunks(group.start, arrays)
            mark = encoder.chunks(group.start, {DONE.name: np.ones(len(group), dtype=bool)})
            table = ChecksumTable({name: of_bytes(content) for name, content in (chunks | mark).items()})
            record = table.to_json().encode()
            self.place.put({prefix + name: content for name, content in chunks.items()})
            self.place.put({prefix + part_of(group): record})
            self._refuse_another()
            self.place.put({prefix + name: content for name, content in mark.items()})
            return Written(of_bytes(record), len(table.files) + 1)

    def pieces(self) -> list[Piece]:
        """Of the summary."""
        total = self.plan.n_runs * len(self.plan.sizes)
        return [Piece(first, min(first + ROOT_CHUNK, total)) for first in range(0, total, ROOT_CHUNK)]

    def summarise(self, piece: Piece) -> Summed:
        """One chunk of each of the root's arrays, from the class sets'."""
        from scansnap.storage.zarr_store import open_group

        with self._writing(str(piece)):
            root = open_group(self.place.zarr())
            values = {name: np.concatenate(list(self._means(root, name, piece))) for name in self.means}
            chunks = self._encoder(None).chunks(piece.start, values)
            self.place.put(chunks)
            entries = {name: of_bytes(content) for name, content in chunks.items()}
            return Summed(entries, bool(values[DONE.name].all()))

    def _means(self, root: Any, name: str, piece: Piece) -> Iterator[np.ndarray]:
        """Group by group: what is averaged may be many times as large as its means."""
        n, axis = self.plan.n_runs, self.means[name]
        for s in range(piece.start // n, (piece.stop - 1) // n + 1):
            source, size = root[f"{set_name(s)}/{name}"], self.plan.sizes[s]
            first, last = max(piece.start - s * n, 0), min(piece.stop - s * n, n)
            if axis is None:
                yield np.asarray(source[first:last])
                continue
            for start in range(first - first % size, last, size):
                yield class_mean(np.asarray(source[max(start, first) : min(start + size, last)]), axis)

    def _encoder(self, s: ClassSetNumber) -> Encoder:
        if s not in self._encoders:
            self._encoders[s] = Encoder(self.place.get(f"{prefix_of(s)}zarr.json"))
        return self._encoders[s]

    def _refuse_another(self) -> None:
        """The store is not here, or somebody has put another one in its place."""
        try:
            found = json.loads(self.place.get("zarr.json"))["attributes"]
        except FileNotFoundError:
            raise OSError(2, "there is no store here: all machines must see it, by a shared folder or s3://") from None
        if (found["sweep"], Plan.from_json(found["plan"])) != (self.sweep, self.plan):
            raise OSError(17, "another sweep has taken its place meanwhile")

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"{what} could not be written to {self.place} ({reason})") from error


def part_of(group: Group) -> str:
    """The table with the checksums of a group, in its class set."""
    return f"{PARTS}/{group.chunk}.json"
