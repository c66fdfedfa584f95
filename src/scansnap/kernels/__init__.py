"""Compiled CPU kernels, called through ctypes (which lets go of the interpreter lock, so threads run at once).

They are an acceleration, never the only way: ``available()`` is False where the package was installed without a
compiler, and everything then runs through torch, more slowly and to the same numbers.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from scansnap.sampling import STIRLING_TABLE, SamplingTable

if TYPE_CHECKING:  # the kernels know nothing of the dynamics but the shape of its layout
    from scansnap.dynamics.layout import Layout

VECTOR = 16  # floats in a vector of fused.c; columns are padded to a multiple


def available() -> bool:
    """Whether both kernels were built when the package was installed."""
    return _file("sampling") is not None and _file("fused") is not None


def triton_available() -> bool:
    """Whether the CUDA sampler can be compiled."""
    return importlib.util.find_spec("triton") is not None


def sample(
    table: SamplingTable, seeds: np.ndarray, steps: np.ndarray, batch_size: int, length: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Classes (G, N, B) and, unless length is None, counts (G, N, B, S) in float32; see scansnap.sampling."""
    n_slots = table.p_slot.shape[1] if length is not None else 0
    cls = np.empty((len(seeds), len(steps), batch_size), dtype=np.int64)
    counts = np.empty((*cls.shape, n_slots), dtype=np.float32)
    chain = np.ascontiguousarray(table.conditional)
    log_rest = np.log1p(-np.minimum(chain, 1 - chain))
    constants = (
        len(steps), batch_size, len(table.p_class), n_slots, ctypes.c_double(length or 0),
        seeds.astype(np.int64), steps.astype(np.int64), table.class_edges, chain, log_rest, STIRLING_TABLE.numpy(),
        cls, counts,
    )  # fmt: skip
    _in_threads(_library("sampling").sample_places, len(seeds) * len(steps), constants, chunk=64)
    return cls, counts


class _Shape(ctypes.Structure):
    """``shape`` of fused.c."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("n_classes", "n_slots_max", "n_rows", "n_columns", "n_queries",
                                               "vocab_size", "batch_size")],
        *[(name, ctypes.c_void_p) for name in ("n_slots", "slots", "slot_row", "class_query", "target",
                                                "multiplicity", "inverse_multiplicity", "log_multiplicity")],
    ]  # fmt: skip


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def advance(
    layout: Layout,
    tables: Arrays,  # y (R, L, J), its velocity, z (R, Q, M), its velocity; float32
    *,
    stream: np.ndarray,  # (R,) which of the G data streams a run reads
    cls: np.ndarray,  # (G, N, B)
    counts: np.ndarray,  # (G, N, B, S)
    weight: np.ndarray,  # (G, N, B)
    rate_y: np.ndarray,  # (N, R)
    rate_z: np.ndarray,  # (N, R)
    momentum: np.ndarray,  # (R,)
) -> tuple[Arrays, np.ndarray]:
    """N momentum-SGD updates of every run: the new tables, and which runs are finite (drop the others')."""
    n_runs, _, columns = tables[0].shape
    tables = tuple(np.ascontiguousarray(table) for table in tables)  # type: ignore[assignment]
    n_steps, batch_size = cls.shape[1:]
    padded = -columns % VECTOR
    multiplicity = np.pad(layout.multiplicity, (0, padded))
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(multiplicity), -1e30)  # what is padded must vanish in the softmax
        inverse = np.where(multiplicity > 0, 1 / multiplicity, 0.0)
    index = [np.ascontiguousarray(a, dtype=np.int64) for a in
             (layout.n_slots, layout.slots, layout.slot_row, layout.class_query, layout.target)]  # fmt: skip
    real = [np.ascontiguousarray(a, dtype=np.float32) for a in (multiplicity, inverse, logs)]
    shape = _Shape(
        len(layout.slots), layout.slots.shape[1], len(layout.rows), columns + padded, len(layout.queries),
        layout.vocab_size, batch_size, *[a.ctypes.data for a in index], *[a.ctypes.data for a in real],
    )  # fmt: skip
    new: Arrays = tuple(np.empty_like(table) for table in tables)  # type: ignore[assignment]
    finite = np.zeros(n_runs, dtype=np.uint8)
    float32 = [np.ascontiguousarray(a, dtype=np.float32) for a in (counts, weight, rate_y, rate_z, momentum)]
    constants = (
        n_steps, ctypes.byref(shape), columns, np.ascontiguousarray(stream, dtype=np.int64),
        np.ascontiguousarray(cls), *float32, n_runs, *tables, *new, finite,
    )  # fmt: skip
    _in_threads(_library("fused").advance_runs, n_runs, constants, chunk=4)
    return new, finite.astype(bool)


def _in_threads(function: Any, total: int, constants: tuple[Any, ...], chunk: int) -> None:
    """function(first, last, *constants) over [0, total) in chunks, on as many threads as torch would use."""
    constants = tuple(ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else
                      ctypes.c_int64(a) if isinstance(a, int) else a for a in constants)  # fmt: skip
    threads = torch.get_num_threads()
    failed: list[Any]
    if threads == 1:  # no pool to start and to wait for: a live run makes many short calls
        failed = [function(ctypes.c_int64(0), ctypes.c_int64(total), *constants)]
    else:
        failed = _spread(function, total, constants, max(1, min(chunk, -(-total // threads))), threads)
    if any(failed):
        raise MemoryError("not enough memory for the scratch tables of a run")


def _spread(function: Any, total: int, constants: tuple[Any, ...], chunk: int, threads: int) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(function, ctypes.c_int64(a), ctypes.c_int64(min(a + chunk, total)), *constants)
                for a in range(0, total, chunk)]  # fmt: skip
        wait(jobs)
    return [job.result() for job in jobs]


@cache
def _file(name: str, variant: str | None = None) -> Path | None:
    """The kernel's library: of one variant, or the best one for this CPU's instruction set."""
    folder = Path(__file__).parent
    for one in (variant,) if variant else (torch.backends.cpu.get_cpu_capability().lower(), "default"):
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = folder / f"_{name}_{one}{suffix}"
            if path.exists():
                return path
    return None


@cache
def _library(name: str) -> ctypes.CDLL:
    path = _file(name)
    if path is None:
        raise RuntimeError(f"the compiled kernel {name} is not installed")
    return ctypes.CDLL(str(path))  # functions return int, which is what ctypes assumes
