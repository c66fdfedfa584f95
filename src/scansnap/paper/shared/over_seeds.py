"""How runs of several seeds are told and drawn: a dot for each, their mean, and the 95% t interval of the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks.arrays import FloatArray
from scansnap.measure.comparison import compare, interval


def mean_and_half(values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Of values (places, seeds): the mean and half of its interval, 0 where one seed or a failed run leaves none."""
    found = compare(values)
    return found.mean, np.where(np.isfinite(found.half_width), found.half_width, 0.0)


def how(seeds: int) -> str:
    """What the numbers of a finding's detail are."""
    return f"mean ± 95% interval over {seeds} seeds" if seeds > 1 else "one seed"


def number(values: ArrayLike, signed: bool = True) -> str:
    """A number with its interval; alone where there is one seed, which :func:`how` says."""
    seen = np.ravel(np.asarray(values, dtype=np.float64))
    if len(seen) > 1 or not np.isfinite(seen[0]):
        return interval(seen, signed)
    return f"{seen[0]:{'+' if signed else ''}.3f}".replace("-", "−")


def percent(values: ArrayLike, signed: bool = True) -> str:
    """Shares as percentages, to a tenth, or to the two digits a narrow interval leaves."""
    mean, half = (float(x[0]) for x in mean_and_half(100 * np.atleast_2d(np.asarray(values, dtype=np.float64))))
    if not np.isfinite(mean):
        return "a run failed"
    digits = 2 if half < 0.1 and half else 1
    width = f" ± {half:.{digits}f}" if half else ""
    return f"{mean:{'+' if signed else ''}.{digits}f}{width}%".replace("-", "−")


def marks(ax: Any, x: ArrayLike, values: ArrayLike, *, colour: Any, beside: float, **style: Any) -> None:
    """Mean and interval at each place of x, and a dot for each of the values (places, seeds).

    beside  how far to the right the dots stand, so that the interval does not hide them
    """
    at, seen = np.asarray(x, dtype=np.float64), np.asarray(values, dtype=np.float64)
    mean, half = mean_and_half(seen)
    options = {"marker": "o", "markersize": 5, "capsize": 3, "zorder": 3} | style
    ax.errorbar(at, mean, yerr=half, color=colour, **options)
    if seen.shape[1] > 1:
        ax.plot(at + beside, seen, ".", color=colour, alpha=0.6, markersize=4, zorder=2, markeredgewidth=0)


def band(ax: Any, x: ArrayLike, values: ArrayLike, *, colour: Any, label: str | None = None, **style: Any) -> None:
    """A curve over x: the mean over seeds with its interval as a band, and a thin line for each seed."""
    at, seen = np.asarray(x, dtype=np.float64), np.asarray(values, dtype=np.float64)
    mean, half = mean_and_half(seen)
    if seen.shape[1] > 1:
        ax.plot(at, seen, color=colour, linewidth=0.5, alpha=0.5, **style)
        ax.fill_between(at, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
    ax.plot(at, mean, color=colour, label=label, **style)
