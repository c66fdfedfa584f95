"""Atomic files and folders: written beside their place under another name, then renamed.

A process killed at any moment leaves either the old thing, nothing, or the new one whole.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A scratch path to write a file or folder to; on success it takes the place of ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield scratch
        if target.is_dir() or (target.exists() and scratch.is_dir()):  # only a file can be renamed onto a file
            old = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
            target.rename(old)
            try:
                scratch.rename(target)
            except BaseException:
                old.rename(target)
                raise
            remove(old)
        else:
            os.replace(scratch, target)
    finally:
        remove(scratch)


def remove(path: Path) -> None:
    """Delete a file or folder if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
