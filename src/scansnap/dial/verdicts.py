"""Verdicts of a whole table: every entry is tested against its thresholds, and all tests are one family.

The statistics are those of `scansnap.measure.comparison`. The family is every entry with a threshold, of every
cell that is a comparison: one test for each threshold, so two for an interval. An entry

    holds      where the mean over seeds is significantly inside all its thresholds
    fails      where it is significantly outside one of them, and where a seed has no finite number (it never snapped)
    undecided  otherwise

after Holm's correction: if all true values lay at their thresholds, some entry would hold or fail with probability of
at most 5%. Where all seeds are equal a sign test replaces the t test; it needs 16 seeds in a table of 1,000 tests.

An observable of scanning (``Observable.scans``) has no meaning where attention does not go to distinct tokens. It fails
where ``distinct_gap`` fails, is at best undecided where that is undecided, and has no number in either case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from scansnap.dial.observables import GATE, OBSERVABLES, RENAMED, UNJUDGED, t_interval
from scansnap.measure.comparison import Verdict, compare

Result = dict[str, Any]
_BY_NAME = {observable.name: observable for observable in OBSERVABLES}
_NO_NUMBER = {"value": math.nan, "low": math.nan, "high": math.nan}


def judge(cells: Sequence[Result]) -> tuple[Result, ...]:
    """The cells with verdicts from their values by seed alone; earlier verdicts play no part."""
    cells = [cell | {"observables": [row | {"observable": RENAMED.get(row["observable"], row["observable"])}
                                     for row in cell["observables"]]} for cell in cells]  # fmt: skip
    family: dict[tuple[int, str], list[np.ndarray]] = {}
    for i, cell in enumerate(cells):
        for row in cell["observables"]:
            observable = _BY_NAME[row["observable"]]
            if observable.bounded and row["verdict"] not in UNJUDGED:
                family[i, observable.name] = observable.margins(_values(row))
    tests = [margins for entry in family.values() for margins in entry]
    verdicts = iter(compare(tests).verdict if tests else [])
    judged = {entry: _verdict([next(verdicts) for _ in margins]) for entry, margins in family.items()}
    return tuple(cell | {"observables": _gated([_judged(row, judged.get((i, row["observable"])))
                                                for row in cell["observables"]])}
                 for i, cell in enumerate(cells))  # fmt: skip


def _values(row: Result) -> np.ndarray:
    return np.array(row["by_seed"], dtype=np.float64)


def _verdict(tests: list[Verdict]) -> str:
    """Of one entry, from a test of its distance inside each threshold."""
    if "falls" in tests or "failed" in tests:
        return "fails"
    return "holds" if set(tests) == {"rises"} else "undecided"


def _judged(row: Result, verdict: str | None) -> Result:
    if verdict is None:
        verdict = row["verdict"] if row["verdict"] in UNJUDGED else "measured"
    value, low, high = t_interval(_values(row))
    return row | {"value": value, "low": low, "high": high, "verdict": verdict}


def _gated(rows: list[Result]) -> list[Result]:
    """Observables of scanning are no better decided than the gain of distinct tokens."""
    gain = next(row["verdict"] for row in rows if row["observable"] == GATE)
    if gain not in ("fails", "undecided"):
        return rows
    return [row | _NO_NUMBER | {"verdict": "fails" if "fails" in (gain, row["verdict"]) else "undecided"}
            if _BY_NAME[row["observable"]].scans and row["verdict"] not in UNJUDGED else row
            for row in rows]  # fmt: skip
