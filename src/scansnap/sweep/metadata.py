"""Zarr arrays and group metadata with fixed bytes: no times, no order of directory listings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.storage import replacing

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
    shape = values.shape if isinstance(values, np.ndarray) else values
    kind = dtype if dtype is not None else values.dtype  # type: ignore[union-attr]
    text = kind.kind in "OUT"
    chunks = chunk_shape(dims, shape, chunk, 16 if text else kind.itemsize)
    fill: Any = "" if text else {"f": np.nan, "i": -1, "u": 0, "b": False}[kind.kind]
    # marks are written without Zarr, hence uncompressed
    extra: dict[str, Any] = {"compressors": None} if kind.kind == "b" else {}
    array = group.create_array(name, shape=shape, chunks=chunks, dtype=str if text else kind, fill_value=fill,
                               dimension_names=dims, attributes=attrs or {}, **extra)  # fmt: skip
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


def seal(folder: Path, *, complete: bool) -> None:
    """Say in a group whether it is complete, and repeat its members' metadata there: xarray opens it in one read."""
    own = json.loads((folder / "zarr.json").read_text())
    own["attributes"]["complete"] = int(complete)
    members = {}
    for place in sorted([*folder.glob("*/zarr.json"), *folder.glob("*/*/zarr.json")]):  # not among the chunks
        member = json.loads(place.read_text())
        member.pop("consolidated_metadata", None)
        members[place.parent.relative_to(folder).as_posix()] = member
    own["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": members}
    with replacing(folder / "zarr.json") as scratch:
        scratch.write_text(json.dumps(own, indent=2, sort_keys=True), encoding="utf-8")
