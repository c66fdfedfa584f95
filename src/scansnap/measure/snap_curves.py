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

The estimate smooths the curves of one setting and resamples them, over training seeds or over the noise of one run, for
its intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


# --- estimates with intervals ---------------------------------------------------------------------------------

MIN_TIMES = 8  # recorded times after 0 without which there is no curve to speak of
_GRID = 0.02  # where the smooth curve is read, in ln t
_SIGNAL = 5.0  # the movement counts where it is this many times its own uncertainty
_BEFORE = 3  # recorded times after 0 that must lie before the answer
_AGREE = 0.9  # share of the resampled curves that must snap inside the record
_WORDS = {NOT_YET: "attention had not frozen by the end of the record", EARLIER: "attention slows down from {since} on",
          HARDLY_BEGUN: f"attention was {HARDLY_BEGUN}",
          UNMOVED: "attention did not move from common to distinct tokens by more than its noise",
          SHORT: SHORT}  # fmt: skip

FindSnap = Callable[[FloatArray], tuple[FloatArray, np.ndarray]]


@dataclass(frozen=True)
class SnapMoment:
    """On one clock: when attention was fastest with its 68% interval, and why that is no snap ("" where it is one).

    ``fastest`` is NaN where it is at an end of the record; the interval is then what is known.
    """

    fastest: float
    low: float
    high: float
    reason: str = ""

    @property
    def has_snapped(self) -> bool:
        return not self.reason

    @property
    def time(self) -> float:
        """The snapping time, NaN for none."""
        return self.fastest if self.has_snapped else np.nan

    @classmethod
    def unknown(cls, reason: str, low: float = 0.0, high: float = np.inf) -> SnapMoment:
        return cls(np.nan, low, high, reason)

    def describe(self) -> str:
        """In words, for a figure."""
        return f"step {self.time:.0f} ({self.low:.0f} to {self.high:.0f})" if self.has_snapped else "has not snapped"


@dataclass(frozen=True)
class SnapEstimate:
    """On both clocks; ``over`` says what the intervals are over."""

    t: SnapMoment
    ln: SnapMoment
    over: str = ""

    @classmethod
    def unknown(cls, reason: str) -> SnapEstimate:
        return cls(SnapMoment.unknown(reason), SnapMoment.unknown(reason))


