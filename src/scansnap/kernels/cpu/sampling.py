"""Classes and token counts by sampling.c: the same draws as ``scansnap.sampling.counts``, faster."""

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
    chain = table.conditional
    p = np.where(chain > 0.5, 1 - chain, chain)
    chances = np.ascontiguousarray(np.stack([p, p / (1 - p), np.log1p(-p), chain > 0.5], axis=-1))
    constants = (
        len(steps), batch_size, len(table.p_class), n_slots, ctypes.c_double(length or 0),
        seeds.astype(np.int64), steps.astype(np.int64), table.class_edges, chances, STIRLING_TABLE.numpy(), cls, counts,
    )  # fmt: skip
    library.in_threads(library.load("sampling").sample_places, len(seeds) * len(steps), constants, chunk=64)
    return cls, counts


def uniforms(
    seeds: np.ndarray, purpose: int, steps: np.ndarray, majors: np.ndarray, minors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The two uniforms of `scansnap.sampling.philox.uniforms` at every combination, (G, N, majors, minors)."""
    u, v = np.empty((2, len(seeds), len(steps), len(majors), len(minors)))
    places = [np.ascontiguousarray(a, dtype=np.int64) for a in (seeds, steps, majors, minors)]
    constants = (int(purpose), len(steps), len(majors), len(minors), *places, u, v)
    rows = len(seeds) * len(steps) * len(majors)
    library.in_threads(library.load("sampling").uniforms_of_rows, rows, constants, chunk=256)
    return u, v
