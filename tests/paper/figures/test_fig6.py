"""Figure 6: its table, and findings that can fail."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

import scansnap as ss
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig6
from scansnap.paper.shared import medium_runs

QUICK = Effort(quick=True, device="cpu")


@pytest.fixture(scope="module")
def computed():
    return fig6.compute(QUICK)


def test_the_table_has_one_row_for_each_run(computed):
    table = computed.table
    assert list(table.columns) == ["n_query", "n_next", "eta_z", "ratio", "seed", "entropy"]
    assert len(table) == 4 * 4 * 4 * medium_runs.QUICK_SEEDS == len(table.drop_duplicates(list(medium_runs.KEYS)))
    assert sorted(set(zip(table["n_query"], table["n_next"], strict=True))) == [(1, 2), (3, 6), (5, 10), (10, 20)]
    assert table["entropy"].between(0, np.log(10)).all()
    assert computed.note == "quick: 3 of 10 seeds"


def test_a_row_is_what_its_settings_give(computed):
    s = computed.settings
    classes = ss.SequenceClasses.syn_medium(3)
    data = ss.simulate(classes, eta_y=10.0, eta_z=2.0, seed=1, steps=s["steps"], batch_size=s["batch_size"],
                       context=s["context"], momentum=s["momentum"], init=s["model"]["init"], record=[s["steps"]],
                       dtype=s["dtype"], device="cpu")  # fmt: skip
    entropies = []
    for n in range(6):
        c = data.attention[0, -1, n].values.astype(float)[10 + 10 * n : 20 + 10 * n]
        p = c / c.sum()
        entropies.append(-(p * np.log(p)).sum())
    row = computed.table.query("n_query == 3 and eta_z == 2 and ratio == 5 and seed == 1")
    assert row["entropy"].item() == pytest.approx(np.mean(entropies), abs=1e-5)


def p_values(table, curves, steps, **side):
    """Of SciPy's paired t test for each curve (two columns) over each step of the third, without pandas."""
    a, b, along = curves
    tests = []
    for x in sorted(set(table[a])):
        for y in sorted(set(table[b])):
            panel = table[(table[a] == x) & (table[b] == y)]
            value = {(row[0], row[1]): row[2] for row in panel[[along, "seed", "entropy"]].to_numpy()}
            seeds = sorted(set(panel["seed"]))
            for low, high in steps:
                lows, highs = ([value[rate, seed] for seed in seeds] for rate in (low, high))
                tests.append(ttest_rel(highs, lows, **side))
    return [test.pvalue for test in tests], [test.statistic for test in tests]


def rejected(p):
    """How many of a family Holm's procedure rejects at 5%, worked from the smallest p value on."""
    for done, smallest in enumerate(sorted(p)):
        if smallest > 0.05 / (len(p) - done):
            return done
    return len(p)


@pytest.fixture(scope="module")
def ten_seeds():
    return fig6.compute(Effort(device="cpu"))


@pytest.fixture(scope="module")
def ten_seeds_table():
    """All runs of the figure without its right panel, which takes ten times longer."""
    return medium_runs.medium_runs(Effort(device="cpu")).entropy


@pytest.mark.integration
@pytest.mark.parametrize("seeds", ["quick", "full"])
def test_findings_by_another_route(computed, ten_seeds, seeds):
    computed = ten_seeds if seeds == "full" else computed
    table = computed.table
    rise, before, eta_z = computed.findings[:3]
    p, t = p_values(table, ("n_query", "eta_z", "ratio"), [(2.0, 10.0)])
    assert min(t) > 0
    assert (rise.agree, rise.of, rise.undecided) == (rejected(p), 16, 16 - rejected(p))
    p, _ = p_values(table, ("n_query", "eta_z", "ratio"), [(1.0, 2.0)], alternative="less")
    assert (before.agree, before.of) == (rejected(p), 16)
    p, t = p_values(table, ("n_query", "ratio", "eta_z"), [(0.5, 1.0), (1.0, 2.0), (2.0, 3.0)])
    assert (eta_z.agree, eta_z.of) == (rejected(p), 48)  # all that are rejected fall
    assert sum(value < 0 for value in t) >= rejected(p)


@pytest.mark.integration
def test_more_seeds_decide_more(computed, ten_seeds):
    for few, many in zip(computed.findings, ten_seeds.findings, strict=True):
        assert many.undecided < few.undecided
    rise, before, eta_z = ten_seeds.findings[:3]
    assert rise.agree > 12  # what the paper shows, in the main
    assert eta_z.agree > 40
    assert {rise.kind, before.kind, eta_z.kind} == {"measured"}
    findings = fig6.findings(ten_seeds.table[ten_seeds.table["seed"] == 0])
    assert [finding.verdict for finding in findings] == ["undecided"] * 3


@pytest.mark.integration
def test_entropy_rises_before_the_threshold_with_two_classes(ten_seeds):
    """All four curves of K = 2 rise from 1 to 2, by less than 5% of the tokens attended to: no margin may hide it."""
    before = ten_seeds.findings[1]
    assert (before.agree, before.disagree) == (12, 4)
    two = ten_seeds.table.query("n_query == 1").pivot(index=["eta_z", "seed"], columns="ratio", values="entropy")
    change = (two[2.0] - two[1.0]).groupby("eta_z").mean()
    assert change.min() > 0.02
    assert change.max() < 0.15


