"""The template of a sweep's store: metadata of all arrays and coordinates of all runs, without results.

Workers fill regions of its arrays (`scansnap.sweep.store`). A sweep and its plan determine its bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scansnap.results.trajectory import identity, versions
from scansnap.results.variables import COORDINATES
from scansnap.runs import run_fields
from scansnap.storage.checksums import NAME, ChecksumTable
from scansnap.storage.chunks import MARKER
from scansnap.storage.objects import entry_of_bytes
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import SweepPlan
from scansnap.sweep.schema import Schema, StoredVariable, summary
from scansnap.sweep.work import HEALTH

FORMAT = "scansnap sweep 3"
ROOT_CHUNK = 1 << 16  # runs in a chunk of the root's arrays
DONE = StoredVariable(MARKER, ("run",), (), np.dtype(bool), {"long_name": "whether the run's group is complete"})
_CHUNK_BYTES = 32 << 20
_CONSOLIDATED = "consolidated_metadata"

ClassSetNumber = int | None  # None: the root


def set_name(s: int) -> str:
    """The folder of a class set."""
    return f"classes-{s}.zarr"


def prefix_of(s: ClassSetNumber) -> str:
    """Prefix of the names of a class set's objects, or of the root's."""
    return "" if s is None else f"{set_name(s)}/"


@dataclass(frozen=True)
class StoreTemplate:
    """The content of a store before any run."""

    sweep: Sweep
    plan: SweepPlan
    schemas: tuple[Schema, ...]

    @cached_property
    def summary(self) -> tuple[StoredVariable, ...]:
        """The root's variables."""
        return summary(self.schemas[0].variables)

    def filled(self, s: ClassSetNumber) -> tuple[StoredVariable, ...]:
        """The arrays that workers fill, the markers last."""
        return (*(self.summary if s is None else self.schemas[s].variables), DONE)

    @property
    def n_bytes(self) -> int:
        """Size of the whole store before compression."""
        in_sets = sum(self.plan.n_runs * (schema.run_bytes + 80) for schema in self.schemas)
        return in_sets + len(self.sweep) * (sum(v.run_bytes for v in self.summary) + 80)

    def contents(self) -> dict[str, bytes]:
        """All objects of the template, by name."""
        import zarr

        from scansnap.storage.zarr_store import writing_all_chunks

        settings = self.sweep.settings.to_dict()
        if math.isinf(settings["context"]):
            settings["context"] = "inf"  # JSON has no infinity
        common: Any = {"settings": json.dumps({**settings, "device": self.plan.device})}
        own = {"format": FORMAT, "sweep": self.sweep.text, "plan": self.plan.to_json(),
               "versions": json.dumps(versions())}  # fmt: skip
        memory: dict[str, Any] = {}
        with writing_all_chunks():
            root = zarr.open_group(zarr.storage.MemoryStore(memory), mode="w", zarr_format=3, attributes=common | own)
            steps: Any = {"step": (("step",), np.array(self.sweep.settings.record, dtype=np.int64), {})}
            self._create_arrays(root, None, range(len(self.schemas)), steps, min(len(self.sweep), ROOT_CHUNK))
            for s, class_set in enumerate(self.sweep.class_sets):
                own = identity(class_set.classes) | {"class_settings": json.dumps(class_set.settings)}
                group = root.create_group(set_name(s), attributes=common | own)
                self._create_arrays(group, s, [s], self.schemas[s].fixed, self.plan.sizes[s])
        contents = {name: memory[name].to_bytes() for name in sorted(memory)}
        plain = {name: json.loads(content) for name, content in contents.items() if name.endswith("zarr.json")}
        for s in (*range(len(self.schemas)), None):
            prefix = prefix_of(s)
            contents[f"{prefix}zarr.json"] = _consolidated(plain, prefix)
            inside = tuple(map(set_name, range(len(self.schemas)))) if s is None else ()
            others = tuple(f"{folder}/" for folder in inside)
            files = {name.removeprefix(prefix): entry_of_bytes(content) for name, content in contents.items()
                     if name.startswith(prefix) and not name.startswith(others)}  # fmt: skip
            table = ChecksumTable(files, filled=tuple(v.name for v in self.filled(s)), inside=inside)
            contents[f"{prefix}{NAME}"] = table.to_json().encode()
        return contents

    def _create_arrays(
        self, group: Any, s: ClassSetNumber, sets: Sequence[int], fixed: dict[str, Any], chunk: int
    ) -> None:
        """Create the arrays of a folder with the runs of these class sets, and write the known values."""
        coords, n = self._coords(sets), self.plan.n_runs
        numbers = np.arange(sets[0] * n, (sets[-1] + 1) * n)
        for name, values in {"run": numbers, **coords}.items():
            long_name, units = COORDINATES.get(name, (name, ""))
            attrs = {"long_name": long_name, "units": units}
            create_array(group, name, ("run",), values, min(len(values), ROOT_CHUNK), attrs=attrs)
        for name, (dims, values, attrs) in fixed.items():
            create_array(group, name, dims, values, attrs=attrs)
        for v in self.filled(s):
            shape = (n * len(sets), *v.shape)
            create_array(group, v.name, v.dims, shape, chunk, dtype=v.dtype, attrs=v.attrs)
        labels = [name for name, (dims, *_) in fixed.items() if dims != (name,)]
        health = [v.name for v in self.filled(s) if v.name in HEALTH]
        group.attrs["coordinates"] = " ".join([*coords, *labels, *health, DONE.name])

    def _coords(self, sets: Sequence[int]) -> dict[str, np.ndarray]:
        """Coordinates of the runs of these class sets."""
        n, schema = self.plan.n_runs, self.schemas[0]
        taken = {*run_fields(), "run", "class_set", "done", *schema.fixed, *(v.name for v in schema.variables)}
        runs, class_sets = self.sweep.axes.take(0, n), [self.sweep.class_sets[s] for s in sets]
        coords = {name: np.tile(getattr(runs, name), len(sets)) for name in self.sweep.axes.coordinates}
        coords["class_set"] = np.repeat(np.array(sets), n)
        for name in dict.fromkeys(name for class_set in class_sets for name in class_set.settings):
            values = np.array([class_set.settings.get(name, np.nan) for class_set in class_sets])
            coords[f"classes_{name}" if name in taken else name] = np.repeat(values, n)  # seed is the runs'
        return coords


