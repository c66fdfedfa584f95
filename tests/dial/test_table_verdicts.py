"""Verdicts of a table of the dial: what few seeds cannot show is undecided, however many entries there are."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.dial.observables import GATE, OBSERVABLES, RENAMED, UNJUDGED
from scansnap.dial.verdicts import judge

BOUNDED = [observable for observable in OBSERVABLES if observable.bounded]
TOKENS = 60  # distinct tokens of a cell: a share is a multiple of 1/60
CELLS = 142  # of the whole dial


def cell(values: dict[str, np.ndarray], word: str = "") -> dict:
    """With the values that are given; the others hold, as clearly as three seeds can."""
    clear = {
        observable.name: np.array([1.0, 1.001, 0.999]) * (1.0 if observable.most is None else 1.2)
        for observable in BOUNDED
    }
    clear |= {"late_movement": np.array([0.001, 0.0011, 0.0012]), GATE: np.array([10, 10.001, 10.002])}
    rows = {name: list(map(float, by_seed)) for name, by_seed in (clear | values).items()}
    return {"observables": [{"observable": name, "by_seed": by_seed, "verdict": word, "value": 0, "low": 0, "high": 0}
                            for name, by_seed in rows.items()]}  # fmt: skip


def verdict(values: dict[str, np.ndarray], name: str, n_cells: int = 1) -> str:
    """Of one entry of the first of some equal cells."""
    cells = judge([cell(values)] * n_cells)
    return next(row["verdict"] for row in cells[0]["observables"] if row["observable"] == name)


def at_thresholds(rng: np.random.Generator, seeds: int, gap: bool) -> list[dict]:
    """Cells whose true values are all exactly at a threshold; ``gap``: but the gain of distinct tokens, which is clear.

    Shares are of tokens that rise each for itself, as often as the threshold says; other noise is normal.
    """
    cells = []
    for _ in range(CELLS):
        values = {}
        for observable in BOUNDED:
            edge = observable.least if observable.least is not None else observable.most
            assert edge is not None
            if edge == 0.95:
                values[observable.name] = rng.binomial(TOKENS, edge, seeds) / TOKENS
            else:
                values[observable.name] = edge + rng.choice([1e-3, 0.1]) * rng.normal(size=seeds)
        if gap:
            values[GATE] = 10 + 1e-3 * rng.normal(size=seeds)
        cells.append(cell(values))
    return cells


@pytest.mark.parametrize(
    ("gap", "tables"), [(False, 40), *(pytest.param(gap, 120, marks=pytest.mark.integration) for gap in (False, True))]
)
def test_of_a_table_at_its_thresholds_hardly_ever_an_entry_is_decided(gap: bool, tables: int) -> None:
    """142 cells, 3 seeds: some entry holds, and some fails, in at most 5% of such tables."""
    rng = np.random.default_rng(5)
    wrong = np.zeros(2)
    for _ in range(tables):
        rows = [row for one in judge(at_thresholds(rng, 3, gap)) for row in one["observables"]]
        words = {row["verdict"] for row in rows if not (gap and row["observable"] == GATE)}
        wrong += "holds" in words, "fails" in words
    assert (wrong / tables <= 0.05).all(), wrong


def test_what_is_clear_is_decided() -> None:
    """With ten seeds and the noise of a cell, in the family of a whole table."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=10)
    values = {observable.name: np.full(10, 0.5) for observable in BOUNDED} | {GATE: 0.8 + 0.01 * noise}
    clear = {"scan_order_end": 0.95 + 0.01 * noise, "ratio_effect": 0.5 + 0.02 * noise, "t_snap": 2.3 + 0.02 * noise,
             "late_movement": 0.3 + 0.01 * noise, "scan_order_tenth": 0.5 + 0.01 * noise}  # fmt: skip
    found = {name: verdict(values | clear, name, CELLS) for name in clear}
    assert found == {"scan_order_end": "holds", "ratio_effect": "holds", "late_movement": "fails", "t_snap": "fails",
                     "scan_order_tenth": "fails"}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "word"),
    [([0.96, 0.97, 0.99], "undecided"), ([0.980, 0.981, 0.982], "holds"), ([0.900, 0.901, 0.902], "fails"),
     ([1.0, 1.0, 1.0], "undecided"), ([0.0, 0.0, 0.0], "undecided"), ([0.99, np.nan, 0.99], "fails"),
     ([0.99, np.inf, 0.99], "fails")],
)  # fmt: skip
def test_three_seeds_decide_by_their_spread(values, word) -> None:
    """That all of them exceed the threshold is not enough, nor that they are equal; one without a number fails."""
    assert verdict({"distinct_rise": np.array(values)}, "distinct_rise") == word


