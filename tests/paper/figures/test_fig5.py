"""Figure 5: its table, and findings that can fail."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_1samp

import scansnap as ss
from scansnap.cli.run import find_run
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig5


@pytest.fixture(scope="module")
def computed():
    return fig5.compute(Effort(quick=True, device="cpu"))


def finals(table):
    """Final attention on the distinct tokens, (rate, seed, token)."""
    distinct = table[(table["step"] == 100) & (table["kind"] == "distinct")].sort_values(["eta_z", "seed", "token"])
    return distinct["attention"].to_numpy().reshape(3, 3, 10)


def test_the_table_holds_the_class_the_paper_shows(computed):
    table = computed.table
    assert len(table) == 3 * 3 * 8 * 20
    assert set(table["seq_class"]) == {0}
    assert sorted(table["token"].unique()) == list(range(20))
    assert (table["eta_y"] == table["eta_z"]).all()
    assert sorted(table["eta_z"].unique()) == [0.1, 0.5, 1.0]
    np.testing.assert_allclose(table.groupby(["eta_z", "seed", "step"])["attention"].sum(), 1, atol=1e-5)


def test_a_cell_is_what_its_settings_give(computed):
    s = computed.settings
    assert s["optimizer_y"]["name"] == s["optimizer_z"]["name"] == "adam"
    data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=0.5, eta_z=0.5, seed=1, steps=s["steps"],
                       optimizer="adam", record=[100], device="cpu")  # fmt: skip
    np.testing.assert_allclose(finals(computed.table)[1, 1], data.attention[0, -1, 0, 10:20], atol=1e-6)


def test_findings_by_another_route(computed):
    subsets, winner, suppressed = computed.findings
    c = finals(computed.table)
    p = c / c.sum(-1, keepdims=True)
    apart = np.abs(p[:, :, None, None] - p[None, None]).sum(-1) / 2  # (rate, seed, rate, seed)
    lead = [
        [apart[a, s, b, s] - max(apart[a, s, a].max(), apart[b, s, b].max()) for s in range(3)]
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    assert (subsets.agree, subsets.undecided, subsets.of) == by_scipy(lead)
    assert (winner.agree, winner.undecided, winner.of) == by_scipy(p[..., :9].max(-1) - p[..., 9])
    assert 1 <= winner.agree < 3  # at the largest rate the most frequent token wins
    rho = np.mean([spearmanr(c[0, s], np.arange(10)).statistic for s in range(3)])
    assert f"{rho:+.2f}".replace("-", "−") in winner.detail
    assert suppressed.verdict == "agrees"
    assert all("±" in finding.detail for finding in (winner, suppressed))


def by_scipy(values):
    """Rows of (case, seed) above 0 by SciPy's t test with Holm's correction, undecided ones, and all."""
    test = ttest_1samp(values, 0, axis=-1)
    order = np.argsort(test.pvalue)
    decided = next((i for i, one in enumerate(order) if test.pvalue[one] > 0.05 / (3 - i)), 3)
    return int((test.statistic[order[:decided]] > 0).sum()), 3 - decided, 3


def test_one_seed_decides_nothing(computed):
    one = fig5.findings(computed.table[computed.table["seed"] == 0])
    assert {finding.verdict for finding in one} == {"undecided"}


def test_findings_can_fail(computed):
    table = computed.table
    same = table["step"].eq(100) & table["kind"].eq("distinct")
    by_frequency = table.copy()
    by_frequency.loc[same, "attention"] = by_frequency.loc[same, "frequency"]  # what no training would leave
    by_frequency.loc[same, "attention"] += 1e-6 * by_frequency.loc[same, "seed"] * by_frequency.loc[same, "token"]
    subsets, winner, _ = fig5.findings(by_frequency)
    assert (subsets.agree, winner.agree) == (0, 0)
    assert winner.verdict == "disagrees"
    shuffled = table.copy()  # rates do not matter, seeds do: the rates' labels permuted differently for each seed
    turn = {(rate, seed): fig5.RATES[(i + seed) % 3] for i, rate in enumerate(fig5.RATES) for seed in range(3)}
    shuffled["eta_z"] = [turn[rate, seed] for rate, seed in zip(table["eta_z"], table["seed"], strict=True)]
    shuffled["eta_y"] = shuffled["eta_z"]
    assert computed.findings[0].agree == 3
    assert fig5.findings(shuffled)[0].agree == 0
    common = table["kind"] == "common"
    back = table.assign(step=np.where(common, 100 - table["step"], table["step"]))
    back = back[~common | back["step"].isin([0, 100])]
    assert fig5.suppressed(back).verdict == "disagrees"


def test_a_failed_run_agrees_with_nothing(computed):
    table = computed.table.copy()
    table.loc[(table["eta_z"] == 0.1) & (table["seed"] == 1), "attention"] = np.nan
    subsets, winner, suppressed = fig5.findings(table)
    assert [f.of for f in (subsets, winner, suppressed)] == [3, 3, 3]
    assert (subsets.agree, subsets.disagree) == (1, 2)  # the rate takes part in two pairs
    assert winner.disagree >= 1
    assert (suppressed.agree, suppressed.disagree) == (2, 1)


def test_the_drawing_has_a_map_for_each_rate(computed):
    figure = fig5.draw(computed)
    maps = [ax for ax in figure.axes if ax.images]
    assert len(maps) == 3
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == [rf"$\eta_Y$ = $\eta_Z$ = {rate}" for rate in ("0.1", "0.5", "1")]
    shown = maps[1].images[0].get_array()
    np.testing.assert_allclose(shown[-1, 10:], finals(computed.table)[1, 0])
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["common tokens", "distinct tokens"]


def test_the_example_trains_what_the_figure_shows(computed):
    """``examples/adam.toml`` says it has the figure's rates: the same numbers come out for its seed."""
    path = Path(__file__).parents[3] / "examples" / "adam.toml"
    classes, rates, settings = find_run(path, {})
    runs = ss.grid(**rates)
    assert list(zip(runs.eta_y, runs.eta_z, strict=True)) == [(rate, rate) for rate in fig5.RATES]
    data = ss.simulate(classes, runs, **settings, device="cpu")
    shown = sorted(computed.table["step"].unique())
    assert data.step.values.tolist() == shown
    table = computed.table[computed.table["seed"] == 0].sort_values(["eta_z", "step", "token"])
    got = data.attention.isel(seq_class=fig5.CLASS).sel(token=np.arange(20))
    np.testing.assert_allclose(got.values.ravel(), table["attention"], atol=1e-6)
