"""The numbers behind a finding: what was tested in each case and seed, and the few that are told of them.

A family of cases over seeds is told by one number, its mean over the cases with the 95% t interval over seeds. What has
no noise (a flow, a formula) is told case by case; of many cases the least, the middle and the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from scansnap.measure.comparison import Comparison, Statement, compare
from scansnap.paper.shared.paired import WORDS

MOST_TOLD = 8  # exact cases, one by one
ROUNDING = 1e-6  # of a number without noise


@dataclass(frozen=True)
class Number:
    """One number of a finding. ``half_width`` is that of its 95% interval: 0 if exact, infinite if unknown."""

    case: str  # empty: of all cases together
    value: float
    half_width: float


@dataclass(frozen=True)
class Points:
    """What was tested: a row for each case, in it a value for each seed, or one where nothing is random."""

    values: tuple[tuple[float, ...], ...]
    cases: tuple[str, ...] = ()  # names of the rows; empty where they have none
    wanted: Statement | None = None  # which side of the margin agrees
    margin: float = 0.0
    exact: bool = False  # no noise

    @classmethod
    def of(cls, found: Comparison, wanted: Statement) -> Points:
        """Of a family of comparisons."""
        return cls(_rows(found.differences), named(found.index), wanted, found.margin, found.exact)

    @classmethod
    def without_noise(cls, values: ArrayLike, cases: tuple[str, ...] = ()) -> Points:
        """One value for each case."""
        return cls(_rows(np.ravel(np.asarray(values, dtype=np.float64))[:, None]), cases, exact=True)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """What is told of them, and compared with what an earlier reproduction told."""
        if not self.values:
            return ()
        table = np.array(self.values)
        if not self.exact:
            fine = table[np.isfinite(table).all(axis=1)]
            one = compare(fine.mean(axis=0) if len(fine) else np.full(table.shape[1], np.nan))
            return (Number("", float(one.mean[0]), float(one.half_width[0])),)
        values = table[:, 0]
        if len(values) <= MOST_TOLD:
            return tuple(Number(self.cases[i] if self.cases else "", float(v), 0.0) for i, v in enumerate(values))
        ends = np.nanquantile(values, (0, 0.5, 1)) if np.isfinite(values).any() else ()
        return tuple(Number(word, float(v), 0.0) for word, v in zip(("least", "middle", "largest"), ends, strict=False))


def named(index: Any) -> tuple[str, ...]:
    """The rows of a table in words: "queries = 1, η_Z = 0.5"; what all rows share is left out."""
    if not isinstance(index, pd.Index) or None in index.names:
        return ()
    columns = index.to_frame(index=False)
    told = [name for name in columns if len(columns) == 1 or columns[name].nunique() > 1]
    return tuple(
        ", ".join(f"{WORDS.get(str(name), name)} {_value(value)}" for name, value in zip(told, case, strict=True))
        for case in columns[told].itertuples(index=False)
    )


def _value(value: Any) -> str:
    return f"{value}" if isinstance(value, str) else f"= {value:g}"


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in values)


def beyond(old: Number, new: Number) -> bool | None:
    """Whether two numbers differ by more than their error; None where one of them has no known error.

    The difference of two means with independent 95% intervals ±a and ±b has the interval ±√(a² + b²). Runs from the
    same seeds are not independent but closer to each other, so that this is careful. Numbers without noise come from
    integrators and may differ by a millionth.
    """
    if not (math.isfinite(old.value) and math.isfinite(new.value)):
        return not (old.value == new.value or (math.isnan(old.value) and math.isnan(new.value)))
    error = math.hypot(old.half_width, new.half_width)
    if not math.isfinite(error):
        return None
    return abs(new.value - old.value) > max(error, ROUNDING * max(abs(old.value), abs(new.value)))
