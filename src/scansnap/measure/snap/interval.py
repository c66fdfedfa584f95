"""When curves of one setting snap, on both clocks, with intervals: made smooth, and as they might have come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.measure.snap.definition import (
    E_FOLDS,
    EARLIER,
    HARDLY_BEGUN,
    NOT_YET,
    SHORT,
    UNMOVED,
    in_t,
    over_e_folds,
    snapped,
)
from scansnap.measure.snap.smoother import WINDOW, resampled, smoother, thinned

LEAST_TIMES = 8  # recorded times after 0 without which there is no curve to speak of
_GRID = 0.02  # where the smooth curve is read, in ln t
_SIGNAL = 5.0  # the movement counts where it is this many times its own uncertainty
_BEFORE = 3  # recorded times after 0 that must lie before the answer
_AGREE = 0.9  # share of the resampled curves that must snap inside the record
_WORDS = {NOT_YET: "attention had not frozen by the end of the record", EARLIER: "attention slows down from {since} on",
          HARDLY_BEGUN: f"attention was {HARDLY_BEGUN}",
          UNMOVED: "attention did not move from common to distinct tokens by more than its noise",
          SHORT: SHORT}  # fmt: skip

Judged = Callable[[FloatArray], tuple[FloatArray, np.ndarray]]


@dataclass(frozen=True)
class Moment:
    """On one clock: when attention was fastest with its 68% interval, and why that is no snap ("" where it is one).

    ``fastest`` is NaN where it is at an end of the record; the interval is then what is known.
    """

    fastest: float
    low: float
    high: float
    reason: str = ""

    @property
    def found(self) -> bool:
        return not self.reason

    @property
    def time(self) -> float:
        """The snapping time, NaN for none."""
        return self.fastest if self.found else np.nan

    @classmethod
    def unknown(cls, reason: str, low: float = 0.0, high: float = np.inf) -> Moment:
        return cls(np.nan, low, high, reason)

    def said(self) -> str:
        """In words, for a figure."""
        return f"step {self.time:.0f} ({self.low:.0f} to {self.high:.0f})" if self.found else "has not snapped"


@dataclass(frozen=True)
class Snap:
    """On both clocks; ``over`` says what the intervals are over."""

    t: Moment
    ln: Moment
    over: str = ""

    @classmethod
    def unknown(cls, reason: str) -> Snap:
        return cls(Moment.unknown(reason), Moment.unknown(reason))


def snap_of(
    times: FloatArray,
    curves: FloatArray,
    rng: np.random.Generator,
    *,
    exponent: float = 1.0,
    resamples: int = 400,
    eps: float = float(np.finfo(np.float64).eps),
    log_gone: Callable[[FloatArray], FloatArray] = np.log,
    folds: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> Snap:
    """The snap of curves (run, time) of one setting, each how far attention has gone at times above 0.

    log_gone  of the curve, what is followed in t: its logarithm, or that of a function of it
    folds     where a curve's ends do not tell how far attention went between them: the times in the middle of e-folds,
              and how far it went over each per unit of ln t (run, e-fold) and from the start to its end (run, e-fold)
    """
    over = f"{len(curves)} training seeds" if len(curves) > 1 else "one run, its own noise"
    finite = np.asarray(np.isfinite(curves).all(0))
    n_finite = len(finite) if finite.all() else int(np.argmin(finite))  # what comes after an underflow is lost
    if n_finite < LEAST_TIMES:
        return Snap.unknown("attention is too small for its floating-point type")
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
        return Snap.unknown(_WORDS[UNMOVED])
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
        return Snap(in_time, _in_folds(*folds, resamples=resamples, rng=rng), over)
    if grid[-1] - grid[0] < E_FOLDS:
        return Snap(in_time, Moment.unknown(SHORT), over)
    return Snap(in_time, _moment(speed_per_fold, curve, samples, wide, float(grid[0]), float(x[-1]), since), over)


def _in_folds(
    times: FloatArray, speeds: FloatArray, gone: FloatArray, *, resamples: int, rng: np.random.Generator
) -> Moment:
    """In ln t, from speeds over recorded e-folds (run, e-fold)."""
    x = np.log(times)
    if len(x) < 3 or x[-1] - x[0] < E_FOLDS - 1:
        return Moment.unknown(SHORT)
    smooth, wider = (smoother(x, x, width) for width in (1.0, 1.5))
    mean, way = speeds.mean(0), gone.mean(0)

    def judged(speed: FloatArray) -> tuple[FloatArray, np.ndarray]:
        return snapped(x, speed, np.broadcast_to(way, speed.shape), between=False)

    samples = resampled(x, speeds, resamples, rng) @ smooth.T
    return _moment(judged, smooth @ mean, samples, wider @ mean, float(x[0]), float(x[-1]), "the first recorded times")


def _moment(
    judged: Judged, curve: FloatArray, samples: FloatArray, wide: FloatArray, edge: float, last: float, since: str
) -> Moment:
    """One clock: the curve's own answer, unless too many of the resampled ones have another."""
    (peak, own), (peaks, whys) = judged(curve), judged(samples)
    if peak == np.inf or np.mean(peaks == np.inf) > 1 - _AGREE:
        return Moment.unknown(_WORDS[NOT_YET], low=float(np.exp(last)))
    if peak <= edge or np.mean(peaks <= edge) > 1 - _AGREE:
        return Moment.unknown(_WORDS[EARLIER].format(since=since), high=float(np.exp(edge)))
    low, high = np.clip(np.quantile(peaks, (0.16, 0.84), method="nearest"), edge, last) - peak
    other = judged(wide)[0]
    shift = other - peak if np.isfinite(other) else WINDOW
    t_low, t_high = np.exp(peak + np.array([-np.hypot(min(low, 0), shift), np.hypot(max(high, 0), shift)]))
    whys = whys[np.isfinite(peaks)]
    reasons, counts = np.unique(whys[whys != ""], return_counts=True)
    disagree = counts.sum() > (1 - _AGREE) * len(whys)
    reason = str(own) or (str(reasons[counts.argmax()]) if disagree else "")
    return Moment(float(np.exp(peak)), float(t_low), float(t_high), _WORDS[reason] if reason else "")
