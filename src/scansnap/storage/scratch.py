"""Scratch folders, in which files are written before they are renamed.

A scratch folder ``.scansnap-….tmp`` is locked by its writer, and the lock ends with the process. A folder without a
lock is left over from a killed writer: the next writer in the same place removes it, and restores what the killed
writer had moved away between two renames.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no locks, so nothing is known to be left over, and nothing is swept
    fcntl = None  # type: ignore[assignment]

PREFIX = ".scansnap-"
OLD = "old"  # in a scratch folder: what the new thing replaces
_cleaned_folders: set[Path] = set()  # folders that this process has cleaned


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder in ``parent``, locked and deleted at the end."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=".tmp", dir=parent))
        try:
            with locked(folder):
                if folder.exists():  # no other process removed it before it was locked
                    yield folder
                    return
        finally:
            with suppress(FileNotFoundError):
                remove(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove leftovers of killed writers from a folder, once per process."""
    folder = folder.resolve()
    if fcntl is None or folder in _cleaned_folders:
        return
    _cleaned_folders.add(folder)
    for left in folder.glob(f"{PREFIX}*.tmp"):
        with suppress(OSError), locked(left, wait=False):  # in use, or already removed
            for old in (left / OLD).glob("*"):
                if not os.path.lexists(folder / old.name):
                    old.rename(folder / old.name)
            remove(left)
    for lock in folder.glob(f"{PREFIX}*.lock"):
        with suppress(OSError), locked(lock, wait=False):
            remove(lock)


def remove(path: Path) -> None:
    """Delete a file or folder if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Lock a file or folder for this process; with ``wait=False`` OSError if another process has the lock."""
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)
