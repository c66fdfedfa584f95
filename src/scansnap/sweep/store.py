"""The Zarr store of a sweep, which workers fill region by region.

::

    sweep.zarr/                 all runs: coordinates, and every variable along run and step (those by class as means)
      classes-0.zarr/           the first class set in full; itself a trajectory: scansnap.load reads it
      classes-1.zarr/           …

Runs are numbered class set by class set; ``run`` in ``classes-1.zarr`` continues that of ``classes-0.zarr``. The
template, written first, has all metadata and coordinates and a table of checksums. Workers write the regions of their
groups without a lock: a group is one chunk of runs of its class set, so groups share no object, and a group written
twice has the same bytes. Its chunk of ``done``, written last, is its marker. At the end the root's summary is computed
from the class sets, one chunk of runs at a time. An empty file ``complete`` comes last.

Resuming reads the whole store (in a bucket, which has checksums of its own, only names): a group with a missing or
damaged chunk is computed again, and a damaged template is refused. All chunks are written, even those with only fill
values, so that a deleted chunk is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.storage import checksums
from scansnap.storage.checksums import NAME, Damaged
from scansnap.storage.chunks import COMPLETE, group_chunks, marked_groups, problems
from scansnap.storage.objects import Entry, Folder, Objects, entry_of_bytes
from scansnap.storage.versions import refuse_other_versions
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import RunGroup, SweepPlan
from scansnap.sweep.schema import class_mean
from scansnap.sweep.template import DONE, FORMAT, ROOT_CHUNK, StoreTemplate, prefix_of, set_name
from scansnap.sweep.work import Arrays


class StoreError(Exception):
    """The store cannot be written."""


class SweepStore:
    """A sweep's store, in a folder or a bucket, as its driver sees it."""

    def __init__(self, place: Objects, template: StoreTemplate) -> None:
        self.place, self.template = place, template
        self.recomputed: list[str] = []  # groups of a resumed store that were damaged, and what was wrong
        self.complete = False  # nothing to do

    def create(self, *, replaces: bool) -> None:
        """Write the template, in place of an existing store."""
        with _writing(self.place, "the store"):
            self.place.begin(self.template.contents(), "zarr.json", replaces=replaces)

    def writer(self) -> RegionWriter:
        """The writer for workers, which may have another working folder."""
        place = Folder(self.place.path.absolute()) if isinstance(self.place, Folder) else self.place
        return RegionWriter.of(place, self.template)

    def missing(self) -> list[RunGroup]:
        """Groups without a marker or with damage, whose markers are deleted; `Damaged` if the template is."""
        with _writing(self.place, "what was left unfinished"):
            sizes = self.place.sizes()
            self._check_template(sizes)
            damaged: dict[RunGroup, str] = {}
            missing = []
            for s in range(len(self.template.schemas)):
                bad, marked = self._damage(s, sizes)
                for group in self.template.plan.groups(s):
                    if group.chunk in bad:
                        damaged[group] = bad[group.chunk]
                    if group.chunk in bad or group.chunk not in marked:
                        missing.append(group)
            (bad, marked), n_pieces = self._damage(None, sizes), len(summary_pieces(self.template.plan))
            self.complete = COMPLETE in sizes and not (missing or bad) and len(marked) == n_pieces
            if self.complete:
                return []
            refuse_other_versions("--out", self.place, json.loads(read_attributes(self.place)["versions"]))
            for group, problem in damaged.items():
                prefix = prefix_of(group.class_set)
                self.place.remove([f"{prefix}{DONE.name}/c/{group.chunk}"])  # before what it stands for
                self.recomputed.append(f"{group}: {problem}")
        return missing

    def finish(self, complete: bool) -> bool:
        """Flush the store, and mark it as complete."""
        with _writing(self.place, "the last results"):
            self.place.sync()
            if complete:
                self.place.put({f"{prefix_of(s)}{COMPLETE}": b"" for s in (None, *range(len(self.template.schemas)))})
        return complete

    def _check_template(self, sizes: dict[str, int]) -> None:
        """Compare the template with its checksums: it defines the groups, so it cannot be computed again."""
        for s in (*range(len(self.template.schemas)), None):
            prefix = prefix_of(s)
            try:
                table = checksums.read_table("--out", self.place, f"{prefix}{NAME}")
                files = {prefix + name: entry for name, entry in table.files.items()}
                checksums.check_files("--out", self.place, checksums.ChecksumTable(files), files,
                                      sizes=sizes if self.place.trusted else None)  # fmt: skip
            except Damaged as damage:
                raise Damaged("--out", self.place, damage.part, damage.problem, "--overwrite starts again") from None

    def _damage(self, s: int | None, sizes: dict[str, int]) -> tuple[dict[int, str], set[int]]:
        """Damage of a folder's marked groups by number, and the numbers of all marked groups."""
        prefix, marked = prefix_of(s), marked_groups(sizes, prefix_of(s))
        names = [v.name for v in self.template.filled(s)]
        n_groups = len(self.template.plan.groups(s) if s is not None else summary_pieces(self.template.plan))
        chunks = group_chunks(self.place, prefix, names, [group for group in marked if group < n_groups])
        bad: dict[int, str] = {}
        for name, problem in problems(self.place, chunks, sizes, read=not self.place.trusted):
            bad.setdefault(chunks[name], f"{name} {problem}")
        return bad, set(marked)


