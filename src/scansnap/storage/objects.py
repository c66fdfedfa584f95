"""Objects with names in a folder or under a prefix of an S3 bucket; each is written atomically.

Many processes on many machines may write at once without a lock, each under names of its own: on a disk a file is
written elsewhere and renamed, and a bucket takes only whole objects. Leftovers of a killed writer lie in
``.scansnap-writing``, where no reader looks; `Folder.tidy` removes them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from scansnap.checks import InputError
from scansnap.storage.scratch import remove_leftovers
from scansnap.storage.targets import check_writable
from scansnap.storage.writing import replacing, sync

Entry = list[Any]  # size in bytes, SHA-256 in hexadecimal
T = TypeVar("T")
_WRITING = ".scansnap-writing"
_ATTEMPTS = 100


class Objects(Protocol):
    """A location of named objects; names have / in them. Failures are an OSError with a readable message."""

    @property
    def trusted(self) -> bool:
        """Whether the storage has checksums of its own, so that comparing sizes is enough."""

    def exists(self) -> bool:
        """Whether the location exists."""

    def check_writable(self, field: str) -> None:
        """InputError if nothing can be written there; nothing is changed."""

    def get(self, name: str) -> bytes:
        """The content of an object; FileNotFoundError if it is missing."""

    def contents(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | str]]:
        """Contents by name, or why they cannot be read."""

    def digests(self, names: Iterable[str]) -> Iterator[tuple[str, Entry | str]]:
        """Size and SHA-256 of contents, or why they cannot be read."""

    def sizes(self) -> dict[str, int]:
        """Size by name, without names that begin with a dot."""

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write or replace objects, each atomically, in any order."""

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects if they exist."""

    def begin(self, contents: Mapping[str, bytes], last: str, *, replaces: bool) -> None:
        """Create the location with these objects only, ``last`` last; FileExistsError unless it may replace."""

    def sync(self) -> None:
        """Flush all writes to the disk."""

    def tidy(self) -> None:
        """Remove leftovers of killed writers."""

    def zarr(self, *, write: bool = False) -> Any:
        """The location as a Zarr store; see `scansnap.storage.zarr_store`."""


def entry_of_bytes(content: bytes) -> Entry:
    """Size and SHA-256."""
    return [len(content), hashlib.sha256(content).hexdigest()]


def entry_of_file(path: Path) -> Entry:
    """Size and SHA-256."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        return [file.tell(), digest]


def open_regular(path: str | os.PathLike[str]) -> IO[Any]:
    """Open a regular file for reading; OSError for a link, a device or a pipe, which may never end."""
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if stat.S_ISREG(mode):
        handle = os.open(path, flags)
        if stat.S_ISREG(os.fstat(handle).st_mode):  # it may have been replaced between the two calls
            return os.fdopen(handle, "rb")
        os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


class _SafePaths:
    """Paths of names in a folder; OSError for a name that leads out of it, also through a link."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.real = folder, os.path.realpath(folder)
        self._direct = {""}  # folders that are reached without a link

    def __call__(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") or any(sign in part for sign in "\\\0:") for part in parts):
            raise OSError(errno.EINVAL, "it is not the name of a file in the folder")
        parent = "/".join(parts[:-1])
        if parent not in self._direct:
            expected = os.path.join(self.real, *parts[:-1])
            if os.path.realpath(expected) != expected:
                raise OSError(errno.EINVAL, "it is reached through a link")
            self._direct.add(parent)
        return self.folder / name


def _read_or_reason(read: Callable[[Any], T], what: Any) -> T | str:
    """The result of ``read``, or why it failed."""
    try:
        return read(what)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def files_in(folder: Path) -> Iterator[str]:
    """All files below a folder, in order, without names that begin with a dot."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


@dataclass(frozen=True)
class Folder:
    """Objects as files of a folder, on a local or a shared disk."""

    path: Path

    trusted = False

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        return os.path.exists(self.path)  # False, too, for a name that is too long

    def check_writable(self, field: str) -> None:
        check_writable(field, self.path, folder=True)

    def get(self, name: str) -> bytes:
        return _read(_SafePaths(self.path)(name))

    def contents(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | str]]:
        path_of = _SafePaths(self.path)
        return ((name, _read_or_reason(lambda n: _read(path_of(n)), name)) for name in names)

    def digests(self, names: Iterable[str]) -> Iterator[tuple[str, Entry | str]]:
        path_of = _SafePaths(self.path)
        return ((name, _read_or_reason(lambda n: entry_of_file(path_of(n)), name)) for name in names)

    def sizes(self) -> dict[str, int]:
        return {name: os.lstat(self.path / name).st_size for name in files_in(self.path)}

    def put(self, contents: Mapping[str, bytes]) -> None:
        for name, content in contents.items():
            self._put(self.path / name, content)
        with suppress(OSError):  # not while another process writes
            (self.path / _WRITING).rmdir()

    def _put(self, target: Path, content: bytes) -> None:
        scratch = self.path / _WRITING / uuid.uuid4().hex
        try:
            for attempts_left in reversed(range(_ATTEMPTS)):
                try:
                    scratch.write_bytes(content)
                    os.replace(scratch, target)
                    return
                except FileNotFoundError:  # of a folder, which another process may have removed since
                    if not attempts_left:
                        raise
                    for folder in (scratch.parent, target.parent):
                        with suppress(FileExistsError):  # it was there, and another writer has just removed it
                            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            place = self.path / name
            place.unlink(missing_ok=True)
            with suppress(OSError):  # folders that are empty now
                while place.parent != self.path:
                    place = place.parent
                    place.rmdir()

    def begin(self, contents: Mapping[str, bytes], last: str, *, replaces: bool) -> None:
        if self.exists() and not replaces:
            raise FileExistsError(f"{self} exists")
        with replacing(self.path) as scratch:
            for name, content in contents.items():
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).write_bytes(content)
            sync(scratch)

    def sync(self) -> None:
        sync(self.path)

    def tidy(self) -> None:
        shutil.rmtree(self.path / _WRITING, ignore_errors=True)
        remove_leftovers(self.path.parent)  # one killed as it began

    def zarr(self, *, write: bool = False) -> Any:
        from zarr.storage import LocalStore

        from scansnap.storage.zarr_store import CheckedStore

        return CheckedStore(LocalStore(self.path, read_only=not write), self)


def place_of(where: str | os.PathLike[str], field: str = "the path", endpoint: str | None = None) -> Objects:
    """A folder, or an address ``s3://bucket/prefix`` (a Path has one of its two slashes)."""
    address = os.fspath(where)
    scheme, colon, rest = address.partition(":/")
    if scheme == "s3" and colon:
        from scansnap.storage.bucket import Bucket

        return Bucket.of("s3://" + rest.lstrip("/"), field, endpoint)
    if "://" in address:
        raise InputError(field, address, "a folder or an address s3://bucket/prefix")
    if endpoint is not None:
        raise InputError("--endpoint", endpoint, "left out unless the results go to s3://")
    return Folder(Path(where))
