"""Observables on curves whose answers are known, and their t intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.dial.observables import OBSERVABLES, UNJUDGED, Observable, Trajectory, t_interval
from scansnap.dial.verdicts import judge

CLASSES = ss.SequenceClasses.syn_medium(n_queries=3)
BY_NAME = {observable.name: observable for observable in OBSERVABLES}
STEPS = np.unique(np.rint(np.append(np.geomspace(1, 1000, 40), [0, 100])).astype(int))
T0 = 10.0


def trajectory(distinct, common, ratios=(1.0, 10.0), seeds=3, heads=1) -> Trajectory:
    """z_l(t) = distinct(P, t, ratio) and common(P, t, ratio), t in t₀, the same for all seeds and heads."""
    p, t = CLASSES.p_context, STEPS / T0
    z = np.zeros((len(ratios), len(STEPS), len(CLASSES.queries), CLASSES.vocab_size))
    for i, ratio in enumerate(ratios):
        for n in range(CLASSES.n_classes):
            q = int(np.searchsorted(CLASSES.queries, CLASSES.query[n]))
            for tokens, curve in ((CLASSES.distinct(n), distinct), (CLASSES.common_of(n), common)):
                z[i, :, q, tokens] = np.array([curve(p[n, token], t, ratio) for token in tokens])
    z = np.repeat(z, seeds * heads, axis=0)
    c = p * np.exp(z[:, :, np.searchsorted(CLASSES.queries, CLASSES.query)])
    data = xr.Dataset(
        {"attention": (("run", "step", "seq_class", "token"), c / c.sum(-1, keepdims=True)),
         "z": (("run", "step", "query", "token"), z),
         "loss": (("run", "step"), np.tile(np.exp(-t), (len(z), 1)))},
        coords={"step": STEPS, "query": CLASSES.queries},
    )  # fmt: skip
    well = np.ones(len(ratios), bool)
    return Trajectory(data, CLASSES, ratios, seeds, heads, T0, np.zeros((len(ratios), seeds), bool), well, well)


def value(name: str, of: Trajectory) -> float:
    return float(BY_NAME[name].measure(of).mean())


def verdicts(of: Trajectory) -> dict[str, str]:
    """Of a table of one cell."""
    (cell,) = judge([{"observables": [observable.of(of) for observable in OBSERVABLES]}])
    return {row["observable"]: row["verdict"] for row in cell["observables"]}


def scan(p, t, ratio):  # frequent tokens rise more, up to t₀
    return (1 + 10 * p) * np.minimum(t, 1) ** 2 / ratio**0.3


def fall(p, t, ratio):
    return -0.5 * np.minimum(t, 1) ** 2 / ratio**0.3


@pytest.mark.parametrize("heads", [1, 2])
def test_a_scan_that_stops_at_t0_holds_in_all(heads: int) -> None:
    cell = trajectory(scan, fall, heads=heads)
    for name in ("distinct_rise", "common_fall", "scan_order_tenth", "scan_order_end"):
        assert value(name, cell) == pytest.approx(1.0)
    assert value("late_movement", cell) == pytest.approx(0.0, abs=1e-12)
    assert value("late_speed", cell) == pytest.approx(0.0, abs=1e-12)
    assert value("ratio_effect", cell) > 0
    gap = 1.5 + 10 * CLASSES.p_context.max()  # common tokens are as frequent as the most frequent distinct one
    assert value("distinct_gap", cell) == pytest.approx(gap / 10**0.3)
    assert 0.5 < value("t_snap", cell) < 2


def test_rare_tokens_first_is_the_order_reversed() -> None:
    assert value("scan_order_end", trajectory(CONTROLS["rare tokens rise"], fall)) == pytest.approx(-1.0)


def test_what_goes_on_in_ln_t_is_not_frozen() -> None:
    cell = trajectory(lambda p, t, r: 0.5 * np.log1p(t), lambda p, t, r: -0.5 * np.log1p(t))
    assert value("late_movement", cell) > 0.3
    assert value("late_speed", cell) == pytest.approx(1.0, abs=0.05)


CONTROLS = {  # all tokens move by how frequent they are, distinct or not, as with shuffled next tokens
    "frequent tokens fall": lambda p, t, ratio: -20 * p * np.minimum(t, 1) ** 2,  # Adam
    "rare tokens rise": lambda p, t, ratio: (2 - 10 * p) * np.minimum(t, 1) ** 2,  # AdamW on text
    "nothing moves": lambda p, t, ratio: 0 * t,
}


@pytest.mark.parametrize("curve", CONTROLS.values(), ids=CONTROLS.keys())
def test_nothing_holds_where_distinct_tokens_gain_nothing(curve) -> None:
    control = trajectory(curve, curve)
    assert value("distinct_gap", control) == pytest.approx(0.0, abs=1e-12)
    assert "holds" not in verdicts(control).values()


def test_log_odds_rise_with_frequency_alone() -> None:
    """Most distinct tokens are rarer than common ones, so that the gap compares equally frequent ones."""
    curve = CONTROLS["frequent tokens fall"]
    assert value("log_odds_rise", trajectory(curve, curve)) > 0.3


def test_what_is_no_comparison_is_told_by_its_first_reason() -> None:
    """Of the reference ratio, or of all where all are used: a ratio beside it does not take its verdict away."""
    yes, no = np.ones(2, bool), np.array([False, True])  # the reference is the second of the two ratios
    fine = trajectory(scan, fall)
    assert (fine.unfit(), fine.at_reference.unfit()) == ("", "")
    slow = replace(fine, met=no)
    assert (slow.unfit(), slow.at_reference.unfit()) == ("rates not matched", "")
    gone = replace(slow, diverged=np.array([[False, True, False], [False, False, False]]))
    assert (gone.unfit(), gone.at_reference.unfit()) == ("diverged", "")
    none = replace(gone, trains=~yes)
    assert (none.unfit(), none.at_reference.unfit()) == ("no rates", "no rates")


def test_numbers_at_the_reference_do_not_need_the_other_ratios() -> None:
    cell = trajectory(scan, fall, heads=2)
    for observable in OBSERVABLES:
        if observable.name != "ratio_effect":
            np.testing.assert_array_equal(observable.of(cell.at_reference)["by_seed"], observable.of(cell)["by_seed"])


def test_margins_are_positive_inside_the_thresholds() -> None:
    observable = Observable("t_snap", "", lambda of: np.zeros(1), least=0.5, most=2.0)
    np.testing.assert_array_equal(
        observable.margins(np.array([0.25, 1.0, 2.5])), [[-0.25, 0.5, 2.0], [1.75, 1.0, -0.5]]
    )
    assert (observable.bounded, observable.bounds) == (True, " in [0.5, 2]")
    assert not Observable("c", "", lambda of: np.zeros(1)).bounded


def test_a_cell_has_t_intervals_and_only_words_that_need_no_table() -> None:
    cell = trajectory(scan, fall)
    assert {observable.of(cell)["verdict"] for observable in OBSERVABLES} == {
        "",
        "not applicable",
    }  # there is no first token
    gone = replace(cell, diverged=np.ones((2, 3), bool))
    assert {observable.of(gone)["verdict"] for observable in OBSERVABLES} == {"diverged"}
    assert set(UNJUDGED) >= {"diverged", "not applicable"}


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = [low <= 0 <= high for _, low, high in (t_interval(rng.normal(size=3)) for _ in range(1000))]
    assert 0.93 < np.mean(covered) < 0.97
    np.testing.assert_array_equal(t_interval(np.ones(5)), (1.0, np.nan, np.nan))  # equal values have no spread
    assert np.isnan(t_interval(np.array([1.0, np.nan, 1.0]))).all()
