"""The Zarr arrays of a store: how they are cut into chunks, and what Zarr makes of their values.

Zarr encodes into memory. What it made is put into the store by us, object by object, so that each is there whole or
not at all, its checksum is known, and the bytes are the same on a disk and in a bucket.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

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
    # marks are plain: they are small; a CRC is for readers that do not look at our checksums
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


class Memory:
    """A Zarr store in memory."""

    def __init__(self) -> None:
        from zarr.storage import MemoryStore

        self._held: dict[str, Any] = {}
        self.store = MemoryStore(self._held)

    def put(self, name: str, content: bytes) -> None:
        from zarr.core.buffer import default_buffer_prototype

        self._held[name] = default_buffer_prototype().buffer.from_bytes(content)

    def take(self, chunks: bool = False) -> dict[str, bytes]:
        """What is there, by name, which then no longer is; with ``chunks`` not the metadata."""
        names = [name for name in self._held if not (chunks and name.endswith("zarr.json"))]
        return {name: self._held.pop(name).to_bytes() for name in sorted(names)}


class Encoder:
    """The arrays that the metadata of a Zarr group tells of, one chunk of runs at a time."""

    def __init__(self, metadata: bytes) -> None:
        from scansnap.storage.zarr_store import Checked, open_group

        self._memory = Memory()
        root = json.loads(metadata)
        members = root.pop("consolidated_metadata")["metadata"]
        for name, one in {"": root, **members}.items():
            self._memory.put(f"{name}/zarr.json" if name else "zarr.json", json.dumps(one).encode())
        self._group = open_group(Checked(self._memory.store), mode="r+")
        self._arrays: dict[str, Any] = {}

    def chunks(self, start: int, values: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        """The chunks with the values of runs from ``start`` on; none where there is nothing but fill values."""
        for name, value in values.items():
            if name not in self._arrays:
                self._arrays[name] = self._group[name]
            self._arrays[name][start : start + len(value)] = value
        return self._memory.take(chunks=True)
