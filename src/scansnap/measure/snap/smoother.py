"""Curves over ln t made smooth, and as they might have come out: local parabolas, and other noise."""

from __future__ import annotations

import numpy as np

WINDOW = 0.5  # half-width of the smoothing window in ln t …
_NEIGHBOURS = 7  # … or as far as the seventh-nearest recorded time where they are sparse
_MOST_TIMES = 400  # more are averaged into this many, evenly in ln t


def smoother(x: np.ndarray, at: np.ndarray, width: float) -> np.ndarray:
    """(at, x): the linear map from values at x to local parabolas at ``at`` (tricube weights)."""
    offset = x - at[:, None]
    reach = np.sort(abs(offset), axis=1)[:, min(_NEIGHBOURS, len(x)) - 1] * 1.001
    h = np.maximum(WINDOW, reach)[:, None] * width
    weight = np.clip(1 - abs(offset / h) ** 3, 0, None) ** 3
    basis = np.stack([np.ones_like(offset), offset / h, (offset / h) ** 2])  # (3, at, x)
    normal = np.einsum("iax,ax,jax->aij", basis, weight, basis)
    first = np.linalg.solve(normal, np.broadcast_to(np.eye(3)[:, :1], (len(at), 3, 1)))[..., 0]
    return np.einsum("ai,iax,ax->ax", first, basis, weight)


def resampled(x: np.ndarray, curves: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Curves (resample, time) as they might have come out: other seeds, or for a single run other noise."""
    n_runs = len(curves)
    if n_runs > 1:
        weights = rng.multinomial(n_runs, np.full(n_runs, 1 / n_runs), size=resamples) / n_runs
        # resampled means spread less than those of fresh seeds would
        return curves.mean(0) + (weights - 1 / n_runs) @ curves * np.sqrt(n_runs / (n_runs - 1))
    curve = curves[0]
    to_records = smoother(x, x, 1.0)
    smooth = to_records @ curve
    # Logits sum up the noise of all steps, so it is its increments that are independent of each other. The
    # parabola follows part of the noise: what is left is scaled back up by the leverage.
    left = (curve - smooth) / np.sqrt(1 - np.clip(np.diag(to_records), 0, 0.9))
    signs = rng.choice([-1.0, 1.0], size=(resamples, len(x)))
    return smooth + np.cumsum(np.diff(left, prepend=0.0) * signs, axis=1)


def thinned(x: np.ndarray, curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most so many times, evenly in ln t: the means of what lies between."""
    if len(x) <= _MOST_TIMES:
        return x, curves
    cell = np.minimum(((x - x[0]) / (x[-1] - x[0]) * _MOST_TIMES).astype(int), _MOST_TIMES - 1)
    start = np.flatnonzero(np.diff(cell, prepend=-1))
    n_in = np.diff(np.append(start, len(x)))
    return np.add.reduceat(x, start) / n_in, np.add.reduceat(curves, start, axis=1) / n_in
