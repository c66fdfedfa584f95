"""Atomic writes of files and folders: they are written to a scratch folder and then renamed."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scansnap.storage.scratch import OLD, remove_leftovers, scratch_folder


class WriteError(OSError):
    """A file cannot be written, for example on a full disk."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error), str(path))

    def __str__(self) -> str:
        return f"{self.filename} could not be written ({self.strerror})."


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A scratch path to write a file or folder to; on success it takes the place of ``target``."""
    target = Path(target)
    try:
        if is_stream(target):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with scratch_folder(target.parent) as folder:
            scratch = folder / target.name
            yield scratch
            _exchange(scratch, target)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(target, error) from error


def put(target: Path, content: str | bytes | memoryview) -> None:
    """Write a file atomically; a device or pipe is written to directly."""
    encoded = content.encode() if isinstance(content, str) else content
    if is_stream(target):
        try:
            target.write_bytes(encoded)
        except OSError as error:
            raise WriteError(target, error) from error
        return
    with replacing(target) as scratch:
        scratch.write_bytes(encoded)


def is_stream(target: Path) -> bool:
    """Whether ``target`` is a device or a pipe (/dev/null, /dev/stdout, a FIFO), which must not be replaced."""
    if not os.path.exists(target) or target.is_dir():
        return False
    in_system = target.parent.resolve().parts[1:2] in (("dev",), ("proc",))  # where a link stands for an open file
    return not target.is_file() or (target.is_symlink() and in_system)


def discard(path: Path) -> None:
    """Delete a folder atomically: it is renamed first."""
    if path.exists():
        with scratch_folder(path.parent) as folder:
            path.rename(folder / path.name)


def sync(path: Path) -> None:
    """Flush the file system of ``path`` to its disk."""
    if os.name == "nt":  # a folder cannot be opened there, nor a whole file system be written out
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux
        if syncfs is None:
            os.sync()
        elif syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)


def _exchange(scratch: Path, target: Path) -> None:
    """Rename; an existing folder is exchanged, atomically where the system can."""
    if not target.is_dir() and not (target.exists() and scratch.is_dir()):
        os.replace(scratch, target)
    elif not _swap(scratch, target):
        old = scratch.parent / OLD / target.name
        old.parent.mkdir()
        target.rename(old)
        try:
            scratch.rename(target)
        except BaseException:
            old.rename(target)
            raise


def _swap(first: Path, second: Path) -> bool:
    """Exchange two names (Linux: renameat2 with RENAME_EXCHANGE); False if the system cannot."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    call = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    return call is not None and call(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0
