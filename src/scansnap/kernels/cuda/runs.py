"""Whole runs of momentum SGD by runs.cu: a thread block owns a run; data are drawn and sorted by counts.cu.

Sizes as in ``dynamics.engines.layout``: K classes, S slots, L rows and J columns of Y, Q queries, M tokens; R runs, G
data streams, N steps, B samples in a batch; E entries of Z that some class reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from scansnap.kernels.cpu.fused import IndexTables
from scansnap.kernels.cuda import compiler
from scansnap.sampling.counts import STIRLING_TABLE, SamplingTable

MOST_COLUMNS = 1024  # of Y: a lane's share of them, times the samples of a tile, stays in registers
MOST_SLOTS = 256
_HELD = 120  # floats of a gradient that a lane holds
_COUNTS = {torch.uint8: "u8", torch.uint16: "u16", torch.float32: "float"}


class SlotTables(IndexTables, Protocol):
    """Index tables with what initial values and draws need beside."""

    @property
    def columns(self) -> np.ndarray: ...  # (J,)
    @property
    def table(self) -> SamplingTable: ...


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    slots: int
    columns: int
    lumped: bool
    groups: int
    held: bool
    late: bool
    warps: int
    tile: int
    small: int
    shared_chunk: int
    y_shared: bool
    v_shared: bool
    blocks: int

    def options(self, count: torch.dtype) -> tuple[str, ...]:
        """Definitions for the compiler."""
        given = {"SLOTS": self.slots, "COLUMNS": self.columns, "LUMPED": int(self.lumped), "GROUPS": self.groups,
                 "HELD": int(self.held), "LATE": int(self.late), "WARPS": self.warps, "TILE": self.tile, "SMALL": self.small,
                 "SHARED_CHUNK": self.shared_chunk,
                 "Y_SHARED": int(self.y_shared), "V_SHARED": int(self.v_shared), "BLOCKS": self.blocks,
                 "COUNT": _COUNTS[count]}  # fmt: skip
        return tuple(f"-D{name}={value}" for name, value in given.items())

    @property
    def pitch(self) -> int:
        """Columns of a row of Y in the kernel's memory."""
        own = -(-self.columns // (32 // self.groups))
        width = 4 if own % 4 == 0 else 2 if own % 2 == 0 else 1
        return -(-self.columns // width) * width

    def shared_bytes(self, classes: int, rows: int, entries: int) -> int:
        """Shared memory of a block; the same sum is in runs.cu."""
        tables = -(-rows * self.pitch * (self.y_shared + self.v_shared) // 4) * 4
        wide = self.groups * self.tile
        wide = -(-wide // 4) * 4
        of_warp = self.slots * (wide + (5 if self.held else 9) + 2) + 2 * wide
        tables += -(-self.shared_chunk * self.pitch // 4) * 4 if self.late else 0
        scratch = self.warps * of_warp + 2 * entries + classes * (self.slots + 1)
        return 4 * (tables + scratch + classes * self.slots + 2 * (2 * classes + 1) + 1)


@dataclass(frozen=True)
class Data:
    """Mini-batches of G streams at N steps, the samples of a step by class."""

    start: Tensor  # (G, N, K + 1) int32, first sample of a class
    rank: Tensor  # (G, N, K) int32, classes, the largest first
    counts: Tensor  # (G, N, B, S), the slots of a class in the program's order
    weight: Tensor | None  # (G, N, B) float32; None: all alike

    @classmethod
    def of(cls, classes: Tensor, counts: Tensor, weight: Tensor, slot_order: Tensor) -> Data:
        """From samples in any order: classes (G, N, B), counts (G, N, B, S), weights (G, N, B).

        ``slot_order`` (K, S) is the program's.
        """
        n_classes = len(slot_order)
        order = classes.argsort(dim=-1, stable=True)
        size = torch.zeros(*classes.shape[:2], n_classes, dtype=torch.int64, device=classes.device)
        size.scatter_add_(-1, classes, torch.ones_like(classes))
        start = torch.nn.functional.pad(size.cumsum(-1), (1, 0))
        rank = size.argsort(dim=-1, descending=True, stable=True)
        sorted_counts = torch.take_along_dim(counts, order[..., None], 2).to(torch.float32)
        sorted_counts = sorted_counts.gather(-1, slot_order[classes.gather(-1, order)])
        ordered = weight.gather(-1, order).to(torch.float32).contiguous()
        return cls(start.to(torch.int32), rank.to(torch.int32), sorted_counts, ordered)


class _Job(ctypes.Structure):
    """``Job`` of runs.cu."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in ("n_classes", "n_rows", "n_z", "n_shared", "batch_size", "n_steps", "n_runs",
                                            "z_size", "vocab_size", "n_records", "init")],
        ("even", ctypes.c_float),
        ("init_size", ctypes.c_double),
        *[(name, ctypes.c_void_p) for name in (
            "n_slots", "n_own", "row", "slot_z", "target", "shared_rows", "z_first", "z_list", "z_at",
            "row_token", "column_token", "queries", "multiplicity", "inverse_multiplicity",
            "log2_multiplicity", "expected", "p_class", "start", "rank", "counts", "weight", "stream", "seed",
            "factor_y", "factor_z", "eta_y", "eta_z", "momentum", "y", "v", "z", "vz", "new_y", "new_v", "new_z",
            "new_vz", "v_scratch", "y_scratch", "record", "entry", "record_z", "record_loss", "finite")],
    ]  # fmt: skip


class _Draws(ctypes.Structure):
    """``Draws`` of counts.cu."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in ("n_classes", "n_slots", "batch_size", "n_steps")],
        ("first_step", ctypes.c_longlong),
        ("length", ctypes.c_double),
        *[(name, ctypes.c_void_p) for name in ("seeds", "class_edges", "conditional", "log_rest", "stirling", "own",
                                               "place", "start", "rank", "counts")],
    ]  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """What kernels run on: how to make them, and how many blocks and how much shared memory there are."""

    device: torch.device
    make: Callable[[str, str, tuple[str, ...], int], Any]  # source, name, options, shared bytes
    multiprocessors: int
    shared_bytes: int  # a block can have

    @classmethod
    def cuda(cls, device: torch.device) -> Machine:
        found = torch.cuda.get_device_properties(device)
        most = getattr(found, "shared_memory_per_block_optin", 99 << 10)
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        return cls(device, partial(compiler.kernel, device=device), found.multi_processor_count, int(most))


class Begin(NamedTuple):
    """Initial values that the seed decides: kind (zero, uniform, normal) and size, as ``Model.init_scale`` has them."""

    kind: str
    size: float


class Rates(NamedTuple):
    """Of the runs, (R,) each, and the schedules' factors, (N,) each; float64."""

    eta_y: np.ndarray
    eta_z: np.ndarray
    momentum: np.ndarray
    factor_y: np.ndarray
    factor_z: np.ndarray


class Program:
    """The kernels for one layout on one device."""

    def __init__(self, layout: SlotTables, machine: Machine, expected: np.ndarray, **chosen: Any) -> None:
        """``expected`` (K, S) are the classes' own counts, for the loss; ``chosen`` overrules parts of the shape."""
        self.layout, self.machine = layout, machine
        self.index = _index(layout)
        order = self.index["order"]
        tables = {name: a.astype(np.int32) for name, a in self.index.items()}
        tables |= _real(layout, np.take_along_axis(expected, order, 1))
        wide = {"order": order, "slots": np.take_along_axis(layout.slots, order, 1)}  # for torch
        self.tables = packed(tables | wide, machine.device)
        place = {"place": np.argsort(order, axis=1).astype(np.int32)}
        self._draws = packed(_draw_tables(layout.table) | place, machine.device)
        self.n_entries = len(self.index["z_at"])
        self.shape = self._shape()._replace(**chosen)
        self.shared_bytes = self.shape.shared_bytes(len(layout.slots), len(layout.rows), self.n_entries)
        self._kernels: dict[torch.dtype, tuple[Any, int]] = {}

    def _shape(self) -> Shape:
        """Tables in shared memory as far as they fit, and as many warps as there is work for."""
        layout = self.layout
        slots, columns = layout.slots.shape[1], len(layout.multiplicity)
        lumped = bool((layout.multiplicity != 1).any())
        groups = _groups(columns, slots)
        own = -(-columns // (32 // groups))
        held = own * slots <= _HELD
        tile = max(1, min(8, 64 // own))
        tile = 1 << (tile.bit_length() - 1)
        most_shared = int((layout.n_slots - self.index["n_own"]).max())
        chunk = max(1, min(most_shared, 80 // own, 16))
        late = not held and most_shared <= chunk and self._same_shared()
        for y_shared, v_shared in ((True, True), (True, False), (False, False)):
            warps = min(8, len(layout.slots)) if columns > 64 else 1
            small = max(1, tile // 2)
            shape = Shape(slots, columns, lumped, groups, held, late, warps, tile, small, chunk, y_shared, v_shared, 1)
            if shape.shared_bytes(len(layout.slots), len(layout.rows), self.n_entries) <= self.machine.shared_bytes:
                return shape
        return shape

    def _same_shared(self) -> bool:
        """Whether all classes share the same rows, in the same places."""
        index = self.index
        rows = [row[own:n] for row, own, n in zip(index["row"], index["n_own"], index["n_slots"], strict=True)]
        return all(np.array_equal(one, index["shared_rows"]) for one in rows)

    @property
    def fits(self) -> bool:
        return (self.shared_bytes <= self.machine.shared_bytes and self.shape.columns <= MOST_COLUMNS
                and self.shape.slots <= MOST_SLOTS)  # fmt: skip

    def kernel(self, count: torch.dtype) -> tuple[Any, int]:
        """For counts of this type, and how many blocks of it the device holds at once."""
        if count not in self._kernels:
            source = compiler.text("philox.cuh", "runs.cu")
            kernel = self.machine.make(source, "train", self.shape.options(count), self.shared_bytes)
            self._kernels[count] = kernel, kernel.blocks(32 * self.shape.warps) * self.machine.multiprocessors
        return self._kernels[count]

    def train(
        self,
        data: Data,
        stream: np.ndarray,  # (R,)
        seed: np.ndarray,  # (R,)
        rates: Rates,
        begin: Begin,
        *,
        state: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,  # y (R, L, J), its velocity, z (R, Q, M), its own
        new: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,  # filled
        record: tuple[int, ...] = (),  # after so many of these steps
        every_z: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """N updates of every run: z and loss (R, records) of the recorded steps, and what is finite.

        z is (R, records, E), or with ``every_z`` (R, records, Q M).
        """
        layout, device = self.layout, self.machine.device
        kernel, at_once = self.kernel(data.counts.dtype)
        n_runs, (_, n_steps, batch_size, _) = len(stream), data.counts.shape
        blocks = min(n_runs, at_once)
        number = np.full(n_steps + 1, -1, dtype=np.int32)
        number[list(record)] = np.arange(len(record))
        float32 = {"dtype": torch.float32, "device": device}
        z_size = len(layout.queries) * layout.vocab_size
        given: dict[str, np.ndarray] = {
            "stream": stream.astype(np.int32),
            "seed": seed.astype(np.int64),
            "record": number,
        }
        n_z = z_size if every_z else self.n_entries
        given |= dict(zip(rates._fields, rates, strict=True))
        arrays: dict[str, Tensor] = packed(given, device) | {
            "record_z": torch.empty(n_runs, len(record), n_z, **float32),  # type: ignore[call-overload]
            "record_loss": torch.empty(n_runs, len(record), **float32),  # type: ignore[call-overload]
            "finite": torch.empty(n_runs, dtype=torch.uint8, device=device),
        }  # fmt: skip
        scratch = blocks * len(layout.rows) * self.shape.pitch
        for name, here in (("v_scratch", self.shape.v_shared), ("y_scratch", self.shape.y_shared)):
            if not here:
                arrays[name] = torch.empty(scratch, **float32)  # type: ignore[call-overload]
        for prefix, tables in (("", state), ("new_", new)):
            if tables is not None:
                assert all(t.is_contiguous() and t.dtype == torch.float32 for t in tables)
                arrays |= {prefix + name: t for name, t in zip(("y", "v", "z", "vz"), tables, strict=True)}
        arrays |= {"start": data.start, "rank": data.rank, "counts": data.counts}
        left_out = ("slots", "order") if every_z else ("slots", "order", "entry")
        arrays |= {name: a for name, a in self.tables.items() if name not in left_out}
        if data.weight is not None:
            arrays["weight"] = data.weight
        job = _Job(
            n_classes=len(layout.slots), n_rows=len(layout.rows), n_z=self.n_entries,
            n_shared=len(self.index["shared_rows"]), batch_size=batch_size, n_steps=n_steps, n_runs=n_runs,
            z_size=z_size, vocab_size=layout.vocab_size, n_records=len(record),
            init=("zero", "uniform", "normal").index(begin.kind), even=1 / batch_size, init_size=begin.size,
            **{name: a.data_ptr() for name, a in arrays.items()},
        )  # fmt: skip
        kernel.launch(blocks, 32 * self.shape.warps, job)
        return arrays["record_z"], arrays["record_loss"], arrays["finite"]

    def draw(self, seeds: np.ndarray, first: int, n_steps: int, batch_size: int, length: int, own: np.ndarray | None
             ) -> Data:  # fmt: skip
        """The mini-batches of the steps from ``first``; ``own`` (K, S) is added to the counts."""
        k, s = self.layout.slots.shape
        kind = torch.uint8 if length + 1 < 256 else torch.uint16 if length + 1 < 65536 else torch.float32
        given = {"seeds": seeds.astype(np.int64)} | ({} if own is None else {"own": own.astype(np.float64)})
        arrays = (
            self._draws
            | packed(given, self.machine.device)
            | {
                "start": torch.empty(len(seeds), n_steps, k + 1, dtype=torch.int32, device=self.machine.device),
                "rank": torch.empty(len(seeds), n_steps, k, dtype=torch.int32, device=self.machine.device),
                "counts": torch.empty(len(seeds), n_steps, batch_size, s, dtype=kind, device=self.machine.device),
            }
        )
        job = _Draws(n_classes=k, n_slots=s, batch_size=batch_size, n_steps=n_steps, first_step=first, length=length,
                     **{name: a.data_ptr() for name, a in arrays.items()})  # fmt: skip
        source = compiler.text("philox.cuh", "counts.cu")
        shared = 1024 + 4 * (batch_size + k)
        key = (kind, shared)
        if key not in self._samplers:
            options = ("--fmad=false", f"-DCOUNT={_COUNTS[kind]}")
            self._samplers[key] = self.machine.make(source, "sample", options, shared)
        self._samplers[key].launch(len(seeds) * n_steps, min(128, -(-batch_size // 32) * 32), job)
        return Data(arrays["start"], arrays["rank"], arrays["counts"], None)

    @cached_property
    def _samplers(self) -> dict[Any, Any]:
        return {}


def packed(arrays: dict[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Arrays on the device by one copy: a small one costs as much as a large one."""
    starts, size = {}, 0
    for name, array in arrays.items():
        starts[name], size = size, size + -(-array.nbytes // 16) * 16
    buffer = np.empty(size, dtype=np.uint8)
    for name, array in arrays.items():
        buffer[starts[name] : starts[name] + array.nbytes] = np.frombuffer(np.ascontiguousarray(array), dtype=np.uint8)
    there = torch.from_numpy(buffer).to(device)
    kinds = {name: torch.from_numpy(np.empty(0, dtype=array.dtype)).dtype for name, array in arrays.items()}
    return {name: there[starts[name] : starts[name] + array.nbytes].view(kinds[name]).view(array.shape)
            for name, array in arrays.items()}  # fmt: skip


def _draw_tables(table: SamplingTable) -> dict[str, np.ndarray]:
    chain = table.conditional
    rest = np.log1p(-np.minimum(chain, 1 - chain))
    return {"class_edges": table.class_edges, "conditional": chain, "log_rest": rest,
            "stirling": STIRLING_TABLE.numpy()}  # fmt: skip


def _groups(columns: int, slots: int) -> int:
    """Groups of lanes in a warp: several leave fewer places empty, as long as a class's gradient stays in registers."""
    own = {groups: -(-columns // (32 // groups)) for groups in (1, 2, 4)}
    held = [g for g in own if g == 1 or own[g] * -(-slots // g) * g <= _HELD]
    return min(held, key=lambda g: (own[g] * (32 // g), g))


def _index(layout: SlotTables) -> dict[str, np.ndarray]:
    """Whole numbers by the names of ``Job``; ``order`` is the slot at each place."""
    k, s = layout.slots.shape
    real = np.arange(s) < layout.n_slots[:, None]
    readers = np.zeros(len(layout.rows), dtype=np.int64)
    np.add.at(readers, layout.slot_row[real], 1)  # a class has a token once
    own = real & (readers[layout.slot_row] == 1)
    order = np.argsort(np.where(own, 0, np.where(real, 1, 2)), axis=1, kind="stable")  # (K, S) slot at each place
    slots, real = np.take_along_axis(layout.slots, order, 1), np.take_along_axis(real, order, 1)
    entry = layout.class_query[:, None] * layout.vocab_size + slots
    entries, slot_z = np.unique(entry[real], return_inverse=True)
    by_slot = np.zeros((k, s), dtype=np.int64)
    by_slot[real] = slot_z
    at = np.flatnonzero(real.ravel())  # class · S + slot
    listed = at[np.argsort(slot_z, kind="stable")]
    first = np.append(0, np.cumsum(np.bincount(slot_z, minlength=len(entries))))
    number = np.full(len(layout.queries) * layout.vocab_size, -1)
    number[entries] = np.arange(len(entries))
    return {
        "n_slots": layout.n_slots, "n_own": own.sum(1), "order": order,
        "row": np.take_along_axis(layout.slot_row, order, 1), "slot_z": by_slot, "target": layout.target,
        "shared_rows": np.flatnonzero(readers != 1), "z_first": first, "z_list": listed, "z_at": entries,
        "row_token": layout.rows, "column_token": np.maximum(layout.columns, 0), "queries": layout.queries,
        "entry": number,
    }  # fmt: skip


def _real(layout: SlotTables, expected: np.ndarray) -> dict[str, np.ndarray]:
    m = layout.multiplicity
    found = {"multiplicity": m, "inverse_multiplicity": 1 / m, "log2_multiplicity": np.log2(m), "expected": expected,
             "p_class": layout.table.p_class}  # fmt: skip
    return {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in found.items()}
