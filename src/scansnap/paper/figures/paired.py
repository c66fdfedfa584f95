"""Tables of runs as families of differences, paired by seed: the same seed means the same data and initial values, so
the difference of two runs is far less noisy than either of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from scansnap.measure.comparison import Comparison, Statement, compare, said

MOST_NAMED = 6
WORDS = {"n_query": "queries", "eta_z": "η_Z", "eta_y": "η_Y", "ratio": "η_Y/η_Z", "class": "class", "token": "token"}


def differences(table: pd.DataFrame, value: str, *, by: Sequence[str], along: str, low: Any, high: Any) -> pd.DataFrame:
    """How ``value`` changes from ``low`` to ``high`` of ``along``: a row for each combination of ``by``, a column for
    each seed. A run that is missing or has no number leaves NaN, so that its case never agrees.
    """
    wide = table.pivot(index=[*by, "seed"], columns=along, values=value)
    return (wide[high] - wide[low]).unstack("seed")


def neighbours(table: pd.DataFrame, value: str, *, by: Sequence[str], along: str) -> pd.DataFrame:
    """:func:`differences` for each two neighbouring values of ``along``, stacked."""
    values = sorted(table[along].unique())
    steps = {
        f"{low:g} to {high:g}": differences(table, value, by=by, along=along, low=low, high=high)
        for low, high in pairwise(values)
    }
    return pd.concat(steps, names=[along])


def overall(table: pd.DataFrame, value: str, *, along: str, low: Any, high: Any) -> str:
    """The change averaged over everything else, seed by seed: mean ± half of its 95% interval."""
    averaged = table.groupby([along, "seed"])[value].agg(lambda column: column.mean(skipna=False)).reset_index()
    family = differences(averaged.assign(all=0), value, by=["all"], along=along, low=low, high=high)
    return interval(family.to_numpy()[0])


def interval(values: Any, signed: bool = True) -> str:
    """The mean over seeds ± half of its 95% t interval."""
    one = compare(values)
    if one.seeds > 1 and one.spread[0] == 0 and not one.failed[0]:
        return f"{one.mean[0]:{'+' if signed else ''}.3f} in every seed".replace("-", "−")
    return said(float(one.mean[0]), float(one.half_width[0]), signed)


def exceptions(cases: pd.DataFrame, found: Comparison, statement: Statement) -> str:
    """The cases that do not agree, named if they are few, with the undecided ones apart; empty if all agree."""
    still = found.undecided(statement)
    parts = (("Against it: ", ~found.agree(statement) & ~still), ("Undecided: ", still))
    return " ".join(f"{word}{_named(cases.index[chosen])}." for word, chosen in parts if 0 < chosen.sum() <= MOST_NAMED)


def _named(cases: pd.Index) -> str:
    frame = cases.to_frame()
    return "; ".join(
        ", ".join(f"{WORDS[name]} = {value:g}" for name, value in zip(frame.columns, case, strict=True))
        for case in frame.itertuples(index=False)
    )
