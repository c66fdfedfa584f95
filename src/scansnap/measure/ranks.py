"""How alike two tables are and rank their entries, row by row."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray


def rank_correlation(a: FloatArray, b: FloatArray) -> FloatArray:
    """Spearman's, row by row of (Q, M), over the places where both are finite; NaN where one of them is constant."""
    correlation = np.full(len(a), np.nan)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        both = np.isfinite(x) & np.isfinite(y)
        if both.sum() > 2 and np.ptp(x[both]) > 0 and np.ptp(y[both]) > 0:
            correlation[i] = np.corrcoef(_ranks(x[both]), _ranks(y[both]))[0, 1]
    return correlation


def _ranks(x: FloatArray) -> FloatArray:
    """From 1, equals with the mean of theirs: rankdata of SciPy, whose checks take longer than its work."""
    order = np.argsort(x)
    ordered = x[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) + 1  # how many are up to each value
    starts = np.append(0, ends[:-1])
    ranks = np.empty(len(x))
    ranks[order] = np.repeat((starts + ends + 1) / 2, ends - starts)
    return ranks


def slope(a: FloatArray, b: FloatArray) -> FloatArray:
    """Of b against a by least squares, row by row of (Q, M), over the places where both are finite; NaN where a is
    constant."""
    slopes = np.full(len(a), np.nan)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        both = np.isfinite(x) & np.isfinite(y)
        if both.sum() > 2 and np.ptp(x[both]) > 0:
            apart = x[both].astype(np.float64) - x[both].mean(dtype=np.float64)
            slopes[i] = apart @ y[both] / (apart @ apart)
    return slopes


def overlap(a: FloatArray, b: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """How much of the k largest of a are among the k largest of b, row by row, and what chance would give.

    Over the places where both are finite; both answers (Q,), the second k over the number of those places.
    """
    shared, chance = np.full(len(a), np.nan), np.full(len(a), np.nan)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        places = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if len(places) > k:
            top = [set(places[np.argsort(-values[places], kind="stable")[:k]]) for values in (x, y)]
            shared[i], chance[i] = len(top[0] & top[1]) / k, k / len(places)
    return shared, chance
