"""Check that a target can be written, and lock it so that only one process writes it."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scansnap.checks import InputError
from scansnap.storage.scratch import PREFIX, fcntl, scratch_folder
from scansnap.storage.writing import WriteError

_locks: set[int] = set()  # open files that hold the locks


def _close_in_child() -> None:
    """Close the lock files in a forked child, whose copies would hold the locks after its parent ends."""
    while _locks:
        os.close(_locks.pop())


if fcntl is not None:
    os.register_at_fork(after_in_child=_close_in_child)


def check_writable(field: str, target: Path, *, folder: bool = False, inside: bool = False) -> Path:
    """Return ``target`` if a file (or folder) can be written there, else raise InputError. Changes nothing.

    With ``inside`` it is a folder that receives files and may exist.
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
        with scratch_folder(place) as scratch:  # by trying: rights alone do not tell for root, nor that there is room
            (scratch / "block").write_bytes(bytes(4096))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(field, str(target), f"{allowed} in a place that can be written ({reason})") from None
    return target


@contextmanager
def write_lock(field: str, target: Path) -> Iterator[None]:
    """Lock ``target`` so that a second process is refused. The lock ends with the process, also if it is killed.

    Creates missing parent folders, and deletes those that stay empty.
    """
    place = target.resolve()
    created = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(target, error) from error
    if fcntl is None:
        try:
            yield
        finally:
            _delete_empty(created)
        return
    # a name of fixed length: the target's may be as long as the disk allows
    lock = place.parent / f"{PREFIX}{hashlib.sha256(place.name.encode()).hexdigest()[:16]}.lock"
    handle = _lock(field, target, lock)
    _locks.add(handle)
    try:
        yield
    finally:
        if handle in _locks:  # not in a child, which has none
            _locks.remove(handle)
            lock.unlink(missing_ok=True)  # while it is held: whoever waits on the old file sees that it is gone
            os.close(handle)
            _delete_empty(created)


def _delete_empty(folders: list[Path]) -> None:
    """Delete those folders that are empty; the innermost comes first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


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
            raise InputError.conflict(field, f"another process is writing to {target}", str(target)) from None
        except FileNotFoundError:  # its holder ended between our two calls: try again
            pass
        os.close(handle)
