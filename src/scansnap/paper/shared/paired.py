"""Tables of runs as families of differences, paired by seed: the same seed means the same data and initial values, so
the difference of two runs is far less noisy than either of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from scansnap.measure.comparison import Comparison, Statement, interval

MOST_NAMED = 6
WORDS = {"n_query": "queries", "eta_z": "η_Z", "eta_y": "η_Y", "ratio": "η_Y/η_Z"}  # columns, in a sentence


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
