"""Scratch folders: where a thing is written before it takes its place, and what killed writers left of them.

A scratch folder ``.scansnap-….tmp`` is locked by its writer, and the lock ends with the process however that ends: one
that nobody holds is what a killed writer left. The next writer in that folder sweeps it up (and puts back what was on
its way out, should it have died between two renames).
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

MARK = ".scansnap-"
OLD = "old"  # in a scratch folder: what the new thing replaces
_swept: set[Path] = set()  # folders this process has looked through


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A folder of our own in ``parent``, locked while it lives."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=MARK, suffix=".tmp", dir=parent))
        try:
            with held(folder):
                if folder.exists():  # not swept up by another process before it was locked
                    yield folder
                    return
        finally:
            with suppress(FileNotFoundError):
                remove(folder)


def sweep_up(folder: Path) -> None:
    """Remove what killed writers left in a folder; once a process, since one looks at every name in it."""
    folder = folder.resolve()
    if fcntl is None or folder in _swept:
        return
    _swept.add(folder)
    for left in folder.glob(f"{MARK}*.tmp"):
        with suppress(OSError), held(left, wait=False):  # in use, or gone meanwhile: not ours to remove
            for old in (left / OLD).glob("*"):
                if not os.path.lexists(folder / old.name):
                    old.rename(folder / old.name)
            remove(left)
    for lock in folder.glob(f"{MARK}*.lock"):
        with suppress(OSError), held(lock, wait=False):
            remove(lock)


def remove(path: Path) -> None:
    """Delete a file or folder if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def held(path: Path, wait: bool = True) -> Iterator[None]:
    """A file or folder locked for this process; with ``wait=False`` OSError where another has it."""
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)
