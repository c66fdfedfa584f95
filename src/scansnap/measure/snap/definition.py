"""What it is to have snapped: one definition, for every curve that says how far attention has gone.

*Frozen* depends on the clock. ``gone`` is how far attention is from where it began, and its speed

    in t       the mean speed since the start, gone/t^a with a = 1: no derivative of a noisy curve
    in ln t    how far it goes over an e-fold, t to e·t, per unit of ln t

Attention has *snapped* on a clock if its speed there has a greatest value inside the record, is at most ``FROZEN`` of
that at the end of the record, and attention had gone a share ``STARTED`` of its way when it was fastest. The snapping
time is when it was fastest. Otherwise it has not snapped, and a reason says why: it is fastest at the end or still half
as fast (``NOT_YET``), it was fastest before the record could tell (``EARLIER``), or it had hardly begun
(``HARDLY_BEGUN``: what slows down as t^0.6 from its first steps on and goes twenty times as far after that).

What goes on as ln t for ever snaps in t and never in ln t; what goes on as ln ln t snaps on both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks.arrays import FloatArray

FROZEN = 0.5  # of its greatest speed, at most: most of what it did in a unit of time it no longer does
STARTED = 0.1  # of its way, at least: what is fastest before that has slowed down, but not come to rest
MOVED = 0.01  # of its attention (total variation) that must have moved: below, speeds are those of rounding and noise
E_FOLDS = 2.0  # of ln t that a record must have: the last one, and another to compare it with

NOT_YET, EARLIER = "not yet", "slows down from the first measurement on"
HARDLY_BEGUN = f"fastest when it had gone less than {STARTED:g} of its way"
UNMOVED, SHORT = "did not move", "the measurements span less than two e-folds"
_REASONS = np.array(["", NOT_YET, EARLIER, HARDLY_BEGUN])


def in_t(
    log_t: FloatArray, gone: FloatArray, log_gone: FloatArray | None = None, exponent: float = 1.0, *, between: bool
) -> tuple[FloatArray, np.ndarray]:
    """ln t of the snap in t and why there is none, along the last axis; ``log_gone`` if not ln ``gone`` is followed."""
    with np.errstate(divide="ignore"):
        height = (np.log(gone) if log_gone is None else log_gone) - exponent * log_t
    top = height.max(-1, keepdims=True)
    speed = np.exp(height - np.where(np.isfinite(top), top, 0.0))
    return snapped(log_t, speed, gone, between=between)


def e_folds(times: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Of ascending recorded times, the pairs an e-fold apart: for each end the latest start above 0 that is."""
    t = np.asarray(times, dtype=np.float64)
    start = np.searchsorted(t, t / np.e * (1 + 1e-9), side="right") - 1
    end = np.flatnonzero((start >= 0) & (t[start] > 0))
    return start[end], end


def over_e_folds(log_t: FloatArray, gone: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of a curve at times even in ln t: the middles of all e-folds, the speed over them, ``gone`` at their ends."""
    n = min(int(np.rint((len(log_t) - 1) / (log_t[-1] - log_t[0]))), len(log_t) - 1)  # places in an e-fold
    span = log_t[n] - log_t[0]
    return log_t[:-n] + span / 2, np.abs(gone[..., n:] - gone[..., :-n]) / span, gone[..., n:]


def snapped(log_t: FloatArray, speed: FloatArray, gone: FloatArray, *, between: bool) -> tuple[FloatArray, np.ndarray]:
    """ln t at which ``speed`` is greatest and the reason why that is no snap, "" where it is one; along the last axis.

    ``gone`` is how far attention is at the same times. ``between``: they are even in ln t, and a parabola through the
    three highest speeds finds the time between them. ∓∞ where the greatest speed is the first or the last.
    """
    top = speed.argmax(-1)
    last = speed.shape[-1] - 1

    def at(values: FloatArray, where: np.ndarray) -> FloatArray:
        return np.take_along_axis(values, where[..., None], -1)[..., 0]

    inner = np.clip(top, 1, max(last - 1, 0))
    peak = log_t[inner]
    if between and last >= 2:
        with np.errstate(divide="ignore", invalid="ignore"):
            left, mid, right = (np.log(at(speed, inner + d)) for d in (-1, 0, 1))
            bend = left - 2 * mid + right
            bent = np.isfinite(bend) & (bend < 0)
            offset = np.where(bent, (left - right) / np.where(bent, 2 * bend, 1.0), 0.0)
        peak = peak + np.clip(offset, -1, 1) * (log_t[1] - log_t[0])
    going = speed[..., -1] > FROZEN * at(speed, top)
    hardly = at(gone, top) < STARTED * gone.max(-1)
    why = np.where((top == last) | going, 1, np.where(top == 0, 2, np.where(hardly, 3, 0)))
    when = np.where(top == last, np.inf, np.where(top == 0, -np.inf, peak))
    return when, _REASONS[why]
