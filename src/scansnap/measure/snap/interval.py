"""Where a curve's mean speed is greatest, with an interval: one estimator, for every curve that says how far one is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.measure.snap.smoother import WINDOW, resampled, smoother, thinned

LEAST_TIMES = 8  # recorded times after 0 without which there is no curve to speak of
_GRID = 0.02  # where the smooth curve is read, in ln t
_SIGNAL = 5.0  # the movement counts where it is this many times its own uncertainty
_BEFORE = 3  # recorded times after 0 that must lie before the answer
_AGREE = 0.9  # share of the resampled curves that must turn over inside the record


@dataclass(frozen=True)
class Snap:
    """One measured snapping time."""

    t_snap: float
    t_snap_low: float
    t_snap_high: float
    reason: str = ""

    @property
    def found(self) -> bool:
        return not self.reason

    @classmethod
    def unknown(cls, reason: str, low: float = 0.0, high: float = np.inf) -> Snap:
        return cls(np.nan, low, high, reason)


def snap_of(
    times: np.ndarray, curves: np.ndarray, exponent: float, resamples: int, eps: float, rng: np.random.Generator
) -> Snap:
    """The snapping time of curves S (run, time) of one setting."""
    finite = np.isfinite(curves).all(0)
    n_finite = len(finite) if finite.all() else int(np.argmin(finite))  # what comes after an underflow is lost
    if n_finite < LEAST_TIMES:
        return Snap.unknown("attention is too small for its floating-point type")
    x, curves = thinned(np.log(times[:n_finite]), curves[:, :n_finite])
    grid = np.linspace(x[0], x[-1], max(50, int(np.ceil((x[-1] - x[0]) / _GRID)) + 1))
    smooth = smoother(x, grid, 1.0)
    mean = curves.mean(0)
    curve = smooth @ mean
    samples = resampled(x, curves, resamples, rng) @ smooth.T  # (resample, grid)
    # Early on, noise divided by t can be anything: look only from where the movement stands out.
    strength = curve / np.maximum(samples.std(0), 100 * eps / _SIGNAL)
    top = int(np.argmax(strength))
    if strength[top] < _SIGNAL:
        return Snap.unknown("attention did not move from common to distinct tokens by more than its noise")
    unclear = np.flatnonzero(strength[:top] < _SIGNAL)
    first = min(int(unclear[-1]) + 1 if len(unclear) else 0, len(grid) - 3)
    peak = float(_turn(grid[first:], curve[first:], exponent))
    peaks = _turn(grid[first:], samples[:, first:], exponent)
    edge = max(x[_BEFORE - 1], grid[first])  # a maximum up to here cannot be told from noise or a steady decline
    if peak == np.inf or np.mean(peaks == np.inf) > 1 - _AGREE:
        return Snap.unknown("attention had not frozen by the end of the record", low=float(np.exp(x[-1])))
    if peak <= edge or np.mean(peaks <= edge) > 1 - _AGREE:
        since = "where it stands out of its noise" if edge > x[_BEFORE - 1] else "the first recorded times"
        return Snap.unknown(f"attention slows down from {since} on", high=float(np.exp(edge)))
    low, high = np.clip(np.quantile(peaks, (0.16, 0.84), method="nearest"), grid[0], grid[-1]) - peak
    wide = float(_turn(grid[first:], (smoother(x, grid, 1.5) @ mean)[first:], exponent))
    shift = wide - peak if np.isfinite(wide) else WINDOW
    reach = np.array([-np.hypot(min(low, 0), shift), np.hypot(max(high, 0), shift)])
    t_low, t_high = np.exp(peak + reach)
    return Snap(float(np.exp(peak)), float(t_low), float(t_high))


def _turn(grid: np.ndarray, curves: np.ndarray, exponent: float) -> np.ndarray:
    """ln t where (χ − 1)/t^exponent is largest, χ = e^{2S}, for S along the last axis."""
    with np.errstate(divide="ignore"):
        log_gone = 2 * curves + np.log(-np.expm1(-2 * np.maximum(curves, 0)))  # −∞ for S ≤ 0
    return fastest(grid, log_gone, exponent)


def fastest(log_t: np.ndarray, log_gone: np.ndarray, exponent: float = 1.0, *, between: bool = True) -> np.ndarray:
    """ln t where the mean speed gone/t^exponent is greatest, along the last axis; ∓∞ at the ends of the record.

    ``between``: times are evenly spaced in ln t, and a parabola through the three highest points finds it between them.
    """
    height = log_gone - exponent * log_t
    top = height.argmax(-1)
    inner = np.clip(top, 1, len(log_t) - 2)
    peak = log_t[inner]
    if between:
        with np.errstate(invalid="ignore"):
            left, mid, right = (np.take_along_axis(height, (inner + d)[..., None], -1)[..., 0] for d in (-1, 0, 1))
            bend = left - 2 * mid + right
            bent = np.isfinite(bend) & (bend < 0)
            offset = np.where(bent, (left - right) / np.where(bent, 2 * bend, 1.0), 0.0)
        peak = peak + np.clip(offset, -1, 1) * (log_t[1] - log_t[0])
    return np.where(top == 0, -np.inf, np.where(top == len(log_t) - 1, np.inf, peak))
