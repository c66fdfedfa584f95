"""Does attention freeze, and when: in t, and in ln t, which is the harder question.

How far attention has gone is known from the start (``moved_from_start``), from one measurement to the next (``moved``)
and over about an e-fold of steps (``moved_fold``), as total variations. The last says how fast attention moves in ln t.
Where it is not there (an attention that was not seen a fold ago), the distance lies between the change of the first and
the sum of the second, by the triangle inequality; the sum counts all noise that goes to and fro.

t_snap        the step at which the mean speed since the start is greatest, where attention has snapped in t
t_snap_ln     the middle of the e-fold (t to e·t) with the greatest speed per unit of ln t, where it has in ln t
t_fastest_ln  the same whether it has snapped or not: ∞ where it is the last e-fold, 0 where it is the first
frozenness    1 − speed over the last e-fold / greatest speed over an e-fold, speeds per step;
              ``frozenness_ln`` per unit of ln t: 0 for what moves as ln t for ever, 1 for what stands still

What it is to have snapped is said once, in :mod:`scansnap.measure.snap_curves`, for our own models too.
A head *snaps* where frozenness_ln is at least ``FROZEN``, whatever the distances are within their bounds, and does not
where it is below for all of them, or where it has not moved. Noise that goes on at the same size is movement: what is
as far from where it was an e-fold ago as ever has not frozen. In ln t the clock is the training's own step.
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
from scansnap.probe.statistics.movement import a_fold_before

GAPS = "not measured at every step"


class Snap(NamedTuple):
    """Of one head; times are NaN where the reason says why."""

    t_snap: float
    reason: str
    t_snap_ln: float
    reason_ln: str
    t_fastest_ln: float
    frozenness: float
    frozenness_ln: float
    low: float  # of frozenness_ln, from the bounds on the distances
    high: float
    snaps: float  # 1, 0, or NaN where undecided


def snap_of(steps: np.ndarray, moved: FloatArray, gone: FloatArray, fold: FloatArray) -> Snap:
    """From ``moved`` since the last measurement, ``gone`` since the first and ``fold`` over an e-fold, (n,) each."""
    nan = float("nan")
    if len(steps) < 2 or not (np.isfinite(moved[1:]).all() and np.isfinite(gone[1:]).all()):
        why = SHORT if len(steps) < 2 else GAPS
        return Snap(nan, why, nan, why, nan, nan, nan, nan, nan, nan)
    gone, path = np.concatenate([[0.0], gone[1:]]), np.concatenate([[0.0], np.cumsum(moved[1:])])
    if gone.max() < MOVED:
        return Snap(nan, UNMOVED, nan, UNMOVED, nan, nan, nan, nan, nan, 0.0)
    t_snap, reason = _in_t((steps - steps[0])[1:], gone[1:])
    start, end = e_folds(steps)
    if not len(end) or np.log(steps[-1] / steps[start[0]]) < E_FOLDS:
        return Snap(t_snap, reason, nan, SHORT, nan, nan, nan, nan, nan, nan)
    log_t = np.log(np.maximum(steps, 1))
    span, known = log_t[end] - log_t[start], np.isfinite(fold[end])
    farthest = np.where(known, fold[end], path[end] - path[start])
    longest = farthest / span  # per unit of ln t
    least = np.where(known, fold[end], np.abs(gone[end] - gone[start])) / span
    per_step = farthest / (steps[end] - steps[start])
    top = int(longest.argmax())
    if longest[top] == 0:
        return Snap(t_snap, reason, nan, EARLIER, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # all of it before the first e-fold
    middle, no_snap = snapped((log_t[start] + log_t[end]) / 2, longest, gone[end], between=False)
    fastest, reason_ln = float(np.exp(middle)), str(no_snap)
    when = nan if reason_ln else fastest
    low = max(0.0, 1 - longest[-1] / least.max()) if least.max() > 0 else 0.0
    high = 1 - least[-1] / longest[top]
    snaps = 0.0 if high < FROZEN or reason_ln == HARDLY_BEGUN else 1.0 if low >= FROZEN else nan
    return Snap(t_snap, reason, when, reason_ln, fastest, float(1 - per_step[-1] / per_step.max()),
                float(1 - longest[-1] / longest[top]), float(low), float(high), snaps)  # fmt: skip


def e_folds(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows of measurements over which ``moved_fold`` is taken: where each begins and ends."""
    begin = [a_fold_before(steps[:i].tolist(), int(step)) for i, step in enumerate(steps)]
    pairs = [(i, j) for j, i in enumerate(begin) if i is not None]
    start, end = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return start, end


def _in_t(t: np.ndarray, gone: FloatArray) -> tuple[float, str]:
    if len(t) < 3:
        return float("nan"), SHORT
    when, why = in_t(np.log(t), gone, between=False)
    return (float("nan"), str(why)) if str(why) else (float(np.rint(np.exp(when))), "")


def snap(data: xr.Dataset) -> xr.Dataset:
    """What :class:`Snap` has, of every head."""
    heads = ("layer", "head")
    steps = np.asarray(data["step"].values, dtype=np.int64)
    moved, gone = (data[name].transpose(*heads, "step").values for name in ("moved", "moved_from_start"))
    fold = data["moved_fold"].transpose(*heads, "step").values if "moved_fold" in data else np.full_like(moved, np.nan)
    shape = moved.shape[:2]
    found = [[snap_of(steps, moved[at], gone[at], fold[at]) for at in ((i, h) for h in range(shape[1]))]
             for i in range(shape[0])]  # fmt: skip

    def of(name: str, meaning: str) -> tuple[tuple[str, str], np.ndarray, dict[str, str]]:
        values = [getattr(one, name) for row in found for one in row]
        return (
            heads,
            np.array(values, dtype=np.str_ if "reason" in name else float).reshape(shape),
            {"long_name": meaning},
        )

    return xr.Dataset(
        {
            "t_snap": of("t_snap", "step of the snap in t: when the mean speed since the start is greatest"),
            "t_snap_reason": of("reason", "why there is no t_snap"),
            "t_snap_ln": of(
                "t_snap_ln", "step of the snap in ln t: middle of the e-fold with the greatest speed per unit of ln t"
            ),
            "t_snap_ln_reason": of("reason_ln", "why there is no t_snap_ln"),
            "t_fastest_ln": of(
                "t_fastest_ln", "the same whether it has snapped or not; ∞: the last e-fold, 0: the first"
            ),
            "frozenness": of("frozenness", "1 − last speed per step over the greatest"),
            "frozenness_ln": of("frozenness_ln", "the same per unit of ln t"),
            "frozenness_ln_low": of("low", "lower bound of frozenness_ln, the same where moved_fold is known"),
            "frozenness_ln_high": of("high", "upper bound of it"),
            "snaps": of("snaps", "1: snaps, 0: does not, NaN: undecided"),
        }
    )