def test_equal_seeds_are_decided_by_their_number() -> None:
    """2^(1−n) for each entry: 16 seeds are enough for the whole dial, 10 are not, and for one cell they are."""

    def equal(seeds: int, n_cells: int) -> str:
        values = {observable.name: np.ones(seeds) for observable in BOUNDED} | {GATE: np.linspace(10, 10.001, seeds)}
        return verdict(values, "distinct_rise", n_cells)

    assert (equal(10, 1), equal(10, CELLS), equal(16, CELLS)) == ("holds", "undecided", "holds")


@pytest.mark.parametrize(("value", "word"), [(0.4, "fails"), (1.0, "holds"), (2.5, "fails"), (1.99, "undecided")])
def test_an_interval_is_left_on_one_side_and_held_on_both(value: float, word: str) -> None:
    noise = np.linspace(-0.02, 0.02, 8)
    values = {observable.name: noise for observable in BOUNDED} | {GATE: 10 + noise, "t_snap": value + noise}
    assert verdict(values, "t_snap") == word


@pytest.mark.parametrize(("gain", "word"), [(0.8, "holds"), (0.05, "undecided"), (-0.3, "fails")])
def test_what_speaks_of_scanning_is_decided_no_better_than_the_gain(gain: float, word: str) -> None:
    noise = 0.01 * np.linspace(-1, 1, 10)
    values = {observable.name: 1.5 + noise for observable in BOUNDED} | {
        GATE: gain + noise,
        "late_movement": 0.05 + noise,
    }
    (found,) = judge([cell(values)])
    scans = {observable.name for observable in OBSERVABLES if observable.scans}
    assert {row["verdict"] for row in found["observables"] if row["observable"] in scans} == {word}
    shown = [np.isfinite(row["value"]) for row in found["observables"] if row["observable"] in scans]
    assert set(shown) == {word == "holds"}
    (order,) = (row for row in found["observables"] if row["observable"] == "scan_order_end")
    assert order["verdict"] == "holds"  # the order of distinct tokens needs no gain


def test_what_has_no_verdict_is_not_in_the_family() -> None:
    """And a verdict from before plays no part: a table is judged from its values alone."""
    values = {observable.name: np.ones(10) for observable in BOUNDED} | {GATE: np.linspace(10, 10.001, 10)}
    for word in UNJUDGED:
        cells = judge([cell(values), *([cell(values, word)] * CELLS)])
        assert {row["verdict"] for row in cells[1]["observables"]} == {word}
        assert {row["verdict"] for row in cells[0]["observables"]} >= {"holds"}
    again = judge(judge([cell(values)]))
    for one, other in zip(again[0]["observables"], judge([cell(values, "fails")])[0]["observables"], strict=True):
        assert one == other


def test_results_of_older_versions_have_other_names_and_the_same_verdicts() -> None:
    new = cell({"late_movement": np.array([0.3, 0.301, 0.302])})
    names = {new_name: old for old, new_name in RENAMED.items()}
    old = {"observables": [row | {"observable": names.get(row["observable"], row["observable"])}
                           for row in new["observables"]]}  # fmt: skip
    assert old != new
    assert judge([old]) == judge([new])
