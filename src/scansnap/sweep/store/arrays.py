"""The Zarr arrays of a store: how they are cut into chunks, and which chunk files are a group's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.sweep.plan import Group
from scansnap.sweep.work import Arrays

_CHUNK_BYTES = 32 << 20


def create_array(
    group: Any,
    name: str,
    dims: tuple[str, ...],
    values: np.ndarray | tuple[int, ...],  # the content, or only its shape
    chunk: int | None = None,  # along run
    *,
    dtype: np.dtype | None = None,
    attrs: dict[str, Any] | None = None,
) -> None:
    """An array that xarray reads, in chunks of ``chunk`` runs; empty where only a shape is given."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    shape = values.shape if isinstance(values, np.ndarray) else values
    kind = dtype if dtype is not None else values.dtype  # type: ignore[union-attr]
    text = kind.kind in "OUT"
    chunks = chunk_shape(dims, shape, chunk, 16 if text else kind.itemsize)
    fill: Any = "" if text else {"f": np.nan, "i": -1, "u": 0, "b": False}[kind.kind]
    # marks are plain (see SetArrays.mark); a CRC is for readers that do not look at our checksums
    codecs = None if kind.kind == "b" else (ZstdCodec(level=0), Crc32cCodec())
    array = group.create_array(name, shape=shape, chunks=chunks, dtype=str if text else kind, fill_value=fill,
                               dimension_names=dims, attributes=attrs or {}, compressors=codecs)  # fmt: skip
    if isinstance(values, np.ndarray):
        array[...] = values.astype(object) if text else values


def chunk_shape(dims: tuple[str, ...], shape: tuple[int, ...], chunk: int | None, item: int) -> tuple[int, ...]:
    """Whole groups along run; along step, then the rest, cut until a chunk has at most 32 MiB."""
    chunks = [max(1, n) for n in shape]
    if chunk is not None:
        chunks[dims.index("run")] = chunk
    for axis in sorted(range(len(dims)), key=lambda i: (dims[i] != "step", i)):
        if dims[axis] != "run":
            while math.prod(chunks) * item > _CHUNK_BYTES and chunks[axis] > 1:
                chunks[axis] = -(-chunks[axis] // 2)
    return tuple(chunks)


class SetArrays:
    """The arrays of one class set that its groups fill. A group is one chunk along run of each of them."""

    def __init__(self, folder: Path, names: list[str], done: str) -> None:
        import zarr

        members: Any = zarr.open_group(folder, mode="r+", use_consolidated=False)
        self.folder = folder
        self._arrays = {name: members[name] for name in names}
        self._done, self._done_name = members[done], done

    def write(self, group: Group, arrays: Arrays) -> None:
        for name, array in self._arrays.items():
            array[group.start : group.stop] = arrays[name]

    def files(self, group: Group) -> Iterator[str]:
        """The group's files, but for its mark. Zarr makes none for a chunk of nothing but fill values."""
        for name, array in self._arrays.items():
            for rest in product(*map(range, array.cdata_shape[1:])):
                file = f"{name}/{array.metadata.encode_chunk_key((group.chunk, *rest))}"
                if (self.folder / file).exists():
                    yield file

    def mark(self, group: Group) -> tuple[str, bytes]:
        """The file that says the group is complete, and its content: its chunk of ``done``, all true.

        It is put there as a file rather than assigned: it must appear at once and after all else, which Zarr does not
        promise of a chunk, and its checksum is written before it is.
        """
        key = self._done.metadata.encode_chunk_key((group.chunk,))
        return f"{self._done_name}/{key}", bytes([True]) * self._done.chunks[0]