def _consolidated(plain: Mapping[str, dict[str, Any]], prefix: str) -> bytes:
    """The ``zarr.json`` of a group with that of its members, sorted by name so that its bytes are reproducible."""
    own = f"{prefix}zarr.json"
    members = {name.removeprefix(prefix).removesuffix("/zarr.json"): node for name, node in sorted(plain.items())
               if name.startswith(prefix) and name != own}  # fmt: skip
    together = {"kind": "inline", "must_understand": False, "metadata": members}
    return json.dumps({**plain[own], _CONSOLIDATED: together}, indent=2, sort_keys=True).encode()


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
    """Create an array for xarray in chunks of ``chunk`` runs with a CRC each; without values for a shape alone."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    shape = values.shape if isinstance(values, np.ndarray) else values
    kind = dtype if dtype is not None else values.dtype  # type: ignore[union-attr]
    text = kind.kind in "OUT"
    chunks = chunk_shape(dims, shape, chunk, 16 if text else kind.itemsize)
    fill: Any = "" if text else {"f": np.nan, "i": -1, "u": 0, "b": False}[kind.kind]
    array = group.create_array(name, shape=shape, chunks=chunks, dtype=str if text else kind, fill_value=fill,
                               dimension_names=dims, attributes=attrs or {},
                               compressors=(ZstdCodec(level=0), Crc32cCodec()))  # fmt: skip
    if isinstance(values, np.ndarray):
        array[...] = values.astype(object) if text else values


def chunk_shape(dims: tuple[str, ...], shape: tuple[int, ...], chunk: int | None, item: int) -> tuple[int, ...]:
    """Whole groups along run; steps and then other dimensions are halved until a chunk has at most 32 MiB."""
    chunks = [max(1, n) for n in shape]
    if chunk is not None:
        chunks[dims.index("run")] = chunk
    for axis in sorted(range(len(dims)), key=lambda i: (dims[i] != "step", i)):
        if dims[axis] != "run":
            while math.prod(chunks) * item > _CHUNK_BYTES and chunks[axis] > 1:
                chunks[axis] = -(-chunks[axis] // 2)
    return tuple(chunks)
