"""The tables of checksums of a store, and the metadata that they vouch for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.storage import checksums, put
from scansnap.storage.checksums import NAME, PARTS, ChecksumTable, Damaged, Entry
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Plan
from scansnap.sweep.store.frame import FORMAT, FORMER, ClassSetNumber, Frame, folder_of, set_name


def seal_growing(path: Path, frame: Frame) -> None:
    """Tables that vouch for the frame alone, new or just checked: groups are on their way, with their own tables."""
    for s in reversed(frame.places):  # the root first: it speaks for the others
        folder = folder_of(path, s)
        fixed = [n for n in checksums.files_in(folder) if frame.is_fixed(s, n) and checksums.would_count(n, {})]
        _seal(path, frame, s, checksums.of_files(folder, fixed), complete=False, growing=True)


def seal_final(path: Path, frame: Frame, *, complete: bool) -> None:
    """Tables that know everything there is."""
    for s in frame.places:
        folder = folder_of(path, s)
        if s is None:  # what the end adds to the root: the summary, and the class sets' tables
            more = [f"{v.name}/{name}" for v in frame.grown(None) for name in checksums.files_in(folder / v.name)]
            more = [name for name in more if not frame.is_fixed(None, name)]
            more += [f"{set_name(one)}/{NAME}" for one in range(len(frame.schemas))]
        else:
            more = [f"{PARTS}/{name}" for name in checksums.files_in(folder / PARTS)]
        known = checksums.read_table("--out", folder).files  # the frame as it was, whatever happened to it since
        files = {name: entry for name, entry in known.items() if frame.is_fixed(s, name)}
        _seal(path, frame, s, files | checksums.of_files(folder, more), complete=complete, growing=False)


def check_frame(path: Path, frame: Frame) -> None:
    """What the folders had from the beginning: it says what the groups are, so it cannot be made again."""
    for s in frame.places:
        folder = folder_of(path, s)
        try:
            table = checksums.read_table("--out", folder)
            fixed = [name for name in table.files if frame.is_fixed(s, name)]
            checksums.check_files("--out", folder, table, fixed, stopped=True)
            for name in checksums.files_in(folder):
                if name not in table.files and frame.is_fixed(s, name) and checksums.would_count(name, {}):
                    raise Damaged("--out", folder, name, "is not one of its files")
        except Damaged as found:
            raise Damaged("--out", folder, found.part, found.problem, "--overwrite starts again") from None


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


def _seal(
    path: Path, frame: Frame, s: ClassSetNumber, files: dict[str, Entry], *, complete: bool, growing: bool
) -> None:
    """Put a table and then ``zarr.json``: should the process end between them, the table knows of both."""
    folder = folder_of(path, s)
    now, other = (_metadata(folder, complete=one).encode() for one in (complete, not complete))
    inside = tuple(map(set_name, range(len(frame.schemas)))) if growing and s is None else ()
    table = ChecksumTable({**files, "zarr.json": checksums.of_bytes(now)}, {"zarr.json": checksums.of_bytes(other)},
                  growing, inside)  # fmt: skip
    put(folder / NAME, table.to_json())
    put(folder / "zarr.json", now)


def _metadata(folder: Path, *, complete: bool) -> str:
    """The ``zarr.json`` of a group that says whether it is complete, and repeats its members' metadata: xarray opens it
    in one read. Not by ``zarr.consolidate_metadata``, which writes at once, over the old file, in the order of a
    directory listing: the table must know these bytes before they are there."""
    own = json.loads((folder / "zarr.json").read_bytes())
    members = {}
    for place in sorted([*folder.glob("*/zarr.json"), *folder.glob("*/*/zarr.json")]):  # not among the chunks
        member = json.loads(place.read_bytes())
        member.pop("consolidated_metadata", None)
        members[place.parent.relative_to(folder).as_posix()] = member
    for group in (own, *(member for member in members.values() if member["node_type"] == "group")):
        group["attributes"]["complete"] = int(complete)
    own["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": members}
    return json.dumps(own, indent=2, sort_keys=True)
