"""Figure 11: recall is what it says, and its findings can fail."""

import numpy as np
import pytest
from recall_checks import flatter, mirrored

import scansnap as ss
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig11, fig12
from scansnap.paper.shared import medium_runs

QUICK = Effort(quick=True, device="cpu")


@pytest.fixture(scope="module")
def computed():
    return fig11.compute(QUICK)


def test_the_table_has_a_row_for_each_run_and_threshold(computed):
    table = computed.table
    assert list(table.columns) == [*medium_runs.KEYS, "threshold", "recall", "recall_c"]
    assert len(table) == 4 * 4 * 4 * medium_runs.QUICK_SEEDS * len(medium_runs.THRESHOLDS)
    uniform = 1 / (10 + 10 * table["n_next"])
    assert sorted((table["threshold"] / uniform).round(6).unique()) == pytest.approx(list(medium_runs.THRESHOLDS))
    assert medium_runs.THRESHOLDS[len(medium_runs.THRESHOLDS) // 2] == 1  # the paper's 1/M in the middle
    for name in ("recall", "recall_c"):
        curves = table.sort_values("threshold").groupby(list(medium_runs.KEYS))[name]
        assert (curves.diff().dropna() <= 1e-12).all()
        assert table[name].between(0, 1).all()


def test_a_row_is_what_its_settings_give(computed):
    classes = ss.SequenceClasses.syn_medium(3)
    data = ss.simulate(classes, eta_y=4.0, eta_z=2.0, seed=2, steps=100, momentum=0.9, init="uniform", record=[100],
                       device="cpu")  # fmt: skip
    above, above_c = [], []
    for n in range(6):
        e = np.exp(data.z[0, -1, n // 2, :70].values.astype(float))
        own = slice(10 + 10 * n, 20 + 10 * n)
        above += list((e / e.sum())[own] > 1 / 70)
        above_c += list(data.attention[0, -1, n].values[own] > 1 / 70)
    row = computed.table.query("n_query == 3 and eta_z == 2 and ratio == 2 and seed == 2")
    row = row[np.isclose(row["threshold"], 1 / 70)]
    assert row["recall"].item() == pytest.approx(np.mean(above))
    assert row["recall_c"].item() == pytest.approx(np.mean(above_c))


@pytest.fixture(scope="module")
def ten_seeds():
    return fig11.compute(Effort(device="cpu"))


@pytest.mark.integration
def test_findings_by_another_route(ten_seeds):
    ends, steps = ten_seeds.findings
    assert (ends.agree, ends.undecided, ends.of) == flatter(ten_seeds.table, "ratio", "eta_z", better=1.0)
    other = flatter(ten_seeds.table, "ratio", "eta_z", better=1.0, value="recall_c")
    assert f"softmax of z: {other[0]} of {other[2]}" in ends.detail
    assert ends.agree > 12
    assert steps.of == 48
    assert "±" in ends.detail


def test_findings_turn_round_with_the_data(ten_seeds):
    ends, steps = fig11.findings(mirrored(ten_seeds.table, "ratio"))
    assert (ends.agree, ends.disagree) == (0, ten_seeds.findings[0].agree)
    assert (steps.agree, steps.disagree) == (0, ten_seeds.findings[1].agree)
    flat = fig11.findings(ten_seeds.table.assign(recall=0.5))
    assert [finding.agree for finding in flat] == [0, 0]
    assert flat[0].verdict == "disagrees"  # no change in any of ten seeds: level, not undecided


def test_the_drawing_has_a_panel_for_each_size_and_rate(computed):
    figure = fig11.draw(computed)
    assert len(figure.axes) == 16
    assert [ax.get_title() for ax in figure.axes[:4]] == [rf"$\eta_Z$ = {rate}" for rate in ("0.5", "1", "2", "3")]
    assert figure.axes[12].get_ylabel().startswith("10 queries, 20 next")
    assert figure.legends[0].get_texts()[-1].get_text() == r"$\eta_Y/\eta_Z$ = 10"
    line = next(line for line in figure.axes[7].lines if line.get_label() == r"$\eta_Y/\eta_Z$ = 5")
    here = computed.table.query("n_query == 3 and eta_z == 3 and ratio == 5").groupby("threshold")["recall"].mean()
    np.testing.assert_allclose(line.get_ydata(), here)
    np.testing.assert_allclose(line.get_xdata(), 1000 * here.index)


def test_it_shares_its_runs_with_figure_12(computed, monkeypatch):
    monkeypatch.setattr(medium_runs, "train", None)
    assert fig12.compute(QUICK).table.equals(computed.table)
