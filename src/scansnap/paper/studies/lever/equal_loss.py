"""Attention at equal loss: every run is read where its loss first is what all runs of its seed reach.

**The rule.** For an arm and a seed, the common loss is the highest, over ratios, of the lowest loss of a run. A run
is read at the first measurement at or below it: loss and all else are interpolated linearly between this measurement
and the one before it. Where the common loss is less than half of the way from the start to the best run's lowest loss,
or a run has no finite loss, the arm has no number for this seed: then nothing is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

LEAST_PROGRESS = 0.5  # of the way of the best run


def common_loss(losses: Sequence[np.ndarray]) -> float:
    """The loss at which the runs (S,) of one arm and seed are read; NaN where there is none."""
    lowest = [float(np.min(np.where(np.isfinite(loss), loss, np.inf))) for loss in losses]
    start = max(float(loss[0]) for loss in losses)
    common = max(lowest)
    if not np.isfinite([common, start]).all() or start - common < LEAST_PROGRESS * (start - min(lowest)):
        return float("nan")
    return common


def read_at(loss: np.ndarray, target: float, curves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Curves (S, …) where the loss first is at most ``target``; NaN where it never is."""
    curves = {name: np.asarray(values, dtype=np.float64) for name, values in curves.items()}
    nothing = {name: np.full(values.shape[1:], np.nan) for name, values in curves.items()}
    below = np.flatnonzero(loss <= target) if np.isfinite(target) else np.array([], dtype=int)
    if not len(below):
        return nothing
    i = int(below[0])
    if i == 0:
        return {name: values[0] for name, values in curves.items()}
    share = (loss[i - 1] - target) / (loss[i - 1] - loss[i]) if np.isfinite(loss[i - 1]) else 1.0
    return {name: values[i - 1] + share * (values[i] - values[i - 1]) for name, values in curves.items()}


def keys_needed(kept: Sequence[int], cost: np.ndarray, allowed: float) -> float:
    """The least number of keys from which on the loss is at most ``allowed`` higher; interpolated in its logarithm.

    ``cost`` is by number of keys, in ascending order. Infinite where even the last costs more.
    """
    above = np.flatnonzero(~(cost <= allowed))
    if not len(above):
        return float(kept[0])
    i = int(above[-1])
    if i == len(kept) - 1 or not np.isfinite(cost).all():
        return float("inf") if np.isfinite(cost).all() else float("nan")
    share = (cost[i] - allowed) / (cost[i] - cost[i + 1])
    return float(np.exp(np.log(kept[i]) + share * (np.log(kept[i + 1]) - np.log(kept[i]))))
