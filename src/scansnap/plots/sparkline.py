"""A claim's curve, small enough for a line of a table: measured, predicted and what holds instead, in a unit box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.claims.claim import Claim

POINTS = 40  # of each line: more than a small picture shows
_FLAT, _NOTHING = 1e-6, 1e-9  # of the size, and in itself: less is rounding, not to be magnified

Line = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Sparkline:
    """Lines of (x, y) in [0, 1]², y upwards; empty where there is none."""

    setting: str
    measured: Line
    predicted: Line
    instead: Line = ()


def sparkline(claim: Claim, setting: str) -> Sparkline | None:
    """The curve of a claim on its own axes; None if it has none, or no two points that can be drawn on them."""
    curve, ours = claim.curve, claim.alternative
    if curve is None:
        return None
    predicted = np.broadcast_to(curve.predicted, curve.x.shape)
    lines = [(curve.x, curve.measured), (curve.x, predicted)]
    if ours is not None and ours.x is not None and ours.y is not None and len(ours.x):
        inside = (curve.x >= ours.x.min()) & (curve.x <= ours.x.max())
        lines = [(x[inside], y[inside]) for x, y in lines] + [(ours.x, ours.y)]
    with np.errstate(all="ignore"):
        scaled = [_finite(np.log(x) if curve.log_x else x, np.log(y) if curve.log_y else y) for x, y in lines]
    if len(scaled[0][0]) < 2 or len(scaled[1][0]) < 2:
        return None
    (left, right), (low, high) = (_span(np.concatenate([line[axis] for line in scaled])) for axis in (0, 1))
    width, height = right - left, high - low
    drawn = [
        tuple((round((a - left) / width, 4), round((b - low) / height, 4)) for a, b in zip(x, y, strict=True))
        for x, y in map(_thinned, scaled)
    ]
    return Sparkline(setting, *drawn)


def _finite(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(x, kind="stable")
    fine = order[np.isfinite(x[order]) & np.isfinite(y[order])]
    return x[fine].astype(np.float64), y[fine].astype(np.float64)


def _thinned(line: tuple[np.ndarray, np.ndarray]) -> tuple[list[float], list[float]]:
    """Points even along x, of those there are."""
    x, y = line
    if len(x) > POINTS:
        at = np.unique(np.searchsorted(x, np.linspace(x[0], x[-1], POINTS)).clip(0, len(x) - 1))
        x, y = x[at], y[at]
    return x.tolist(), y.tolist()


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high), 1e-300)
    if high - low > max(_FLAT * size, _NOTHING):
        return low, high
    return low - max(size / 10, _NOTHING), high + max(size / 10, _NOTHING)