def estimate_snap(
    times: FloatArray,
    curves: FloatArray,
    rng: np.random.Generator,
    *,
    exponent: float = 1.0,
    resamples: int = 400,
    eps: float = float(np.finfo(np.float64).eps),
    log_gone: Callable[[FloatArray], FloatArray] = np.log,
    folds: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> SnapEstimate:
    """The snap of curves (run, time) of one setting, each how far attention has gone at times above 0.

    log_gone  of the curve, what is followed in t: its logarithm, or that of a function of it
    folds     where a curve's ends do not tell how far attention went between them: the times in the middle of e-folds,
              and how far it went over each per unit of ln t (run, e-fold) and from the start to its end (run, e-fold)
    """
    over = f"{len(curves)} training seeds" if len(curves) > 1 else "one run, its own noise"
    finite = np.asarray(np.isfinite(curves).all(0))
    n_finite = len(finite) if finite.all() else int(np.argmin(finite))  # what comes after an underflow is lost
    if n_finite < MIN_TIMES:
        return SnapEstimate.unknown("attention is too small for its floating-point type")
    x, curves = thinned(np.log(times[:n_finite]), curves[:, :n_finite])
    grid = np.linspace(x[0], x[-1], max(50, int(np.ceil((x[-1] - x[0]) / _GRID)) + 1))
    smooth, wider = (smoother(x, grid, width) for width in (1.0, 1.5))
    mean = curves.mean(0)
    curve, wide = smooth @ mean, wider @ mean
    samples = resampled(x, curves, resamples, rng) @ smooth.T  # (resample, grid)
    # Early on, noise divided by t can be anything: look only from where the movement stands out.
    strength = curve / np.maximum(samples.std(0), 100 * eps / _SIGNAL)
    top = int(np.argmax(strength))
    if strength[top] < _SIGNAL:
        return SnapEstimate.unknown(_WORDS[UNMOVED])
    unclear = np.flatnonzero(strength[:top] < _SIGNAL)
    first = min(int(unclear[-1]) + 1 if len(unclear) else 0, len(grid) - 3)
    edge = float(max(x[_BEFORE - 1], grid[first]))  # up to here a peak cannot be told from noise or a steady decline
    since = "where it stands out of its noise" if edge > x[_BEFORE - 1] else "the first recorded times"

    def mean_speed(gone: FloatArray) -> tuple[FloatArray, np.ndarray]:
        with np.errstate(divide="ignore"):
            followed = log_gone(np.maximum(gone[..., first:], 0.0))
        return in_t(grid[first:], gone[..., first:], followed, exponent, between=True)

    def speed_per_fold(gone: FloatArray) -> tuple[FloatArray, np.ndarray]:
        return snapped(*over_e_folds(grid, gone), between=True)

    in_time = _moment(mean_speed, curve, samples, wide, edge, float(x[-1]), since)
    if folds is not None:
        return SnapEstimate(in_time, _in_folds(*folds, resamples=resamples, rng=rng), over)
    if grid[-1] - grid[0] < E_FOLDS:
        return SnapEstimate(in_time, SnapMoment.unknown(SHORT), over)
    return SnapEstimate(
        in_time, _moment(speed_per_fold, curve, samples, wide, float(grid[0]), float(x[-1]), since), over
    )


def _in_folds(
    times: FloatArray, speeds: FloatArray, gone: FloatArray, *, resamples: int, rng: np.random.Generator
) -> SnapMoment:
    """In ln t, from speeds over recorded e-folds (run, e-fold)."""
    x = np.log(times)
    if len(x) < 3 or x[-1] - x[0] < E_FOLDS - 1:
        return SnapMoment.unknown(SHORT)
    smooth, wider = (smoother(x, x, width) for width in (1.0, 1.5))
    mean, way = speeds.mean(0), gone.mean(0)

    def find_snap(speed: FloatArray) -> tuple[FloatArray, np.ndarray]:
        return snapped(x, speed, np.broadcast_to(way, speed.shape), between=False)

    samples = resampled(x, speeds, resamples, rng) @ smooth.T
    return _moment(
        find_snap, smooth @ mean, samples, wider @ mean, float(x[0]), float(x[-1]), "the first recorded times"
    )


def _moment(
    find_snap: FindSnap, curve: FloatArray, samples: FloatArray, wide: FloatArray, edge: float, last: float, since: str
) -> SnapMoment:
    """One clock: the curve's own answer, unless too many of the resampled ones have another."""
    (peak, own), (peaks, whys) = find_snap(curve), find_snap(samples)
    if peak == np.inf or np.mean(peaks == np.inf) > 1 - _AGREE:
        return SnapMoment.unknown(_WORDS[NOT_YET], low=float(np.exp(last)))
    if peak <= edge or np.mean(peaks <= edge) > 1 - _AGREE:
        return SnapMoment.unknown(_WORDS[EARLIER].format(since=since), high=float(np.exp(edge)))
    low, high = np.clip(np.quantile(peaks, (0.16, 0.84), method="nearest"), edge, last) - peak
    other = find_snap(wide)[0]
    shift = other - peak if np.isfinite(other) else WINDOW
    t_low, t_high = np.exp(peak + np.array([-np.hypot(min(low, 0), shift), np.hypot(max(high, 0), shift)]))
    whys = whys[np.isfinite(peaks)]
    reasons, counts = np.unique(whys[whys != ""], return_counts=True)
    disagree = counts.sum() > (1 - _AGREE) * len(whys)
    reason = str(own) or (str(reasons[counts.argmax()]) if disagree else "")
    return SnapMoment(float(np.exp(peak)), float(t_low), float(t_high), _WORDS[reason] if reason else "")


# --- smoothing and resampling ---------------------------------------------------------------------------------

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
