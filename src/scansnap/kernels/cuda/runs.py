"""Whole runs of momentum SGD: a thread block owns a run (lanes/runs.cu; strips/runs.cu on tensor cores).

Data are drawn and sorted by counts.cu.

Sizes as in ``dynamics.engines.layout``: K classes, S slots, L rows and J columns of Y, Q queries, M tokens; R runs, G
data streams, N steps, B samples in a batch; E entries of Z that some class reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scansnap.kernels.cuda import compiler
from scansnap.kernels.cuda.shape import (
    COUNTS,
    MOST_COLUMNS,
    MOST_SLOTS,
    Shape,
    SlotTables,
    Strips,
    choose,
    choose_strips,
    index_of,
    real_of,
)
from scansnap.sampling.counts import STIRLING_TABLE, SamplingTable

SOURCES = {
    Shape: ("philox.cuh", "job.cuh", "lanes/lanes.cuh", "lanes/samples.cuh", "lanes/rows.cuh", "lanes/runs.cu"),
    Strips: ("philox.cuh", "job.cuh", "strips/samples.cuh", "strips/rows.cuh", "strips/runs.cu"),
}


@dataclass(frozen=True)
class KernelData:
    """Mini-batches of G streams at N steps, the samples of a step by class."""

    start: Tensor  # (G, N, K + 1) int32, first sample of a class
    rank: Tensor  # (G, N, K) int32, classes, the largest first
    counts: Tensor  # (G, N, B, S), the slots of a class in the program's order
    weight: Tensor | None  # (G, N, B) float32; None: all alike

    @classmethod
    def of(cls, classes: Tensor, counts: Tensor, weight: Tensor, slot_order: Tensor) -> KernelData:
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
    """``Job`` of job.cuh."""

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
    tensor_cores: bool  # that take float32 cut to 11 bits: from Ampere on

    @classmethod
    def cuda(cls, device: torch.device) -> Machine:
        properties = torch.cuda.get_device_properties(device)
        most = getattr(properties, "shared_memory_per_block_optin", 99 << 10)
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        return cls(device, partial(compiler.kernel, device=device), properties.multi_processor_count, int(most),
                   properties.major >= 8)  # fmt: skip


class InitialValues(NamedTuple):
    """Initial values that the seed decides: kind (zero, uniform, normal) and size of ``ModelConfig.init_scale``."""

    kind: str
    size: float


class KernelRates(NamedTuple):
    """Of the runs, (R,) each, and the schedules' factors, (N,) each; float64."""

    eta_y: np.ndarray
    eta_z: np.ndarray
    momentum: np.ndarray
    factor_y: np.ndarray
    factor_z: np.ndarray


