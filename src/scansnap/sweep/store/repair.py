"""A store that is resumed: which groups are sound, and removing what is left of the others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from scansnap.storage import checksums, remove
from scansnap.storage.checksums import PARTS, ChecksumTable, Damaged
from scansnap.sweep.plan import Group
from scansnap.sweep.store.arrays import SetArrays


def sound_groups(arrays: SetArrays, groups: Iterable[Group]) -> tuple[dict[Group, ChecksumTable], dict[Group, str]]:
    """Groups of a class set that are marked and as they were written, with their tables; and what damaged ones lack."""
    folder, sound, damaged = arrays.folder, {}, {}
    final = checksums.read_table("--out", folder)  # or still growing: then it does not know of groups
    for group in groups:
        part, (mark, _) = part_of(group), arrays.mark(group)
        if part not in final.files and not (folder / mark).exists():
            continue
        try:
            checksums.check_files("--out", folder, final, {part} & final.files.keys())
            table = checksums.read_table("--out", folder, part)
            checksums.check_files("--out", folder, table, table.files)
            for name in arrays.files(group):
                if name not in table.files:
                    raise Damaged("--out", folder, name, "is not one of its files")
            sound[group] = table
        except Damaged as found:
            damaged[group] = f"{found.part} {found.problem}"
    return sound, damaged


def part_of(group: Group) -> str:
    """The file with the checksums of a group."""
    return f"{PARTS}/{group.chunk}.json"


def keep_only(folder: Path, arrays: Iterable[str], known: Iterable[str]) -> None:
    """Of these arrays (or other folders) in ``folder``, in their order, remove every file that is not known."""
    kept = {folder / name for name in known}
    for array in arrays:
        for place in sorted((folder / array).rglob("*"), reverse=True):  # what is in a folder before the folder
            if not place.is_dir() or place.is_symlink():
                if place not in kept:
                    remove(place)
            else:
                with suppress(OSError):  # it is not empty
                    place.rmdir()
