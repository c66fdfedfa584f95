"""Does attention stop moving, and when: in t, and in ln t, the stricter test.

The distance of attention is known from the start (``moved_from_start``), from one measurement to the next (``moved``)
and over about an e-fold of steps (``moved_fold``), as total variations. ``moved_fold`` gives the speed in ln t. Without
it (an attention that was not captured a fold ago) the distance is bounded by the triangle inequality: the change of
``moved_from_start`` from below, the sum of ``moved`` from above.

t_snap        the step of the greatest mean speed since the start, if attention has snapped in t
t_snap_ln     the middle of the e-fold (t to e·t) of the greatest speed per unit of ln t, if it has snapped in ln t
t_fastest_ln  the same whether or not it has snapped; ∞ if that is the last e-fold, 0 if it is the first
frozenness    1 − speed over the last e-fold / greatest speed over an e-fold, speeds per step;
              ``frozenness_ln`` per unit of ln t: 0 for movement as ln t, 1 for none

`scansnap.measure.snap_curves` defines snapping, for our own models too. A head *snaps* if frozenness_ln is at
least ``FROZEN`` for all distances within their bounds, and does not if it is below for all of them or if attention has
not moved. Noise of constant size is movement. In ln t, t is the training step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from scansnap.checks.arrays import FloatArray
from scansnap.measure.snap_curves import (
    E_FOLDS,
    EARLIER,
    FROZEN,
    HARDLY_BEGUN,
    MOVED,
    SHORT,
    UNMOVED,
    in_t,
    snapped,
)
from scansnap.probe.statistics.sampled import index_before_fold

GAPS = "not measured at every step"


class HeadSnap(NamedTuple):
    """The result for one head; a time that is NaN has a reason."""

    t_snap: float
    reason: str
    t_snap_ln: float
    reason_ln: str
    t_fastest_ln: float
    frozenness: float
    frozenness_ln: float
    low: float  # of frozenness_ln, from the bounds on the distances
    high: float
    snaps: float  # 1, 0 or NaN (undecided)


def measure_snap(steps: np.ndarray, moved: FloatArray, from_start: FloatArray, fold: FloatArray) -> HeadSnap:
    """From the distances since the last measurement, ``from_start`` and over an e-fold, (n,) each."""
    nan = float("nan")
    if len(steps) < 2 or not (np.isfinite(moved[1:]).all() and np.isfinite(from_start[1:]).all()):
        why = SHORT if len(steps) < 2 else GAPS
        return HeadSnap(nan, why, nan, why, nan, nan, nan, nan, nan, nan)
    from_start, path = np.concatenate([[0.0], from_start[1:]]), np.concatenate([[0.0], np.cumsum(moved[1:])])
    if from_start.max() < MOVED:
        return HeadSnap(nan, UNMOVED, nan, UNMOVED, nan, nan, nan, nan, nan, 0.0)
    t_snap, reason = _in_t((steps - steps[0])[1:], from_start[1:])
    start, end = e_folds(steps)
    if not len(end) or np.log(steps[-1] / steps[start[0]]) < E_FOLDS:
        return HeadSnap(t_snap, reason, nan, SHORT, nan, nan, nan, nan, nan, nan)
    log_t = np.log(np.maximum(steps, 1))
    span, known = log_t[end] - log_t[start], np.isfinite(fold[end])
    farthest = np.where(known, fold[end], path[end] - path[start])
    longest = farthest / span  # per unit of ln t
    least = np.where(known, fold[end], np.abs(from_start[end] - from_start[start])) / span
    per_step = farthest / (steps[end] - steps[start])
    top = int(longest.argmax())
    if longest[top] == 0:
        return HeadSnap(t_snap, reason, nan, EARLIER, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # all before the first e-fold
    middle, no_snap = snapped((log_t[start] + log_t[end]) / 2, longest, from_start[end], between=False)
    fastest, reason_ln = float(np.exp(middle)), str(no_snap)
    when = nan if reason_ln else fastest
    low = max(0.0, 1 - longest[-1] / least.max()) if least.max() > 0 else 0.0
    high = 1 - least[-1] / longest[top]
    snaps = 0.0 if high < FROZEN or reason_ln == HARDLY_BEGUN else 1.0 if low >= FROZEN else nan
    return HeadSnap(t_snap, reason, when, reason_ln, fastest, float(1 - per_step[-1] / per_step.max()),
                float(1 - longest[-1] / longest[top]), float(low), float(high), snaps)  # fmt: skip


def e_folds(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last index of the windows of ``moved_fold``."""
    begin = [index_before_fold(steps[:i].tolist(), int(step)) for i, step in enumerate(steps)]
    pairs = [(i, j) for j, i in enumerate(begin) if i is not None]
    start, end = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return start, end


def _in_t(t: np.ndarray, from_start: FloatArray) -> tuple[float, str]:
    if len(t) < 3:
        return float("nan"), SHORT
    when, why = in_t(np.log(t), from_start, between=False)
    return (float("nan"), str(why)) if str(why) else (float(np.rint(np.exp(when))), "")


def snap_findings(data: xr.Dataset) -> xr.Dataset:
    """What `Snap` has, of every head."""
    heads = ("layer", "head")
    steps = np.asarray(data["step"].values, dtype=np.int64)
    moved, from_start = (data[name].transpose(*heads, "step").values for name in ("moved", "moved_from_start"))
    fold = data["moved_fold"].transpose(*heads, "step").values if "moved_fold" in data else np.full_like(moved, np.nan)
    shape = moved.shape[:2]
    results = [measure_snap(steps, moved[at], from_start[at], fold[at]) for at in np.ndindex(shape)]

    def variable(name: str, meaning: str) -> tuple[tuple[str, str], np.ndarray, dict[str, str]]:
        values = [getattr(result, name) for result in results]
        return (
            heads,
            np.array(values, dtype=np.str_ if "reason" in name else float).reshape(shape),
            {"long_name": meaning},
        )

    return xr.Dataset(
        {
            "t_snap": variable("t_snap", "step of the snap in t: the greatest mean speed since the start"),
            "t_snap_reason": variable("reason", "why there is no t_snap"),
            "t_snap_ln": variable(
                "t_snap_ln", "step of the snap in ln t: middle of the e-fold with the greatest speed per unit of ln t"
            ),
            "t_snap_ln_reason": variable("reason_ln", "why there is no t_snap_ln"),
            "t_fastest_ln": variable(
                "t_fastest_ln", "the same whether it has snapped or not; ∞: the last e-fold, 0: the first"
            ),
            "frozenness": variable("frozenness", "1 − last speed per step over the greatest"),
            "frozenness_ln": variable("frozenness_ln", "the same per unit of ln t"),
            "frozenness_ln_low": variable("low", "lower bound of frozenness_ln, the same where moved_fold is known"),
            "frozenness_ln_high": variable("high", "upper bound of it"),
            "snaps": variable("snaps", "1: snaps, 0: does not, NaN: undecided"),
        }
    )
