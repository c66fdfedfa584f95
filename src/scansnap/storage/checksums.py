"""Checksums of written files, so that damage is noticed before anything is computed from it.

A folder has a file ``checksums.json`` with the size and the SHA-256 of each file::

    {"files": {"zarr.json": [4711, "9f86…"], "loss/c/0/0": [52, "60a1…"], …}, …, "sha256": "d2a8…"}

The last entry is the checksum of the table itself. A folder that many processes fill lists its initial files, the
arrays that are ``filled``, whose chunks have checksums of their own (`scansnap.storage.chunks`), and the folders
``inside`` with tables of their own. ``before`` has earlier entries of files, valid where a writer was stopped.

Checking reads every byte (about 1 GB/s) before a library opens the file. Folder and file may also be a prefix of a
bucket and its objects (`scansnap.storage.objects`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.storage.chunks import COMPLETE, expected_groups, group_chunks, problems
from scansnap.storage.objects import Entry, Folder, Objects, entry_of_file, files_in

NAME = "checksums.json"
_TABLE = re.compile(r"(?<![^/])checksums(\.json|/\d+\.json)$")  # the latter of parts, in stores of former versions
EARLIER = "was written by an earlier version, without checksums; compute it again"

Place = Path | Objects


class Damaged(InputError):
    """A file differs from its checksum."""

    def __init__(self, field: str, path: Place, part: str, problem: str, remedy: str = "") -> None:
        self.part, self.problem = part, problem
        super().__init__(field, str(path), "an undamaged file")
        self._restate(field, f"{path} is damaged: {part} {problem}" + (f"; {remedy}" if remedy else ""))


@dataclass(frozen=True)
class CheckedFiles:
    """How many files and bytes matched their checksums."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: CheckedFiles) -> CheckedFiles:
        return CheckedFiles(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class ChecksumTable:
    """The content of ``checksums.json``."""

    files: Mapping[str, Entry]  # by path, with / in it
    before: Mapping[str, Entry] = field(default_factory=dict)
    filled: tuple[str, ...] = ()  # arrays
    inside: tuple[str, ...] = ()  # folders

    def to_json(self) -> str:
        return sign({"files": self.files, "before": self.before, "filled": self.filled, "inside": self.inside})


# --- tables that carry their own checksum ------------------------------------------------------------------------


def sign(table: Mapping[str, Any]) -> str:
    """A table as JSON with its own checksum."""
    return json.dumps({**table, "sha256": _digest(table)}, sort_keys=True, ensure_ascii=False)


def signed(text: str | bytes) -> dict[str, Any]:
    """The table that `sign` wrote; ValueError for any other, KeyError for one without a checksum."""
    table = json.loads(text)
    if not isinstance(table, dict):
        raise ValueError("not a table")
    if table.pop("sha256") != _digest(table):
        raise ValueError("not as it was written")
    return table


def _digest(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


# --- files and folders -------------------------------------------------------------------------------------------


def entries_of(folder: Path, names: Iterable[str]) -> dict[str, Entry]:
    """Size and SHA-256 of files in a folder."""
    return {name: entry_of_file(folder / name) for name in names}


def put_table(folder: Path) -> None:
    """Write the table of a complete folder into it."""
    table = ChecksumTable(entries_of(folder, (name for name in files_in(folder) if name != NAME)))
    (folder / NAME).write_text(table.to_json(), encoding="utf-8")


def read_table(field: str, folder: Place, name: str = NAME) -> ChecksumTable:
    """Read a table; `Damaged` if it does not match its own checksum."""
    ((_, table),) = read_tables(field, folder, [name])
    if isinstance(table, Damaged):
        raise table
    return table


def read_tables(field: str, folder: Place, names: Iterable[str]) -> Iterator[tuple[str, ChecksumTable | Damaged]]:
    """Tables by name, or what is wrong with them."""
    for name, content in _as_objects(folder).contents(names):
        if isinstance(content, str):
            yield name, Damaged(field, folder, name, content)
            continue
        try:
            table = signed(content)
            filled, inside = (tuple(map(str, table.get(key, ()))) for key in ("filled", "inside"))
            yield name, ChecksumTable(_entries(table["files"]), _entries(table["before"]), filled, inside)
        except (ValueError, KeyError, TypeError, RecursionError):
            yield name, Damaged(field, folder, name, "does not match its own checksum")


def _entries(table: Mapping[str, Any]) -> dict[str, Entry]:
    """Sizes and SHA-256; TypeError or ValueError for anything else."""
    return {name: [int(size), str(digest)] for name, (size, digest) in dict(table).items()}


def problem_of(folder: Place, name: str, entry: Entry) -> str:
    """What is wrong with a file in a folder; empty if nothing is."""
    ((_, actual),) = _as_objects(folder).digests([name])
    return _problem(actual, entry)


def check_files(
    field: str,
    folder: Place,
    table: ChecksumTable,
    names: Iterable[str],
    *,
    stopped: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> CheckedFiles:
    """Files of a table, all or some; with ``stopped`` what they were before counts as well.

    ``sizes`` of all files, where the place is trusted with their contents: then these are not read.
    """
    done = CheckedFiles()
    for name, actual in _as_objects(folder).digests(names) if sizes is None else _sized(names, sizes):
        problem = _problem(actual, table.files[name])
        if problem and name in table.before and not _problem(actual, table.before[name]):
            problem = "" if stopped else "is from before it was finished, which resume does"
        if problem:
            raise Damaged(field, folder, name, problem)
        done += CheckedFiles(1, table.files[name][0])
    return done


def _problem(actual: Entry | str, entry: Entry) -> str:
    if isinstance(actual, str):
        return actual
    if actual[0] != entry[0]:
        return f"has {actual[0]} bytes instead of {entry[0]}"
    return "" if actual[1] in (entry[1], None) else "does not match its checksum"


def _sized(names: Iterable[str], sizes: Mapping[str, int]) -> Iterator[tuple[str, Entry | str]]:
    for name in names:
        yield name, [sizes[name], None] if name in sizes else "is missing"


def _as_objects(place: Place) -> Objects:
    return Folder(place) if isinstance(place, Path) else place


def check(field: str, folder: Place, *, sizes: Mapping[str, int] | None = None) -> CheckedFiles:
    """Everything in a folder against its checksums: what is missing, cut, changed or does not belong is refused.

    ``sizes`` as for `check_files`.
    """
    place = _as_objects(folder)
    before = list(place.sizes())  # the markers among them: a writer puts the marker of a group last
    names = place.sizes()
    known, filled, done = set[str](), set[str](), CheckedFiles()
    todo = [NAME]
    while todo:
        name = todo.pop()
        prefix = _TABLE.sub("", name)
        done += CheckedFiles() if name in known else CheckedFiles(1, names.get(name, 0))
        table = read_table(field, folder, name)
        files, was = ({prefix + inner: entry for inner, entry in each.items()} for each in (table.files, table.before))
        done += check_files(field, folder, ChecksumTable(files, was), files, sizes=sizes)
        known |= {name, *files}
        filled |= {prefix + array for array in table.filled}
        groups = expected_groups(place, names, before, prefix) if table.filled else []
        chunks = group_chunks(place, prefix, table.filled, groups)
        for chunk, problem in problems(place, chunks, names, read=sizes is None):
            raise Damaged(field, folder, chunk, problem)
        done += CheckedFiles(len(chunks) + (f"{prefix}{COMPLETE}" in names), sum(names[chunk] for chunk in chunks))
        todo += [f"{prefix}{inner}/{NAME}" for inner in table.inside]
        todo += [inner for inner in files if _TABLE.search(inner)]
    for name in names:
        if name not in known and _would_be_read(name) and name.partition("/c/")[0] not in filled:
            raise Damaged(field, folder, name, "is not one of its files")
    return done


def _would_be_read(name: str) -> bool:
    """Whether Zarr reads a file that no table knows: metadata, or a chunk."""
    return name.endswith(("/zarr.json", "/c")) or "/c/" in name  # "c" itself: the one chunk of a single number
