"""Figures 1, 2, 3, 8, 9, Table 1 and the claims: their data, and findings that can fail."""

import numpy as np
import pandas as pd
import pytest

import scansnap as ss
from scansnap.paper.figure import Computed, Effort
from scansnap.paper.figures import claims, fig1, fig2, fig3, fig8, fig9, table1

QUICK = Effort(quick=True, device="cpu")


@pytest.fixture(scope="module", params=[fig1, fig2, fig3, fig8, fig9, table1, claims], ids=lambda m: m.__name__[17:])
def figure(request):
    return request.param, request.param.compute(QUICK)


def test_every_figure_has_data_findings_and_a_drawing(figure):
    module, computed = figure
    assert len(computed.table)
    assert computed.settings
    assert computed.findings
    assert module.TITLE
    assert module.CAPTION.endswith(".")
    assert module.draw(computed).axes
    for finding in computed.findings:
        assert 0 <= finding.agree <= finding.of


def test_a_drawing_needs_only_what_compute_returned(figure):
    module, computed = figure
    shown = Computed(computed.table.copy(), computed.settings, extra=computed.extra)
    assert len(module.draw(shown).axes) == len(module.draw(computed).axes)


KINDS = {fig1: "by definition", table1: "by definition", fig3: "formula", fig8: "formula", fig9: "formula",
         fig2: "measured"}  # fmt: skip


@pytest.mark.parametrize("module", KINDS, ids=lambda m: m.__name__[17:])
def test_every_finding_says_what_kind_it_is(module):
    assert {finding.kind for finding in module.compute(QUICK).findings} == {KINDS[module]}


def test_fig1_notices_a_token_of_the_wrong_kind():
    table = fig1.compute(QUICK).table
    distinct = table.index[(table.panel == "class") & (table.kind == "distinct")]
    table.loc[distinct[0], "kind"] = "common"
    right, _ = fig1.findings(table)
    assert right.agree == right.of - 1


def test_fig1_draws_tokens_the_class_can_produce():
    sequence = fig1.compute(QUICK).table.query("panel == 'sequence'")
    assert len(sequence) == fig1.CONTEXT - 1
    assert (sequence.p > 0).all()


def test_fig2_is_what_simulate_says():
    table = fig2.compute(QUICK).table
    classes = ss.SequenceClasses.synthetic(**fig2.CLASSES)
    seeds = sorted(table.seed.unique())
    assert seeds == list(range(fig2.QUICK_SEEDS))
    runs = ss.grid(**fig2.RATES, seed=seeds)
    data = ss.simulate(classes, runs, **fig2.TRAINING, record=[0, 5, 20, 100], device="cpu")
    for (seed, step, n), part in table.groupby(["seed", "step", "seq_class"]):
        attention = part.attention_unnormalised / part.attention_unnormalised.sum()
        expected = data.attention.isel(run=seed).sel(step=step, token=part.token.to_numpy()).isel(seq_class=n)
        np.testing.assert_allclose(attention, expected, rtol=1e-5)


def test_fig2_stages_fail_on_a_run_in_which_nothing_happens():
    table = fig2.compute(QUICK).table
    for column in ("z", "attention_unnormalised"):
        start = table[table.step == 0].set_index(["seed", "seq_class", "token"])[column]
        table[column] = start.loc[pd.MultiIndex.from_frame(table[["seed", "seq_class", "token"]])].to_numpy()
    table["speed_over_top"] = table["speed_at_t0"] = 1.0 + 0.01 * table.seed
    suppressed, gain, _, snapped, frozen = fig2.findings(table, 1.0)
    assert (suppressed.agree, gain.agree, snapped.agree, frozen.agree) == (0, 0, 0, 0)
    assert frozen.verdict == "disagrees"


def test_fig2_turns_round_with_time_and_with_failed_runs():
    table = fig2.compute(QUICK).table
    labels = list(fig2.MOMENTS)
    back = table.assign(moment=table.moment.map(dict(zip(labels, reversed(labels), strict=True))))
    suppressed, *_ = fig2.findings(back, 1.0)
    assert suppressed.verdict == "disagrees"
    failed = table.copy()
    numbers = ["z", "attention_unnormalised", "speed_over_top", "speed_at_t0"]
    failed.loc[failed.seed == 1, numbers] = np.nan
    for finding in fig2.findings(failed, 1.0):
        assert finding.verdict == "disagrees"
        assert finding.undecided == 0


def test_fig2_with_one_seed_decides_nothing():
    table = fig2.compute(QUICK).table
    for finding in fig2.findings(table[table.seed == 0], 1.0):
        assert finding.verdict == "undecided"
        assert "one seed" in finding.detail


def test_fig3_says_when_the_order_is_reversed():
    table = fig3.compute(QUICK).table
    reverse = dict(zip(fig3.ETA_Y, reversed(fig3.ETA_Y), strict=True))
    table["eta_y"] = table.eta_y.map(reverse)
    later, larger, _ = fig3.findings(table)
    assert (later.verdict, larger.verdict) == ("disagrees", "disagrees")


