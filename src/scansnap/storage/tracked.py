"""Replace tracked files in a folder and leave all others alone.

A file is tracked while ``checksums.json`` in the folder lists it and its content is unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scansnap.checks import InputError
from scansnap.storage.checksums import NAME, ChecksumTable, Damaged, entries_of, problem_of, read_table
from scansnap.storage.objects import files_in
from scansnap.storage.scratch import scratch_folder
from scansnap.storage.writing import put


def refuse_untracked(field: str, folder: Path, names: Iterable[str], remedy: str = "overwrite replaces it") -> None:
    """Refuse existing files and folders of these names that are not tracked or have changed."""
    table = _table(field, folder)
    for name in names:
        known = [entries[name] for entries in (table.files, table.before) if name in entries]
        path = folder / name
        if os.path.lexists(path) and not (
            path.is_file() and not path.is_symlink() and any(not problem_of(folder, name, entry) for entry in known)
        ):
            message = f"{path} is in the way, and this command did not write it so; move it away ({remedy})"
            raise InputError.conflict(field, message, str(path))


@contextmanager
def replacing_tracked(field: str, folder: Path) -> Iterator[Path]:
    """Yield a scratch folder; at the end its files replace those of the same names in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder) as scratch:
        yield scratch
        try:
            old = _table(field, folder).files
        except Damaged:  # it is replaced; refuse_untracked has refused it where that matters
            old = {}
        new = entries_of(scratch, files_in(scratch))
        before = {name: entry for name, entry in old.items() if name in new and entry != new[name]}
        # both entries count as tracked if the process is killed in the next lines
        put(folder / NAME, ChecksumTable({**old, **new}, before).to_json())
        for name in new:
            put(folder / name, (scratch / name).read_bytes())
        put(folder / NAME, ChecksumTable({**old, **new}).to_json())


def _table(field: str, folder: Path) -> ChecksumTable:
    return read_table(field, folder) if os.path.lexists(folder / NAME) else ChecksumTable({})
