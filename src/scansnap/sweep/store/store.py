"""The store as the driver of a sweep sees it: it begins it, finds what is missing, counts what comes, and ends it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from scansnap.storage import checksums
from scansnap.storage.checksums import NAME, PARTS, ChecksumTable, Damaged
from scansnap.storage.objects import Entry, Folder, Objects
from scansnap.storage.versions import refuse_other_versions
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Group, Plan
from scansnap.sweep.schema import Schema
from scansnap.sweep.store.frame import DONE, ClassSetNumber, Frame, prefix_of
from scansnap.sweep.store.seals import check_frame, read_attributes, reopen, seal
from scansnap.sweep.store.writer import StoreError, Summed, Writer, Written, part_of


class Store:
    """A sweep's store, in a folder or a bucket."""

    def __init__(self, place: Objects, sweep: Sweep, plan: Plan, schemas: tuple[Schema, ...]) -> None:
        self.place, self.frame = place, Frame(sweep, plan, schemas)
        self.n_bytes = self.frame.n_bytes  # before compression
        self.mended: list[str] = []  # groups of a resumed store that were damaged, and what was wrong
        self.whole = False  # complete and as it was written: nothing to do
        self._done: dict[Group, Written] = {}

    def writer(self) -> Writer:
        """For the workers, who may be in other folders."""
        place = Folder(self.place.path.absolute()) if isinstance(self.place, Folder) else self.place
        return Writer.of(place, self.frame)

    def create(self, *, replaces: bool) -> None:
        """An empty store in place of whatever was there."""
        with self._asking("the store"):
            self.place.begin(self.frame.create(), "zarr.json", replaces=replaces)

    def missing(self) -> list[Group]:
        """Groups without a mark or with damage, whose marks then are gone; refuses a damaged frame, other versions."""
        with self._asking("what was left unfinished"):
            names = self.place.sizes()
            self.whole = self._is_whole(names)
            if self.whole:
                return []
            begun = json.loads(read_attributes(self.place)["versions"])
            refuse_other_versions("--out", self.place, begun)
            check_frame(self.place, self.frame, names)
            of_group = self._chunks(names)
            damaged: dict[Group, str] = {}
            for s in range(len(self.frame.schemas)):
                groups = [group for group in self.frame.plan.groups() if group.class_set == s]
                damaged |= self._count_sound(s, groups, names, of_group)
            reopen(self.place, self.frame)
            for group, problem in damaged.items():
                prefix = prefix_of(group.class_set)
                self.place.remove([f"{prefix}{DONE.name}/c/{group.chunk}"])  # before what it stands for
                self.place.remove([prefix + part_of(group), *of_group.get(f"{prefix}{group.chunk}", ())])
                self.mended.append(f"{group}: {problem}")
        return [group for group in self.frame.plan.groups() if group not in self._done]

    def count(self, group: Group, written: Written) -> None:
        """A group is in the store."""
        self._done[group] = written

    def finish(self, summed: list[Summed]) -> bool:
        """Final checksums, once every group is there; True, and the store says so, if none is missing."""
        if self.whole:
            return True
        with self._asking("the final checksums"):
            complete = all(piece.complete for piece in summed) and len(self._done) == len(self.frame.plan)
            if complete:
                more: dict[ClassSetNumber, dict[str, Entry]] = {s: {} for s in self.frame.places}
                for group in self.frame.plan.groups():
                    more[group.class_set][part_of(group)] = self._done[group].record
                for piece in summed:
                    more[None] |= piece.entries
                self._remove_unknown(more[None])
                self.place.sync()  # what is sealed is whole
                seal(self.place, self.frame, more)
            self.place.sync()
            return complete

    def _is_whole(self, names: Mapping[str, int]) -> bool:
        """Whether there is nothing to do: complete, and every byte as it was written (of a bucket: every size)."""
        try:
            checksums.check("--out", self.place, sizes=names if self.place.trusted else None)
        except Damaged:
            return False
        return bool(read_attributes(self.place)["complete"])

    def _count_sound(
        self, s: int, groups: list[Group], names: Mapping[str, int], of_group: Mapping[str, list[str]]
    ) -> dict[Group, str]:
        """Groups of a class set that are marked and as they were written are counted; what the damaged ones lack."""
        prefix, damaged = prefix_of(s), {}
        final = checksums.read_table("--out", self.place, f"{prefix}{NAME}")  # or growing: then it knows of no group
        at = {prefix + part_of(group): group for group in groups
              if part_of(group) in final.files or f"{prefix}{DONE.name}/c/{group.chunk}" in names}  # fmt: skip
        digests = dict(self.place.digests(at))
        for name, table in checksums.read_tables("--out", self.place, at):
            group, digest = at[name], digests[name]
            try:
                if isinstance(table, Damaged):
                    raise table
                if isinstance(digest, str) or final.files.get(part_of(group), digest) != digest:
                    raise Damaged("--out", self.place, name, "does not match its checksum")
                files = {prefix + inner: entry for inner, entry in table.files.items()}
                checksums.check_files("--out", self.place, ChecksumTable(files), files,
                                      sizes=names if self.place.trusted else None)  # fmt: skip
                for chunk in of_group.get(f"{prefix}{group.chunk}", ()):
                    if chunk not in files:
                        raise Damaged("--out", self.place, chunk, "is not one of its files")
                self._done[group] = Written(digest, len(files) + 1)
            except Damaged as found:
                damaged[group] = f"{found.part} {found.problem}"
        return damaged

    def _chunks(self, names: Mapping[str, int]) -> dict[str, list[str]]:
        """Chunks of the groups, by class set and number along run."""
        found: dict[str, list[str]] = defaultdict(list)
        sets = range(len(self.frame.schemas))
        arrays = {prefix_of(s) + v.name: prefix_of(s) for s in sets for v in self.frame.grown(s)}
        for name in names:
            array, chunk, index = name.partition("/c/")
            if chunk and array in arrays and all(number.isdecimal() for number in index.split("/")):
                found[f"{arrays[array]}{index.split('/')[0]}"].append(name)
        return found

    def _remove_unknown(self, summary: Mapping[str, Entry]) -> None:
        """What no group and no piece of the summary has, among the arrays that they fill: left by the killed."""
        names = self.place.sizes()
        tables = [checksums.read_table("--out", self.place, f"{prefix_of(s)}{NAME}").files for s in self.frame.places]
        ours = len(summary) + sum(len(fixed) + 1 for fixed in tables) + sum(one.objects for one in self._done.values())
        if len(names) == ours:  # the usual case, and told without a look at each of 100,000 groups
            return
        known = {*summary}
        records = {prefix_of(group.class_set) + part_of(group): group for group in self._done}
        for name, table in checksums.read_tables("--out", self.place, records):
            if isinstance(table, Damaged):
                raise table
            known |= {name, *(prefix_of(records[name].class_set) + inner for inner in table.files)}
        grown = {f"{prefix_of(s)}{top}/" for s in self.frame.places
                 for top in (PARTS, *(v.name for v in self.frame.grown(s)))}  # fmt: skip
        self.place.remove(
            name for name in names
            if name not in known and not name.endswith("/zarr.json") and name.startswith(tuple(grown))
        )  # fmt: skip

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"{what} could not be written to {self.place} ({reason})") from error
