"""Figures 11 and 12: recall is what it says, and the findings can fail."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

import scansnap as ss
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig11, fig12
from scansnap.paper.shared import medium_runs

QUICK = Effort(quick=True, device="cpu")
# the rate of the curves, that of the panels, the value of the first where attention should be sparser
BY_RATE = pytest.mark.parametrize(
    ("figure", "along", "across", "sparser"), [(fig11, "ratio", "eta_z", 1.0), (fig12, "eta_z", "ratio", 3.0)]
)


@pytest.fixture(scope="module")
def table():
    return fig11.compute(QUICK).table


@pytest.fixture(scope="module")
def ten_seeds():
    return fig11.compute(Effort(device="cpu")).table


def count_flatter(table, along, across, sparser, value="recall"):
    """Panels where recall falls less at ``sparser`` of ``along``, undecided ones, and all.

    By another route than the figure's: plain dictionaries, and SciPy's t test with Holm's correction.
    """
    recall = {}
    for row in table.itertuples(index=False):
        key = (row.n_query, getattr(row, across), getattr(row, along), row.seed)
        recall.setdefault(key, []).append((row.threshold, getattr(row, value)))
    falls = {key: max(points)[1] - min(points)[1] for key, points in recall.items()}  # negative: last minus first
    seeds = sorted({key[3] for key in falls})
    low, high = min(table[along]), max(table[along])
    denser = high if sparser == low else low
    tests = []
    for panel in {key[:2] for key in falls}:
        difference = [falls[(*panel, sparser, seed)] - falls[(*panel, denser, seed)] for seed in seeds]
        if len(set(difference)) == 1:  # no spread: the signs decide, if there are enough of them
            tests.append((min(1.0, 2.0 ** (1 - len(seeds))) if difference[0] else 1.0, np.sign(difference[0])))
        else:
            tests.append((ttest_1samp(difference, 0).pvalue, np.sign(np.mean(difference))))
    tests.sort()
    decided = next((i for i, (p, _) in enumerate(tests) if p > 0.05 / (len(tests) - i)), len(tests))
    return sum(sign > 0 for _, sign in tests[:decided]), len(tests) - decided, len(tests)


def reverse(table, column):
    """The same runs with the values of a column in reverse order."""
    values = sorted(table[column].unique())
    return table.assign(**{column: table[column].map(dict(zip(values, reversed(values), strict=True)))})


def test_the_table_has_a_row_for_each_run_and_threshold(table):
    assert list(table.columns) == [*medium_runs.KEYS, "threshold", "recall", "recall_c"]
    assert len(table) == 4 * 4 * 4 * medium_runs.QUICK_SEEDS * len(medium_runs.THRESHOLDS)
    uniform = 1 / (10 + 10 * table["n_next"])
    assert sorted((table["threshold"] / uniform).round(6).unique()) == pytest.approx(list(medium_runs.THRESHOLDS))
    assert medium_runs.THRESHOLDS[len(medium_runs.THRESHOLDS) // 2] == 1  # the paper's 1/M in the middle
    for name in ("recall", "recall_c"):
        curves = table.sort_values("threshold").groupby(list(medium_runs.KEYS))[name]
        assert (curves.diff().dropna() <= 1e-12).all()
        assert table[name].between(0, 1).all()


def test_a_row_is_what_its_settings_give(table):
    classes = ss.SequenceClasses.syn_medium(3)
    data = ss.simulate(classes, eta_y=4.0, eta_z=2.0, seed=2, steps=100, momentum=0.9, init="uniform", record=[100],
                       device="cpu")  # fmt: skip
    above, above_c = [], []
    for n in range(6):
        e = np.exp(data.z[0, -1, n // 2, :70].values.astype(float))
        own = slice(10 + 10 * n, 20 + 10 * n)
        above += list((e / e.sum())[own] > 1 / 70)
        above_c += list(data.attention[0, -1, n].values[own] > 1 / 70)
    row = table.query("n_query == 3 and eta_z == 2 and ratio == 2 and seed == 2")
    row = row[np.isclose(row["threshold"], 1 / 70)]
    assert row["recall"].item() == pytest.approx(np.mean(above))
    assert row["recall_c"].item() == pytest.approx(np.mean(above_c))


@pytest.mark.integration
@BY_RATE
def test_findings_by_another_route(ten_seeds, figure, along, across, sparser):
    ends, steps = figure.findings(ten_seeds)
    assert (ends.agree, ends.undecided, ends.of) == count_flatter(ten_seeds, along, across, sparser)
    of_c = count_flatter(ten_seeds, along, across, sparser, value="recall_c")
    assert f"softmax of z: {of_c[0]} of {of_c[2]}" in ends.detail
    assert ends.agree > 12
    assert steps.of == 48
    assert "±" in ends.detail


@BY_RATE
def test_findings_reverse_with_the_data(ten_seeds, figure, along, across, sparser):
    before, after = figure.findings(ten_seeds), figure.findings(reverse(ten_seeds, along))
    assert [(finding.agree, finding.disagree) for finding in after] == [(0, finding.agree) for finding in before]
    level = figure.findings(ten_seeds.assign(recall=0.5))
    assert [finding.agree for finding in level] == [0, 0]
    assert level[0].verdict == "disagrees"  # no change in any of ten seeds: level, not undecided


def test_few_seeds_decide_little(table):
    ends, _ = fig12.findings(table)
    assert ends.verdict == "undecided"
    assert (ends.agree, ends.undecided, ends.of) == count_flatter(table, "eta_z", "ratio", 3.0)


def test_the_descent_is_from_the_lowest_to_the_highest_threshold_of_its_size(table):
    falls = fig11.descents(table)
    assert len(falls) == 4 * 4 * 4 * 3
    query = "n_query == 10 and eta_z == 0.5 and ratio == 1 and seed == 0"
    recall = table.query(query).sort_values("threshold")["recall"]
    expected = recall.iloc[0] - recall.iloc[-1]
    assert falls.query(query)["descent"].item() == pytest.approx(expected)
    assert expected > 0.1


@pytest.mark.parametrize(
    ("figure", "title", "legend", "panel", "label", "query"),
    [
        (fig11, r"$\eta_Z$ = 3", r"$\eta_Y/\eta_Z$ = 10", 7, r"$\eta_Y/\eta_Z$ = 5",
         "n_query == 3 and eta_z == 3 and ratio == 5"),
        (fig12, r"$\eta_Y/\eta_Z$ = 10", r"$\eta_Z$ = 3", 2, r"$\eta_Z$ = 0.5",
         "n_query == 1 and ratio == 5 and eta_z == 0.5"),
    ],
)  # fmt: skip
def test_the_drawing_has_a_panel_for_each_size_and_rate(figure, title, legend, panel, label, query):
    computed = figure.compute(QUICK)
    drawing = figure.draw(computed)
    assert len(drawing.axes) == 16
    assert drawing.axes[3].get_title() == title
    assert drawing.axes[12].get_ylabel().startswith("10 queries, 20 next")
    assert drawing.legends[0].get_texts()[-1].get_text() == legend
    line = next(line for line in drawing.axes[panel].lines if line.get_label() == label)
    mean = computed.table.query(query).groupby("threshold")["recall"].mean()
    np.testing.assert_allclose(line.get_ydata(), mean)
    np.testing.assert_allclose(line.get_xdata(), 1000 * mean.index)


def test_both_figures_share_their_runs(table, monkeypatch):
    monkeypatch.setattr(medium_runs, "train", None)
    assert fig12.compute(QUICK).table.equals(table)
