"""Zarr arrays and group metadata with fixed bytes: no times, no order of directory listings."""

from __future__ import annotations

import json
import math
from pathlib import Path
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
    # marks are written without Zarr, hence plainly; a CRC is for readers that do not look at our checksums
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


def sealed(folder: Path, *, complete: bool) -> str:
    """The ``zarr.json`` of a group that says whether it is complete, and repeats its members' metadata: xarray opens it
    in one read."""
    own = json.loads((folder / "zarr.json").read_bytes())
    members = {}
    for place in sorted([*folder.glob("*/zarr.json"), *folder.glob("*/*/zarr.json")]):  # not among the chunks
        member = json.loads(place.read_bytes())
        member.pop("consolidated_metadata", None)
        members[place.parent.relative_to(folder).as_posix()] = member
    for group in (own, *(member for member in members.values() if member["node_type"] == "group")):
        group["attributes"]["complete"] = int(complete)
    own["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": members}
    return json.dumps(own, indent=2, sort_keys=True)
