"""Whole updates of momentum SGD by fused.c."""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np

from scansnap.kernels.cpu import library

VECTOR = 16  # the most floats in a vector of fused.c; columns are padded to a multiple


class IndexTables(Protocol):
    """The index tables of an update; see ``dynamics.engines.layout``."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def slots(self) -> np.ndarray: ...  # (K, S)
    @property
    def n_slots(self) -> np.ndarray: ...  # (K,)
    @property
    def slot_row(self) -> np.ndarray: ...  # (K, S)
    @property
    def rows(self) -> np.ndarray: ...  # (L,)
    @property
    def multiplicity(self) -> np.ndarray: ...  # (J,)
    @property
    def target(self) -> np.ndarray: ...  # (K,)
    @property
    def queries(self) -> np.ndarray: ...  # (Q,)
    @property
    def class_query(self) -> np.ndarray: ...  # (K,)


class _RunShape(ctypes.Structure):
    """``shape`` of fused.c."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("n_classes", "n_slots_max", "n_rows", "n_columns", "n_queries",
                                               "vocab_size", "batch_size")],
        *[(name, ctypes.c_void_p) for name in ("n_slots", "slots", "slot_row", "class_query", "target",
                                                "inverse_multiplicity", "log_multiplicity")],
    ]  # fmt: skip


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def advance(
    layout: IndexTables,
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
    """N momentum-SGD updates of every run: the new tables, and which runs are finite (ignore the others)."""
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
    real = [np.ascontiguousarray(a, dtype=np.float32) for a in (inverse, logs)]
    shape = _RunShape(
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
    library.in_threads(library.load("fused").advance_runs, n_runs, constants, chunk=2)
    return new, finite.astype(bool)