@dataclass(frozen=True)
class SummaryPiece:
    """Runs start … stop − 1 of the whole sweep: one chunk of the root's arrays."""

    start: int
    stop: int

    def __str__(self) -> str:
        return f"the summary of runs {self.start} to {self.stop - 1}"


def summary_pieces(plan: SweepPlan) -> list[SummaryPiece]:
    """All pieces of the root's summary."""
    total = plan.n_runs * len(plan.sizes)
    return [SummaryPiece(first, min(first + ROOT_CHUNK, total)) for first in range(0, total, ROOT_CHUNK)]


@dataclass(frozen=True)
class RegionWriter:
    """Writes regions of a store; it is sent to each worker once."""

    place: Objects
    table: Entry  # of the root's checksums: a store of another sweep is not written to
    plan: SweepPlan
    means: dict[str, int | None]  # the root's arrays, and along which dimension a class set's are averaged
    _arrays: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, place: Objects, template: StoreTemplate) -> RegionWriter:
        by_class = {v.name: v.dims.index("seq_class") for v in template.schemas[0].variables if "seq_class" in v.dims}
        means = {v.name: by_class.get(v.name) for v in template.filled(None)}
        return cls(place, entry_of_bytes(place.get(NAME)), template.plan, means)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": {}}  # Zarr's are of one process

    def write(self, group: RunGroup, arrays: Arrays) -> None:
        """All chunks of a group, its marker last."""
        with _writing(self.place, str(group)):
            self._refuse_another()
            self._fill(prefix_of(group.class_set), group.start, arrays)
            self._refuse_another()
            self._fill(prefix_of(group.class_set), group.start, {DONE.name: np.ones(len(group), dtype=bool)})

    def summarise(self, piece: SummaryPiece) -> bool:
        """One chunk of each of the root's arrays, from the class sets'; whether all of its runs are done."""
        with _writing(self.place, str(piece)):
            values = {name: np.concatenate(list(self._means(name, piece))) for name in self.means}
            self._fill("", piece.start, values)
            return bool(values[DONE.name].all())

    def _fill(self, prefix: str, start: int, values: Arrays) -> None:
        for name, value in values.items():
            self._array(prefix + name)[start : start + len(value)] = value

    def _means(self, name: str, piece: SummaryPiece) -> Iterator[np.ndarray]:
        """Values of a summary piece, group by group to limit memory."""
        n, axis = self.plan.n_runs, self.means[name]
        for s in range(piece.start // n, (piece.stop - 1) // n + 1):
            source, size = self._array(f"{set_name(s)}/{name}"), self.plan.sizes[s]
            first, last = max(piece.start - s * n, 0), min(piece.stop - s * n, n)
            if axis is None:
                yield np.asarray(source[first:last])
                continue
            for start in range(first - first % size, last, size):
                yield class_mean(np.asarray(source[max(start, first) : min(start + size, last)]), axis)

    def _array(self, name: str) -> Any:
        from scansnap.storage.zarr_store import open_group, writing_all_chunks

        if name not in self._arrays:
            with writing_all_chunks():
                self._arrays[name] = open_group(self.place.zarr(write=True), mode="r+")[name]
        return self._arrays[name]

    def _refuse_another(self) -> None:
        """Refuse to write where the store is missing, or another one is in its place."""
        try:
            table = entry_of_bytes(self.place.get(NAME))
        except FileNotFoundError:
            raise OSError(2, "there is no store here; all machines must see it, by a shared folder or s3://") from None
        if table != self.table:
            raise OSError(17, "another sweep has taken its place meanwhile")


def read_attributes(place: Objects, field: str = "--out") -> dict[str, Any]:
    """The attributes of a store's root, after a check."""
    ((_, document), (_, table)) = place.contents(["zarr.json", NAME])
    try:
        attrs = json.loads(document)["attributes"]
        stored = attrs["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        attrs, stored = {}, None
    if stored == FORMAT or not isinstance(table, str):
        checksums.check_files(field, place, checksums.read_table(field, place), ["zarr.json"])
    if stored != FORMAT:
        raise InputError(field, str(place), f"a store of the format '{FORMAT}'", "pass --overwrite to replace it")
    return dict(attrs)


def stored_plan(place: Objects, sweep: Sweep) -> SweepPlan:
    """The plan of the store to be resumed; refuses another sweep's."""
    attrs = read_attributes(place)
    stored, plan = json.loads(attrs["sweep"]), SweepPlan.from_json(attrs["plan"])
    if attrs["sweep"] != sweep.text:
        config = json.loads(sweep.text)
        tables = [name for name in sorted(stored.keys() | config.keys()) if stored.get(name) != config.get(name)]
        differs = ", ".join(f"[{name}]" for name in tables)
        message = f"{place} was begun with another {differs}; pass --overwrite to replace it"
        raise InputError.conflict("sweep file", message, differs)
    return plan


@contextmanager
def _writing(place: Objects, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"{what} could not be written to {place} ({reason})") from error
