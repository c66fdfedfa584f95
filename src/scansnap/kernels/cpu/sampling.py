"""Classes and token counts drawn by sampling.c: the numbers of ``scansnap.sampling.counts``, faster."""

from __future__ import annotations

import ctypes

import numpy as np

from scansnap.kernels.cpu import library
from scansnap.sampling.counts import STIRLING_TABLE, SamplingTable


def sample(
    table: SamplingTable, seeds: np.ndarray, steps: np.ndarray, batch_size: int, length: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Classes (G, N, B) and, unless length is None, counts (G, N, B, S) in float32; see scansnap.sampling.counts."""
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
    library.in_threads(library.load("sampling").sample_places, len(seeds) * len(steps), constants, chunk=64)
    return cls, counts
