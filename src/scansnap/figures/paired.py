"""Differences between settings, paired by seed: the same seed means the same data and initial values, so the
difference of two runs is far less noisy than either of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pandas as pd

ERRORS = 2.0  # a change counts when its mean exceeds this many standard errors

WORDS = {"n_query": "queries", "eta_z": "η_Z", "ratio": "η_Y/η_Z"}


def change(table: pd.DataFrame, value: str, *, by: Sequence[str], along: str, low: float, high: float) -> pd.DataFrame:
    """How ``value`` changes when ``along`` goes from ``low`` to ``high``, one row for each combination of ``by``.

    Columns: ``mean`` over seeds and ``error``, its standard error. A value that is not a number makes its whole row
    one, so that it never counts as agreement.
    """
    wide = table.pivot(index=[*by, "seed"], columns=along, values=value)
    grouped = (wide[high] - wide[low]).groupby(level=list(by))
    mean = grouped.agg(lambda column: column.mean(skipna=False))
    error = grouped.agg(lambda column: column.std(ddof=1, skipna=False) / math.sqrt(len(column)))
    return pd.DataFrame({"mean": mean, "error": error})


def neighbours(table: pd.DataFrame, value: str, *, by: Sequence[str], along: str) -> pd.DataFrame:
    """:func:`change` for each two neighbouring values of ``along``, stacked."""
    values = sorted(table[along].unique())
    steps = {
        f"{low:g} to {high:g}": change(table, value, by=by, along=along, low=low, high=high)
        for low, high in pairwise(values)
    }
    return pd.concat(steps, names=[along])


def rises(changes: pd.DataFrame) -> pd.Series:
    """Where the change is upwards by more than its uncertainty."""
    return changes["mean"] > ERRORS * changes["error"]


def falls(changes: pd.DataFrame) -> pd.Series:
    """Where the change is downwards by more than its uncertainty."""
    return changes["mean"] < -ERRORS * changes["error"]


def where(chosen: pd.Series) -> str:
    """The cases where ``chosen`` (true or false by case) is true, in words."""
    cases = chosen.index[chosen].to_frame()
    words = [", ".join(f"{WORDS[name]} = {value:g}" for name, value in zip(cases.columns, case, strict=True))
             for case in cases.itertuples(index=False)]  # fmt: skip
    return "; ".join(words)


def overall(table: pd.DataFrame, value: str, *, along: str, low: float, high: float) -> str:
    """The change averaged over everything else, seed by seed: mean ± standard error."""
    averaged = table.groupby([along, "seed"])[value].agg(lambda column: column.mean(skipna=False)).reset_index()
    row = change(averaged.assign(all=0), value, by=["all"], along=along, low=low, high=high).iloc[0]
    return said(row["mean"], row["error"])


def said(mean: float, error: float, signed: bool = True) -> str:
    """A mean with its standard error, to the digits the error leaves."""
    digits = min(max(1 - math.floor(math.log10(error)), 2), 5) if error > 1e-6 else 3
    return f"{mean:{'+' if signed else ''}.{digits}f} ± {error:.{digits}f}".replace("-", "−")
