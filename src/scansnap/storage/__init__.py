"""The one place that writes files: whole or not at all, one writer at a time, nothing left behind.

A thing is written under its own name in a scratch folder ``.scansnap-….tmp`` beside its place, then renamed. A process
killed at any moment leaves the old thing or the new one whole. The scratch folder is locked by its writer, and the
lock ends with the process however that ends: one that nobody holds is what a killed writer left, and the next writer
in that folder sweeps it up (and puts back what was on its way out, should it have died between two renames).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scansnap.checks import InputError

try:
    import fcntl
except ImportError:  # Windows: no locks, so nothing is known to be left over, and nothing is swept
    fcntl = None  # type: ignore[assignment]

_MARK = ".scansnap-"
_OLD = "old"  # in a scratch folder: what the new thing replaces
_swept: set[Path] = set()  # folders this process has looked through


class WriteError(OSError):
    """The disk does not take what is to be written; says so in one sentence."""

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
        sweep_up(target.parent)
        with _scratch(target.parent) as folder:
            scratch = folder / target.name
            yield scratch
            _exchange(scratch, target)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(target, error) from error


def put(target: Path, content: str | bytes | memoryview) -> None:
    """A file with this content, whole or not at all; a device or pipe is written to as it is."""
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


def remove(path: Path) -> None:
    """Delete a file or folder if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Delete a folder in one step: a process killed amid it leaves all of it, or nothing that keeps its name."""
    if path.exists():
        with _scratch(path.parent) as folder:
            path.rename(folder / path.name)


def sweep_up(folder: Path) -> None:
    """Remove what killed writers left in a folder; once a process, since one looks at every name in it."""
    folder = folder.resolve()
    if fcntl is None or folder in _swept:
        return
    _swept.add(folder)
    for left in folder.glob(f"{_MARK}*.tmp"):
        with suppress(OSError), _held(left, wait=False):  # in use, or gone meanwhile: not ours to remove
            for old in (left / _OLD).glob("*"):
                if not os.path.lexists(folder / old.name):
                    old.rename(folder / old.name)
            remove(left)
    for lock in folder.glob(f"{_MARK}*.lock"):
        with suppress(OSError), _held(lock, wait=False):
            remove(lock)


@contextmanager
def claimed(field: str, target: Path) -> Iterator[None]:
    """Only one process works towards ``target``, a second is refused; the claim ends with the process, however.

    Folders made for it go again when nothing was put into them.
    """
    place = target.resolve()
    made = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(target, error) from error
    if fcntl is None:
        try:
            yield
        finally:
            _drop(made)
        return
    # a name of fixed length: the target's may be as long as the disk allows
    lock = place.parent / f"{_MARK}{hashlib.sha256(place.name.encode()).hexdigest()[:16]}.lock"
    handle = _lock(field, target, lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # while it is held: whoever waits on the old file sees that it is gone
        os.close(handle)
        _drop(made)


def _drop(folders: list[Path]) -> None:
    """Folders that are empty, from the inmost on."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def writable(field: str, target: Path, *, folder: bool = False, inside: bool = False) -> Path:
    """``target`` if a file (or folder) could be written there; refused before the work, and nothing is changed.

    With ``inside`` it is a folder that is not replaced but takes files, and may be there already.
    """
    folder = folder or inside
    allowed = "the name of a folder" if folder else "the name of a file"
    whole = Path(os.path.abspath(target)) if inside else target.absolute()
    if (whole if inside else target).name in ("", "..") or "\0" in str(target):
        raise InputError(field, str(target), f"{allowed} in a place that can be written")
    if os.path.exists(target) and os.path.isdir(target) != folder:
        raise InputError(field, str(target), f"{allowed}, and that is a {'file' if folder else 'folder'}")
    try:
        place, missing = (whole, []) if inside and os.path.isdir(whole) else (whole.parent, [whole.name])
        while not os.path.isdir(place):
            if os.path.lexists(place):
                raise NotADirectoryError(errno.ENOTDIR, f"{place} is not a folder")
            place, missing = place.parent, [*missing, place.name]
        if any(folder.suffix == ".zarr" for folder in whole.parents):
            raise OSError(errno.EINVAL, "it is inside of a result")
        for name in (whole, *(place / name for name in missing)):
            with suppress(FileNotFoundError):
                os.lstat(name)  # refuses a name that is too long
        with _scratch(place) as scratch:  # by trying: rights alone do not tell for root, nor that there is room
            (scratch / "block").write_bytes(bytes(4096))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(field, str(target), f"{allowed} in a place that can be written ({reason})") from None
    return target


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A folder of our own in ``parent``, locked while it lives."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_MARK, suffix=".tmp", dir=parent))
        try:
            with _held(folder):
                if folder.exists():  # not swept up by another process before it was locked
                    yield folder
                    return
        finally:
            with suppress(FileNotFoundError):
                remove(folder)


def _exchange(scratch: Path, target: Path) -> None:
    """Rename; a folder in the way changes places with the new thing, in one step where the system can."""
    if not target.is_dir() and not (target.exists() and scratch.is_dir()):
        os.replace(scratch, target)
    elif not _swap(scratch, target):
        old = scratch.parent / _OLD / target.name
        old.parent.mkdir()
        target.rename(old)
        try:
            scratch.rename(target)
        except BaseException:
            old.rename(target)
            raise


def _swap(one: Path, other: Path) -> bool:
    """Both names at once (Linux: renameat2 with RENAME_EXCHANGE); False where that is not to be had."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    call = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    return call is not None and call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@contextmanager
def _held(path: Path, wait: bool = True) -> Iterator[None]:
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


def _lock(field: str, target: Path, lock: Path) -> int:
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise WriteError(target, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise InputError(field, str(target), "a place that no other process is writing to now") from None
        except FileNotFoundError:  # its holder ended between our two calls: try again
            pass
        os.close(handle)
