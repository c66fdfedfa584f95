"""Figure 4: its table, and findings that can fail."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

import scansnap as ss
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig4
from scansnap.paper.shared import small_runs

COLUMNS = ["eta_y", "eta_z", "seed", "step", "seq_class", "token", "kind", "frequency", "attention"]


@pytest.fixture(scope="module")
def computed():
    return fig4.compute(Effort(quick=True, device="cpu"))


def backwards(table):
    """The same runs with time reversed: the end becomes the start."""
    steps = sorted(table["step"].unique())
    return table.assign(step=table["step"].map(dict(zip(steps, reversed(steps), strict=True))))


def test_the_table_has_a_row_for_each_cell(computed):
    table = computed.table
    assert list(table.columns) == COLUMNS
    assert "3 of 10 seeds" in computed.note
    assert sorted(table["step"].unique()) == [*range(11), 15, 20, 30, 40, 50, 70, 100]
    assert (
        len(table) == 2 * 2 * 3 * 18 * 30 == len(table.drop_duplicates(["eta_y", "seed", "step", "seq_class", "token"]))
    )
    sums = table.groupby(["eta_y", "seed", "step", "seq_class"])[["frequency", "attention"]].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-5)
    start = table[table["step"] == 0]
    np.testing.assert_allclose(start["attention"], start["frequency"], atol=1e-6)  # z = 0
    kinds = table[table["seq_class"] == 1].groupby("kind")["token"].agg(["min", "max"])
    assert kinds.loc["common"].tolist() == [0, 9]
    assert kinds.loc["absent"].tolist() == [10, 19]
    assert kinds.loc["distinct"].tolist() == [20, 29]


def test_a_cell_is_what_its_settings_give(computed):
    s = computed.settings
    assert (s["eta_z"], s["ratio"], s["seeds"], s["momentum"]) == ([1.0], [1.0, 10.0], [0, 1, 2], 0.9)
    data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=10.0, eta_z=1.0, seed=2, steps=s["steps"], momentum=0.9,
                       batch_size=s["batch_size"], context=s["context"], record=[10], device="cpu")  # fmt: skip
    row = computed.table.query("eta_y == 10 and seed == 2 and step == 10 and seq_class == 1").sort_values("token")
    np.testing.assert_allclose(row["attention"], data.attention[0, -1, 1, :30], atol=1e-6)


def test_findings_by_another_route(computed):
    cube = computed.table.sort_values(["eta_y", "seed", "step", "seq_class", "token"])["attention"].to_numpy()
    c = cube.reshape(2, 3, 18, 2, 30)  # rates, seed, step, class, token
    suppressed, winner, sparser, denser, faster, frozen, from_t0 = computed.findings
    common = c[..., :10].sum(-1)
    assert counted(suppressed) == by_scipy(common[:, :, 0] - common[:, :, -1])
    own, last = np.array([19, 29]), c[:, :, -1]
    lead = last[..., np.arange(2), own] - np.where(np.arange(30) == own[:, None], 0, last).max(-1)
    assert counted(winner) == by_scipy(lead)
    entropy = -np.where(c > 0, c * np.log(np.maximum(c, 1e-30)), 0).sum(-1)
    assert counted(sparser) == by_scipy(entropy[:, :, 0] - entropy[:, :, -1])
    assert counted(denser) == by_scipy(entropy[1, :, -1] - entropy[0, :, -1])

    def moved(a, b):
        return np.abs(c[:, :, a] - c[:, :, b]).sum(-1)

    covered = 1 - moved(10, -1) / moved(0, -1)
    assert counted(faster) == by_scipy(covered[1] - covered[0])
    assert counted(frozen) == by_scipy(0.05 - moved(15, -1) / moved(0, -1))
    after_t0 = np.stack([moved(6, -1)[0], moved(2, -1)[1]])  # t₀ is step 5.2 and 1.3
    assert counted(from_t0) == by_scipy(0.05 - after_t0 / moved(0, -1))
    assert all("±" in finding.detail for finding in computed.findings)
    assert suppressed.verdict == winner.verdict == frozen.verdict == "agrees"


def counted(finding):
    return finding.agree, finding.undecided, finding.of


def by_scipy(values):
    """Cases where (…, seed, class) is above 0 by SciPy's t test with Holm's correction, undecided ones, and all."""
    test = ttest_1samp(values, 0, axis=-2)
    p = np.ravel(test.pvalue)
    decided = next((i for i, one in enumerate(np.sort(p)) if one > 0.05 / (p.size - i)), p.size)
    above = int((np.ravel(test.statistic)[np.argsort(p)[:decided]] > 0).sum())
    return above, p.size - decided, p.size


def test_findings_turn_round_with_the_data(computed):
    suppressed, winner, sparser, *_ = fig4.findings(backwards(computed.table))
    assert suppressed.verdict == "disagrees"
    assert winner.agree == 0  # a tie with the common tokens at the start
    assert (sparser.agree, sparser.disagree) == (0, computed.findings[2].agree)
    assert fig4.frozen_from_t0(computed.table).verdict == "disagrees"
    restless = computed.table.assign(step=computed.table["step"].replace({6: 50, 50: 6}))  # much is to come at step 6
    assert fig4.frozen(restless).verdict == "disagrees"
    wide = computed.table.set_index(["eta_y", "seed", "seq_class", "token", "step"])["attention"].unstack("step")
    wide.loc[:, 2:] = wide[[100]].to_numpy() + 0.01 * (wide.loc[:, 2:] - wide[[100]].to_numpy())
    early = wide.stack().rename("early").reset_index()
    early = computed.table.merge(early, on=["eta_y", "seed", "seq_class", "token", "step"])
    assert fig4.frozen_from_t0(early.assign(attention=early["early"])).verdict == "agrees"
    swapped = computed.table.assign(eta_y=computed.table["eta_y"].map({1.0: 10.0, 10.0: 1.0}))
    _, _, _, denser, faster, *_ = fig4.findings(swapped)
    assert (denser.agree, faster.agree) == (0, 0)
    assert faster.verdict == "disagrees"


def test_a_failed_run_agrees_with_nothing(computed):
    table = computed.table.copy()
    table.loc[(table["eta_y"] == 10) & (table["seed"] == 1), "attention"] = np.nan
    for before, after in zip(computed.findings, fig4.findings(table), strict=True):
        assert after.of == before.of
        assert after.disagree >= 2  # both classes at that rate, and not as undecided
        assert after.agree <= before.agree


def test_one_seed_decides_nothing(computed):
    one = fig4.findings(computed.table[computed.table["seed"] == 0])
    assert {finding.verdict for finding in one} == {"undecided"}


def test_the_drawing_shows_both_classes_at_both_rates(computed):
    figure = fig4.draw(computed)
    maps = [ax for ax in figure.axes if ax.images]
    assert len(maps) == 4
    assert [ax.get_ylabel() for ax in maps[::2]] == ["class 0\niteration", "class 1\niteration"]
    labels = [text.get_text() for text in maps[0].get_yticklabels()]
    assert labels == ["0", "2", "4", "6", "8", "10", "final (100)"]
    shown = maps[3].images[0].get_array()  # η_Y = 10, class 1
    assert shown.shape == (7, 30)
    assert shown.mask[:, 10:20].all()
    assert shown.mask.sum() == 70
    want = computed.table.query("eta_y == 10 and seed == 0 and seq_class == 1 and step == 100 and token == 29")
    assert shown[-1, 29] == pytest.approx(want["attention"].item())
    limits = {image.get_clim() for ax in maps for image in ax.images}
    assert len(limits) == 1  # one scale for all


def test_an_interruption_is_passed_on():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fig4.compute(Effort(quick=True, device="cpu"), stop)


@pytest.mark.parametrize(("momentum", "eta_y"), [(0.0, 1.0), (0.9, 1.0), (0.9, 10.0), (0.9, 1e-3)])
def test_t0_in_steps_is_when_sgd_has_gone_as_far_as_the_flow(momentum, eta_y):
    classes = ss.SequenceClasses.syn_small()
    t_0 = ss.theory.t_snap(eta_y=eta_y / (1 - momentum), n_classes=2, vocab_size=34)
    velocity, way = 0.0, [0.0]
    while way[-1] < t_0:
        velocity = momentum * velocity + 1
        way.append(way[-1] + (1 - momentum) * velocity)
    assert len(way) - 2 <= small_runs.snap_step(classes, eta_y, momentum) <= len(way) - 1
