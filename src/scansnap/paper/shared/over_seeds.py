"""Runs of several seeds: differences paired by seed, and means with their 95% t interval in words and in figures.

The same seed means the same data and initial values, so the difference of two runs has less noise than either run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from scansnap.checks.arrays import FloatArray
from scansnap.measure.comparison import Comparison, Statement, compare, interval


def mean_and_half(values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Of values (places, seeds): the mean and half of its interval, 0 where one seed or a failed run leaves none."""
    comparison = compare(values)
    return comparison.mean, np.where(np.isfinite(comparison.half_width), comparison.half_width, 0.0)


def how(seeds: int) -> str:
    """What the numbers of a finding's detail are."""
    return f"mean ± 95% interval over {seeds} seeds" if seeds > 1 else "one seed"


def number(values: ArrayLike, signed: bool = True) -> str:
    """A number with its interval; alone where there is one seed, which :func:`how` says."""
    finite = np.ravel(np.asarray(values, dtype=np.float64))
    if len(finite) > 1 or not np.isfinite(finite[0]):
        return interval(finite, signed)
    return f"{finite[0]:{'+' if signed else ''}.3f}".replace("-", "−")


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
    at, known = np.asarray(x, dtype=np.float64), np.asarray(values, dtype=np.float64)
    mean, half = mean_and_half(known)
    options = {"marker": "o", "markersize": 5, "capsize": 3, "zorder": 3} | style
    ax.errorbar(at, mean, yerr=half, color=colour, **options)
    if known.shape[1] > 1:
        ax.plot(at + beside, known, ".", color=colour, alpha=0.6, markersize=4, zorder=2, markeredgewidth=0)


def band(ax: Any, x: ArrayLike, values: ArrayLike, *, colour: Any, label: str | None = None, **style: Any) -> None:
    """A curve over x: the mean over seeds with its interval as a band, and a thin line for each seed."""
    at, known = np.asarray(x, dtype=np.float64), np.asarray(values, dtype=np.float64)
    mean, half = mean_and_half(known)
    if known.shape[1] > 1:
        ax.plot(at, known, color=colour, linewidth=0.5, alpha=0.5, **style)
        ax.fill_between(at, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
    ax.plot(at, mean, color=colour, label=label, **style)


MOST_NAMED = 6
WORDS = {"n_query": "queries", "eta_z": "η_Z", "eta_y": "η_Y", "ratio": "η_Y/η_Z",
         "seq_class": "class"}  # columns, in a sentence  # fmt: skip


def paired(table: pd.DataFrame, value: str, *, by: Sequence[str], along: str, low: Any, high: Any) -> pd.DataFrame:
    """How ``value`` changes from ``low`` to ``high`` of ``along``: a row for each combination of ``by``, a column for
    each seed. A run that is missing or has no number leaves NaN, so that its case never agrees.
    """
    wide = table.pivot(index=[*by, "seed"], columns=along, values=value)
    return (wide[high] - wide[low]).unstack("seed")


def paired_steps(table: pd.DataFrame, value: str, *, by: Sequence[str], along: str) -> pd.DataFrame:
    """:func:`paired` for each two neighbouring values of ``along``, stacked."""
    steps = {
        f"{low:g} to {high:g}": paired(table, value, by=by, along=along, low=low, high=high)
        for low, high in pairwise(sorted(table[along].unique()))
    }
    return pd.concat(steps, names=[along])


def overall(table: pd.DataFrame, value: str, *, along: str, low: Any, high: Any) -> str:
    """The change averaged over everything else, seed by seed: mean ± half of its 95% interval."""
    averaged = table.groupby([along, "seed"])[value].agg(lambda column: column.mean(skipna=False)).reset_index()
    return interval(paired(averaged.assign(all=0), value, by=["all"], along=along, low=low, high=high).to_numpy()[0])


def exceptions(cases: pd.DataFrame, comparison: Comparison, statement: Statement) -> str:
    """The cases that do not agree, named if they are few, with the undecided ones apart; empty if all agree."""
    still = comparison.undecided(statement)
    parts = (("Against it: ", ~comparison.agree(statement) & ~still), ("Undecided: ", still))
    return " ".join(f"{word}{_named(cases.index[chosen])}." for word, chosen in parts if 0 < chosen.sum() <= MOST_NAMED)


def _named(cases: pd.Index) -> str:
    frame = cases.to_frame()
    return "; ".join(
        ", ".join(f"{WORDS[name]} = {value:g}" for name, value in zip(frame.columns, case, strict=True))
        for case in frame.itertuples(index=False)
    )
