"""The tables of checksums of a store, and the metadata that they vouch for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scansnap.checks import InputError
from scansnap.storage import checksums
from scansnap.storage.checksums import NAME, ChecksumTable, Damaged
from scansnap.storage.objects import Entry, Objects, of_bytes
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Plan
from scansnap.sweep.store.frame import FORMAT, FORMER, ClassSetNumber, Frame, metadata, prefix_of, set_name


def reopen(place: Objects, frame: Frame) -> None:
    """A store that was finished, and is not whole, grows again: its tables vouch for the frame alone."""
    for s in reversed(frame.places):  # the root first: it speaks for the others
        table = _table(place, s)
        if not table.growing:
            fixed = {name: entry for name, entry in table.files.items() if frame.is_fixed(s, name)}
            _seal(place, frame, s, fixed, complete=False)


def seal(place: Objects, frame: Frame, more: Mapping[ClassSetNumber, Mapping[str, Entry]]) -> None:
    """Tables that know everything there is, of a store that is complete; ``more`` is what came to the frame."""
    for s in frame.places:
        known = _table(place, s).files  # the frame as it was, whatever happened to it since
        fixed = {name: entry for name, entry in known.items() if frame.is_fixed(s, name)}
        added = dict(more[s])
        if s is None:
            for one in range(len(frame.schemas)):
                name = f"{set_name(one)}/{NAME}"
                added[name] = of_bytes(place.get(name))
        _seal(place, frame, s, fixed | added, complete=True)


def check_frame(place: Objects, frame: Frame, names: Mapping[str, int]) -> None:
    """What the folders had from the beginning: it says what the groups are, so it cannot be made again."""
    for s in frame.places:
        prefix = prefix_of(s)
        try:
            table = _table(place, s)
            fixed = {prefix + name: entry for name, entry in table.files.items() if frame.is_fixed(s, name)}
            before = {prefix + name: entry for name, entry in table.before.items()}
            checksums.check_files("--out", place, ChecksumTable(fixed, before), fixed, stopped=True,
                                  sizes=names if place.trusted else None)  # fmt: skip
            for name in (name.removeprefix(prefix) for name in names if name.startswith(prefix)):
                if name not in table.files and frame.is_fixed(s, name) and checksums.would_count(name, {}):
                    raise Damaged("--out", place, prefix + name, "is not one of its files")
        except Damaged as found:
            raise Damaged("--out", place, found.part, found.problem, "--overwrite starts again") from None


def stored_plan(place: Objects, sweep: Sweep) -> Plan:
    """The plan of the store to be resumed; refuses another sweep's."""
    attrs = read_attributes(place)
    stored, plan = json.loads(attrs["sweep"]), Plan.from_json(attrs["plan"])
    if attrs["sweep"] != sweep.text:
        given = json.loads(sweep.text)
        tables = [name for name in sorted(stored.keys() | given.keys()) if stored.get(name) != given.get(name)]
        differs = ", ".join(f"[{name}]" for name in tables)
        raise InputError("the sweep to resume", f"changed in {differs}",
                         f"the one that {place} was begun with (or say --overwrite to start again)")  # fmt: skip
    return plan


def read_attributes(place: Objects, field: str = "--out") -> dict[str, Any]:
    """What a store says of itself, if that is as it was written."""
    foreign = InputError(field, str(place), f"a store of the format '{FORMAT}'")
    ((_, document), (_, table)) = place.contents(["zarr.json", NAME])
    try:
        attrs = json.loads(document)["attributes"]
        found = attrs["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        attrs, found = {}, None
    if found == FORMER:
        raise InputError(field, str(place), f"{checksums.EARLIER} (--overwrite)")
    if found != FORMAT and isinstance(table, str):
        raise foreign
    checksums.check_files(field, place, checksums.read_table(field, place), ["zarr.json"], stopped=True)
    if found != FORMAT:
        raise foreign
    return attrs


def _table(place: Objects, s: ClassSetNumber) -> ChecksumTable:
    return checksums.read_table("--out", place, f"{prefix_of(s)}{NAME}")


def _seal(place: Objects, frame: Frame, s: ClassSetNumber, files: Mapping[str, Entry], *, complete: bool) -> None:
    """Put a table and then ``zarr.json``: should the process end between them, the table knows of both."""
    prefix = prefix_of(s)
    document = place.get(f"{prefix}zarr.json")
    now, other = (metadata(document, complete=one) for one in (complete, not complete))
    inside = tuple(map(set_name, range(len(frame.schemas)))) if s is None and not complete else ()
    table = ChecksumTable({**files, "zarr.json": of_bytes(now)}, {"zarr.json": of_bytes(other)}, not complete, inside)
    place.put({f"{prefix}{NAME}": table.to_json().encode()})
    place.put({f"{prefix}zarr.json": now})