class Program:
    """The kernels for one layout on one device."""

    def __init__(self, layout: SlotTables, machine: Machine, expected: np.ndarray, *, tensor: bool = True,
                 **chosen: Any) -> None:  # fmt: skip
        """``expected`` (K, S) are the classes' own counts, for the loss.

        ``tensor``: on tensor cores where they apply; ``chosen`` overrules parts of the shape for counts of one byte.
        """
        self.layout, self.machine = layout, machine
        self.index = index_of(layout)
        order = self.index["order"]
        tables = {name: a.astype(np.int32) for name, a in self.index.items()}
        tables |= real_of(layout, np.take_along_axis(expected, order, 1))
        wide = {"order": order, "slots": np.take_along_axis(layout.slots, order, 1)}  # for torch
        self.tables = packed(tables | wide, machine.device)
        place = {"place": np.argsort(order, axis=1).astype(np.int32)}
        self._draws = packed(_draw_tables(layout.table) | place, machine.device)
        self.n_entries = len(self.index["z_at"])
        self.shape = choose(layout, self.index, machine.shared_bytes)
        self.strips = (
            choose_strips(layout, self.index, machine.shared_bytes) if tensor and machine.tensor_cores else None
        )
        if self.strips:
            self.strips = self.strips._replace(**chosen)
        else:
            self.shape = self.shape._replace(**chosen)
        self._kernels: dict[torch.dtype, tuple[Any, int]] = {}
        self._samplers: dict[tuple[torch.dtype, int], Any] = {}

    @property
    def fits(self) -> bool:
        return (self.shared_bytes(self.shape) <= self.machine.shared_bytes and self.shape.columns <= MOST_COLUMNS
                and self.shape.slots <= MOST_SLOTS)  # fmt: skip

    def shared_bytes(self, shape: Shape | Strips) -> int:
        return shape.shared_bytes(len(self.layout.slots), len(self.layout.rows), self.n_entries)

    def shape_of(self, count: torch.dtype) -> Shape | Strips:
        """What is compiled for counts of this type."""
        return self.strips if self.strips and count == torch.uint8 else self.shape

    def kernel(self, count: torch.dtype) -> tuple[Any, int]:
        """For counts of this type, and how many blocks of it the device holds at once."""
        if count not in self._kernels:
            shape = self.shape_of(count)
            source = compiler.text(*SOURCES[type(shape)])
            kernel = self.machine.make(source, "train", shape.options(count), self.shared_bytes(shape))
            self._kernels[count] = kernel, kernel.blocks(32 * shape.warps) * self.machine.multiprocessors
        return self._kernels[count]

    def train(
        self,
        data: KernelData,
        stream: np.ndarray,  # (R,)
        seed: np.ndarray,  # (R,)
        rates: KernelRates,
        begin: InitialValues,
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
        shape, (kernel, at_once) = self.shape_of(data.counts.dtype), self.kernel(data.counts.dtype)
        assert isinstance(shape, Shape) or data.weight is None  # bytes are drawn, and what is drawn has one weight
        n_runs, (_, n_steps, batch_size, _) = len(stream), data.counts.shape
        blocks = min(n_runs, at_once)
        number = np.full(n_steps + 1, -1, dtype=np.int32)
        number[list(record)] = np.arange(len(record))
        float32 = {"dtype": torch.float32, "device": device}
        z_size = len(layout.queries) * layout.vocab_size
        inputs: dict[str, np.ndarray] = {
            "stream": stream.astype(np.int32),
            "seed": seed.astype(np.int64),
            "record": number,
        }
        n_z = z_size if every_z else self.n_entries
        inputs |= dict(zip(rates._fields, rates, strict=True))
        arrays: dict[str, Tensor] = packed(inputs, device) | {
            "record_z": torch.empty(n_runs, len(record), n_z, **float32),  # type: ignore[call-overload]
            "record_loss": torch.empty(n_runs, len(record), **float32),  # type: ignore[call-overload]
            "finite": torch.empty(n_runs, dtype=torch.uint8, device=device),
        }  # fmt: skip
        scratch = blocks * len(layout.rows) * shape.pitch
        for name, here in (("v_scratch", shape.v_shared), ("y_scratch", shape.y_shared)):
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
        kernel.launch(blocks, 32 * shape.warps, job)
        return arrays["record_z"], arrays["record_loss"], arrays["finite"]

    def draw(self, seeds: np.ndarray, first: int, n_steps: int, batch_size: int, length: int, own: np.ndarray | None
             ) -> KernelData:  # fmt: skip
        """The mini-batches of the steps from ``first``; ``own`` (K, S) is added to the counts."""
        k, s = self.layout.slots.shape
        kind = torch.uint8 if length + 1 < 256 else torch.uint16 if length + 1 < 65536 else torch.float32
        inputs = {"seeds": seeds.astype(np.int64)} | ({} if own is None else {"own": own.astype(np.float64)})
        arrays = (
            self._draws
            | packed(inputs, self.machine.device)
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
            options = ("--fmad=false", f"-DCOUNT={COUNTS[kind]}")
            self._samplers[key] = self.machine.make(source, "sample", options, shared)
        self._samplers[key].launch(len(seeds) * n_steps, min(128, -(-batch_size // 32) * 32), job)
        return KernelData(arrays["start"], arrays["rank"], arrays["counts"], None)


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