def test_fig3_does_not_take_a_curve_that_never_bends_for_a_late_one():
    table = fig3.compute(QUICK).table
    slowest = table.eta_y == min(fig3.ETA_Y)
    table.loc[slowest, "chi"] = 1 + table[slowest].t
    later, *_ = fig3.findings(table)
    assert later.agree == later.of - 1


def test_fig3_reaches_the_height_of_the_papers_axis():
    """The paper's axis ends at 600, its highest curve just below; C₀ was chosen for that and nothing else."""
    chi = fig3.compute(QUICK).table.groupby("eta_y").chi.last()
    assert 550 < chi[0.5] < 600


def test_bend_of_a_known_curve():
    """χ = 1 − e^{−t} has its top speed at 0 and half of it at ln 2."""
    t = np.linspace(0, 5, 2001)
    assert fig3.bend(pd.DataFrame({"t": t, "chi": 1 - np.exp(-t)})) == pytest.approx(np.log(2), abs=0.01)


def test_a_wrong_closed_form_is_noticed():
    table = fig3.compute(QUICK).table
    assert fig3.integration_agrees(table).verdict == "agrees"
    table["growth"] = ss.theory.growth(table.t.to_numpy(), eta_y=table.eta_y.to_numpy(), eta_z=0.5, n_classes=10,
                                       vocab_size=1000, c0=0.00625, form="printed")  # fmt: skip
    assert fig3.integration_agrees(table).verdict == "disagrees"


def test_fig8_bound_is_broken_by_a_shift():
    table = fig8.compute(QUICK).table
    table["h_recursion"] += 3 * table.eta_y / table.vocab_size
    assert [f.verdict for f in fig8.findings(table)] == ["disagrees"] * 3


def test_fig8_notices_a_difference_that_stays():
    table = fig8.compute(QUICK).table
    assert [f.verdict for f in fig8.findings(table)] == ["agrees"] * 3
    table["h_recursion"] += 0.01 * table.eta_y / table.vocab_size
    assert [f.verdict for f in fig8.findings(table)] == ["agrees", "agrees", "disagrees"]


def test_fig9_with_a_free_ratio_is_not_equal_at_the_snap():
    table = fig9.compute(QUICK).table
    table["growth_at_t_snap"] *= 1 + 1e-3 * table.eta_z
    equal, _ = fig9.findings(table)
    assert equal.agree < equal.of


def test_claims_count_settings_and_say_why_they_fail():
    table = pd.DataFrame(
        {"claim": ["a", "a", "a"], "reference": "Lemma 0", "statement": "It holds.", "relation": "", "kind": "identity",
         "setting": ["x", "y", "z"],
         "status": ["holds", "fails", "not applicable"], "observed": ["holds", "fails", "holds"],
         "why": ["", "too large", "assumption"], "instead": ["", "memory", ""],
         "instead_words": ["", "instead: memory holds up to 10 t₀", ""], "instead_off": [None, 0.005, None],
         "off": [None, 7.0, None], "measured": [0.1, 0.2, 0.3]}
    )  # fmt: skip
    (result,) = claims.findings(table)
    assert (result.agree, result.of, result.verdict, result.kind) == (1, 2, "mixed", "identity")
    ours = "Instead: memory holds up to 10 t₀: its curve is off by 0.5%, the paper's by a factor of 8."
    assert f"Fails for y: too large. {ours}" in result.detail
    assert "agrees in 1 of 1" in result.detail


def test_a_claim_that_is_algebra_in_one_setting_is_measured_in_the_other_only():
    table = pd.DataFrame(
        {"claim": "a", "reference": "Lemma 0", "statement": "It holds.", "relation": "",
         "kind": ["formula", "measured"], "setting": ["flow", "sgd"], "status": "holds", "observed": "holds", "why": "",
         "measured": [0.1, 0.2]}
    )  # fmt: skip
    assert [(result.kind, result.agree, result.of) for result in claims.findings(table)] == [
        ("formula", 1, 1), ("measured", 1, 1),
    ]  # fmt: skip


def test_an_undecided_claim_neither_agrees_nor_fails():
    table = pd.DataFrame(
        {"claim": "a", "reference": "Lemma 0", "statement": "It holds.", "relation": "",
         "kind": "measured", "setting": ["x", "y"],
         "status": ["holds", "undecided"], "observed": ["holds", "undecided"], "why": ["", "9 seeds would decide"],
         "measured": [0.1, None]}
    )  # fmt: skip
    (result,) = claims.findings(table)
    assert (result.agree, result.of, result.undecided, result.disagree) == (1, 2, 1, 0)
    assert "Undecided for y: 9 seeds would decide." in result.detail
    assert "Fails" not in result.detail
