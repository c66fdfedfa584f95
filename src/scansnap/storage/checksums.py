"""Checksums of what we write, so that damage is noticed before anything is computed from it.

A folder carries ``checksums.json``, with the size and the SHA-256 of each file that counts::

    {"files": {"zarr.json": [4711, "9f86…"], "loss/c/0/0": [52, "60a1…"], …}, …, "sha256": "d2a8…"}

where the last is that of the table itself. A file in the list may be such a table again (``…/checksums.json`` of a
folder inside, ``checksums/….json`` of a part) and is followed. A folder that is still being written to says
``growing``: its parts, and the tables in the folders it names ``inside``, are followed wherever they lie, and chunks
without a mark in ``done`` (with folders inside: any) do not count. ``before`` is what a file may still be where a
writer was stopped.

Checking reads every byte (SHA-256: about 1 GB/s) and happens before a file is opened by any library.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scansnap.checks import InputError

NAME = "checksums.json"
PARTS = "checksums"  # a folder with the tables of parts
EARLIER = "made anew, since it is from an earlier version, without checksums"

Entry = list[Any]  # size in bytes, SHA-256 in hexadecimal


class Damaged(InputError):
    """A file of ours is not what it was when it was written."""

    def __init__(self, field: str, path: Path, part: str, problem: str, remedy: str = "") -> None:
        self.part, self.problem = part, problem
        super().__init__(field, str(path), f"whole, and {part} {problem}" + (f" ({remedy})" if remedy else ""))


@dataclass(frozen=True)
class CheckedFiles:
    """What was compared with its checksum."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: CheckedFiles) -> CheckedFiles:
        return CheckedFiles(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class ChecksumTable:
    """What ``checksums.json`` says."""

    files: Mapping[str, Entry]  # by path, with / in it
    before: Mapping[str, Entry] = field(default_factory=dict)
    growing: bool = False
    inside: tuple[str, ...] = ()  # folders

    def to_json(self) -> str:
        return sign({"files": self.files, "before": self.before, "growing": self.growing, "inside": self.inside})


# --- tables that carry their own checksum ------------------------------------------------------------------------


def sign(table: Mapping[str, Any]) -> str:
    """A table as JSON, with its own checksum in it."""
    return json.dumps({**table, "sha256": _digest(table)}, sort_keys=True, ensure_ascii=False)


def signed(text: str | bytes) -> dict[str, Any]:
    """The table that :func:`sign` wrote; ValueError for any other, KeyError for one without a checksum."""
    table = json.loads(text)
    if not isinstance(table, dict):
        raise ValueError("not a table")
    if table.pop("sha256") != _digest(table):
        raise ValueError("not as it was written")
    return table


def _digest(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


# --- files and folders -------------------------------------------------------------------------------------------


def of_bytes(content: bytes) -> Entry:
    """What a table says of a file with this content."""
    return [len(content), hashlib.sha256(content).hexdigest()]


def of_file(path: Path) -> Entry:
    """What a table says of a file."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        return [file.tell(), found]


def of_files(folder: Path, names: Iterable[str]) -> dict[str, Entry]:
    """What a table says of files in a folder."""
    return {name: of_file(folder / name) for name in names}


def files_in(folder: Path) -> Iterator[str]:
    """All files in a folder and those inside it, in order; names that begin with a dot are the system's."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()


def put_table(folder: Path) -> None:
    """The table of a folder that is complete, into it."""
    table = ChecksumTable(of_files(folder, (name for name in files_in(folder) if name != NAME)))
    (folder / NAME).write_text(table.to_json(), encoding="utf-8")


def read_table(field: str, folder: Path, name: str = NAME) -> ChecksumTable:
    """A table that is itself as it was written."""
    try:
        table = signed((folder / name).read_bytes())
        return ChecksumTable(table["files"], table["before"], table["growing"], tuple(table["inside"]))
    except FileNotFoundError:
        raise Damaged(field, folder, name, "is missing") from None
    except OSError as error:
        raise Damaged(field, folder, name, f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(field, folder, name, "does not match its own checksum") from None


def problem_of(path: Path, entry: Entry) -> str:
    """What is wrong with a file; empty if nothing is."""
    try:
        found = of_file(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if found[0] != entry[0]:
        return f"has {found[0]} bytes instead of {entry[0]}"
    return "" if found[1] == entry[1] else "does not match its checksum"


def check_files(
    field: str, folder: Path, table: ChecksumTable, names: Iterable[str], *, stopped: bool = False
) -> CheckedFiles:
    """Files of a table, all or some; with ``stopped`` what they were before counts as well."""
    done = CheckedFiles()
    for name in names:
        problem = problem_of(folder / name, table.files[name])
        if problem and name in table.before and not problem_of(folder / name, table.before[name]):
            problem = "" if stopped else "is from before it was finished, which resume does"
        if problem:
            raise Damaged(field, folder, name, problem)
        done += CheckedFiles(1, table.files[name][0])
    return done


def check(field: str, folder: Path) -> CheckedFiles:
    """Everything in a folder against its checksums: what is missing, cut, changed or does not belong is refused."""
    marked: dict[str, set[str]] = {}  # before the parts: a writer puts a part's mark after its checksums
    known, todo, done = {NAME}, [NAME], CheckedFiles()
    while todo:
        name = todo.pop()
        place = folder / name
        base = place.parent if place.name == NAME else place.parent.parent
        prefix = "" if base == folder else base.relative_to(folder).as_posix() + "/"
        if place.name == NAME:
            marked[prefix] = set(marks(base))
        table = read_table(field, folder, name)
        try:
            done += check_files(field, base, table, table.files)
        except Damaged as found:
            raise Damaged(field, folder, prefix + found.part, found.problem) from None
        follow = [inner for inner in table.files if inner.endswith(f"/{NAME}") or inner.startswith(f"{PARTS}/")]
        if table.growing:
            follow += [f"{inner}/{NAME}" for inner in table.inside]
            follow += [f"{PARTS}/{part.name}" for part in (base / PARTS).glob("[0-9]*.json")]
            if table.inside:
                marked[prefix] = set()  # its own chunks are a summary, made last
        elif place.name == NAME:
            del marked[prefix]
        known |= {prefix + inner for inner in (*table.files, *follow)}
        todo += [prefix + inner for inner in follow]
    for name in files_in(folder):
        if name not in known and would_count(name, marked):
            raise Damaged(field, folder, name, "is not one of its files")
    return done + CheckedFiles(1, (folder / NAME).stat().st_size)


def marks(folder: Path) -> list[str]:
    """Numbers of the chunks of ``done`` that are there. Here and in :func:`would_count` chunks are known by their names
    (``loss/c/3/0``, as Zarr 3 names them) rather than by Zarr, which must not open what was not yet checked."""
    return [mark.name for mark in (folder / "done" / "c").glob("*")]


def would_count(name: str, marked: Mapping[str, set[str]]) -> bool:
    """Whether a file that no table knows would change what is read: metadata, or a chunk unless it waits for a mark."""
    if name.endswith(("/zarr.json", "/c")):  # "c" itself: the one chunk of a single number
        return True
    array, chunk, index = name.partition("/c/")
    if not chunk:
        return False
    prefix = array[: array.rfind("/") + 1]
    return prefix not in marked or index.split("/")[0] in marked[prefix]
