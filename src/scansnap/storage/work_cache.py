"""A cache of finished pieces of work: each is one file that appears whole or not at all, under a checksum.

A piece holds values that JSON can hold, and arrays. Its file begins with one line, the format and the SHA-256 of all
that follows; then come a header as one line of JSON and the bytes of the arrays::

    scansnap piece 1 5f70bf18…
    {"key": "4c1d…", "name": "cells/adam", "versions": {…}, "values": {…}, "arrays": [["loss", "<f8", [3]]]}
    …

The key identifies the work: a piece of other work is as good as missing. Many processes may put pieces at once. The
place is a folder, or a prefix of a bucket (see `scansnap.storage.objects`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scansnap.checks import InputError
from scansnap.storage.checksums import Damaged
from scansnap.storage.objects import Folder, Objects
from scansnap.storage.scratch import remove
from scansnap.storage.versions import refuse_other_versions
from scansnap.storage.writing import WriteError

_MAGIC = b"scansnap piece 1 "
_FIRST = len(_MAGIC) + 64 + 1  # bytes of the first line
_ALIGN = 64  # bytes; arrays begin at multiples
_KINDS = "biufcU"  # numbers and text; nothing that is an object


@dataclass(frozen=True)
class Piece:
    """A finished piece of work. The arrays are views of what was read, and cannot be written to."""

    values: dict[str, Any]
    arrays: dict[str, np.ndarray]
    key: str  # of the work that it belongs to
    versions: dict[str, str]  # of the packages that computed it
    digest: str  # SHA-256; it identifies the piece among all that ever had its name
    size: int  # bytes


class WorkCache:
    """Pieces of one work, by name.

    Parameters
    ----------
    place
        A folder, or a prefix of a bucket. The first ``put`` makes the folder.
    key
        Identifies the work, for example a fingerprint of its settings. None reads pieces of any work.
    versions
        Of the packages that compute the pieces. They are recorded in each, and ``Piece.versions`` returns them.
    damaged
        ``refuse``: a damaged piece raises `Damaged`; ``missing``: it is as good as missing.
    field
        What errors call the place.
    verify
        Whether pieces that are read must match their checksums.

    Examples
    --------
    >>> import tempfile
    >>> cache = WorkCache(Path(tempfile.mkdtemp()), "settings 1", {"scansnap": "0.3.0"})
    >>> digest = cache.put("cell", {"loss": 0.5}, {"x": np.arange(3)})
    >>> piece = cache.get("cell")
    >>> piece.values["loss"], piece.arrays["x"].tolist(), piece.versions["scansnap"]
    (0.5, [0, 1, 2], '0.3.0')
    >>> cache.names(), cache.get("another")
    (['cell'], None)
    """

    def __init__(
        self,
        place: Objects | Path,
        key: str | None,
        versions: Mapping[str, str] | None = None,
        *,
        damaged: Literal["refuse", "missing"] = "refuse",
        field: str = "the cache",
        verify: bool = True,
    ) -> None:
        self.place: Objects = Folder(place) if isinstance(place, Path) else place
        self.key, self.versions, self.damaged, self.field = key, dict(versions or {}), damaged, field
        self.verify = verify

    def put(self, name: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> str:
        """Write a piece, in place of one of the same name, and return its digest."""
        content = encode(str(self.key), name, self.versions, values, arrays or {})
        try:
            self.place.put({name: content})
        except OSError as error:
            raise WriteError(Path(f"{self.path}/{name}"), error) from error
        return _digest_of(content)

    def get(self, name: str) -> Piece | None:
        """The piece of this name; None if it is missing."""
        ((_, piece),) = self.pieces([name])
        return piece

    def pieces(self, names: Iterable[str]) -> Iterator[tuple[str, Piece | None]]:
        """Pieces by name, in this order; None for what is missing."""
        for name, content in self.place.contents(names):
            problem = "" if isinstance(content, bytes) else content
            if isinstance(content, bytes):
                try:
                    yield name, decode(content, self.key, name, verify=self.verify)
                    continue
                except ValueError as error:
                    problem = str(error)
            if problem != "is missing" and self.damaged == "refuse":
                raise Damaged(self.field, self.path, name, problem)
            yield name, None

    @property
    def path(self) -> Path | Objects:
        """The place as errors show it."""
        return self.place.path if isinstance(self.place, Folder) else self.place

    def names(self) -> list[str]:
        """All names in the place, whether their pieces are sound or not."""
        return sorted(self.place.sizes())

    def refuse_other_work(self, remedy: str) -> None:
        """Refuse files that are no pieces, and pieces of another key or of other versions. Damaged pieces pass."""
        if isinstance(self.place, Folder) and os.path.lexists(self.place.path) and not self.place.path.is_dir():
            raise InputError(self.field, str(self.path), "a folder", f"it is a file; {remedy}")
        for name, content in self.place.contents(self.names()):
            if isinstance(content, str) or not content.startswith(_MAGIC):
                raise InputError.conflict(
                    self.field, f"{self.path} contains {name}, which is no part of this work; {remedy}", str(self.path)
                )
            try:
                piece = decode(content, None, name)
            except ValueError:
                continue
            if piece.key != self.key:
                raise InputError.conflict(self.field, f"{self.path} contains other work; {remedy}", str(self.path))
            refuse_other_versions(self.field, self.path, piece.versions)

    def remove(self, names: Iterable[str]) -> None:
        """Delete pieces that may be there."""
        self.place.remove(names)

    def discard(self) -> None:
        """Delete the folder."""
        if isinstance(self.place, Folder):
            remove(self.place.path)


def encode(
    key: str, name: str, versions: Mapping[str, str], values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> bytes:
    """The content of a piece's file."""
    plain = {label: np.ascontiguousarray(array) for label, array in arrays.items()}
    for label, array in plain.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"{label} has the type {array.dtype}, and a piece holds numbers and text only")
    shapes = [[label, array.dtype.newbyteorder("<").str, np.shape(arrays[label])] for label, array in plain.items()]
    header = json.dumps({"key": key, "name": name, "versions": dict(versions), "values": values, "arrays": shapes})
    parts = [_padded(header.encode() + b"\n", _FIRST)]
    for array in plain.values():
        parts.append(_padded(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join([_MAGIC + digest.hexdigest().encode() + b"\n", *parts])


def decode(content: bytes, key: str | None, name: str, *, verify: bool = True) -> Piece:
    """The piece in a file; ValueError says what is wrong with it."""
    if content[: len(_MAGIC)] != _MAGIC or content[_FIRST - 1 : _FIRST] != b"\n":
        raise ValueError("is not a piece of work")
    digest = _digest_of(content)
    if verify and hashlib.sha256(memoryview(content)[_FIRST:]).hexdigest() != digest:
        raise ValueError("does not match its checksum")
    try:
        end = content.index(b"\n", _FIRST) + 1
        header = json.loads(content[_FIRST:end])
        arrays, start = {}, _aligned(end)
        for label, text, shape in header["arrays"]:
            dtype, size = _dtype(text), math.prod(_lengths(shape))
            if size * dtype.itemsize > len(content) - start:
                raise ValueError
            flat = np.frombuffer(content, dtype, size, start) if size else np.empty(0, dtype)
            arrays[str(label)] = flat.reshape(shape)
            start = _aligned(start + size * dtype.itemsize)
        values, versions = dict(header["values"]), {str(k): str(v) for k, v in header["versions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("has a header that scansnap does not write") from None
    if header.get("name") != name or (key is not None and header.get("key") != key):
        raise ValueError("is missing")  # it was renamed, or belongs to other work
    return Piece(values, arrays, str(header["key"]), versions, digest, len(content))


def _digest_of(content: bytes) -> str:
    return content[len(_MAGIC) : _FIRST - 1].decode("latin-1")


def _dtype(text: str) -> np.dtype:
    if not isinstance(text, str) or len(text) > 8:
        raise ValueError("no type of numbers or text")
    dtype = np.dtype(text)
    if dtype.kind not in _KINDS or dtype.hasobject or dtype.subdtype is not None:
        raise ValueError("no type of numbers or text")
    return dtype


def _lengths(shape: list[int]) -> list[int]:
    if not isinstance(shape, list) or len(shape) > 32 or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("no shape")
    return shape


def _aligned(position: int) -> int:
    return -(-position // _ALIGN) * _ALIGN


def _padded(content: bytes, before: int = 0) -> bytes:
    """With zeros up to where the next array may begin."""
    end = before + len(content)
    return content + bytes(_aligned(end) - end)