@pytest.mark.integration
def test_least_entropy_moves_with_the_number_of_classes(ten_seeds):
    """About 1 for two classes and 3 for twenty, in SGD and, lower, in the heavy-ball equation."""
    least = ten_seeds.extra["least"]
    sgd, equation = least.drop(columns="equation").mean(axis=1), least["equation"]
    assert sgd.loc[1].between(0.85, 1.2).all()
    assert sgd.loc[10].between(2.6, 3.2).all()
    assert (equation / sgd).between(0.6, 0.96).all()
    at_two, with_classes = ten_seeds.findings[3:]
    assert at_two.verdict == "mostly disagrees"
    assert with_classes.agree == with_classes.of == 12
    shuffled = least.set_axis(least.index[::-1]).sort_index()
    assert fig6.least_findings(shuffled)[1].verdict == "disagrees"


def test_lowest_finds_the_minimum_of_a_curve_and_none_at_its_end():
    x = np.log(fig6.RATIOS)
    assert fig6.lowest((x - 0.3) ** 2 + 0.05 * (x - 0.3) ** 3) == pytest.approx(np.exp(0.3), rel=0.01)
    assert np.isnan(fig6.lowest(x))
    assert np.isnan(fig6.lowest(np.where(x > 1, np.nan, x**2)))


def test_the_overview_states_these_numbers(ten_seeds_table):
    page = " ".join((Path(__file__).parents[3] / "docs" / "overview.md").read_text(encoding="utf-8").split())
    rise, before, eta_z = fig6.findings(ten_seeds_table)
    assert f"from 2 to 10: in {rise.agree} of {rise.of} curves, {rise.undecided} undecided" in page
    fewer = f"from 1 to 2: in {before.agree} of {before.of} curves; it rises in the other {before.disagree}"
    assert f"{fewer}, {before.undecided} undecided" in page
    falls = f"as η_Z grows: in {eta_z.agree} of {eta_z.of} steps between neighbouring values of η_Z"
    assert f"{falls}, {eta_z.undecided} undecided" in page


def test_a_rise_before_the_threshold_is_not_hidden_by_few_seeds(ten_seeds_table):
    """Less data must not give more agreement with "does not rise"."""
    table = ten_seeds_table
    agree = [fig6.before_threshold(table[table["seed"] < n]).agree for n in (1, 2, 10)]
    assert agree == sorted(agree)
    assert agree[0] == 0
    steep = table.assign(entropy=table["entropy"] + 0.1 * (table["ratio"] >= 2))
    assert fig6.before_threshold(steep).agree < agree[-1]
    assert fig6.before_threshold(steep).disagree > 4


def test_findings_turn_round_with_the_data(ten_seeds_table):
    ahead = fig6.findings(ten_seeds_table)
    back = fig6.findings(ten_seeds_table.assign(entropy=-ten_seeds_table["entropy"]))
    for i in (0, 2):
        assert (back[i].agree, back[i].disagree) == (ahead[i].disagree, ahead[i].agree) == (0, ahead[i].agree)
        assert back[i].verdict == "mostly disagrees"
    assert "±" in back[0].detail
    assert back[1].agree < ahead[1].agree


def test_noise_and_failed_runs_do_not_count_as_agreement(computed):
    rng = np.random.default_rng(0)
    noise = computed.table.assign(entropy=rng.normal(size=len(computed.table)))
    rise, _, eta_z = fig6.findings(noise)
    assert (rise.agree, eta_z.agree) == (0, 0)
    assert rise.verdict == "undecided"
    failed = computed.table.copy()
    failed.loc[(failed["n_query"] == 5) & (failed["ratio"] == 2) & (failed["seed"] == 0), "entropy"] = np.nan
    rise, before, _ = fig6.findings(failed)
    assert rise.disagree == before.disagree == 4  # failed runs are not undecided
    assert rise.agree + rise.undecided == 12


def test_the_drawing_has_a_panel_for_each_size(computed):
    figure = fig6.draw(computed)
    assert [ax.get_title() for ax in figure.axes] == ["1 query, 2 next", "3 queries, 6 next", "5 queries, 10 next",
                                                      "10 queries, 20 next", "ratio of least entropy"]  # fmt: skip
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        rf"$\eta_Z$ = {rate}" for rate in ("0.5", "1", "2", "3")
    ]
    drawn = figure.axes[2].containers[2].lines[0].get_ydata().astype(float)  # η_Z = 1; SD bars are containers too
    panel = computed.table.query("n_query == 5 and eta_z == 1")
    np.testing.assert_allclose(drawn, [panel[panel["ratio"] == r]["entropy"].mean() for r in (1, 2, 5, 10)])


def test_whoever_gets_a_table_may_change_it(computed):
    again = fig6.compute(QUICK)
    pd.testing.assert_frame_equal(again.table, computed.table)
    again.table.loc[:, "entropy"] = 0.0
    assert (fig6.compute(QUICK).table["entropy"] > 0).all()
