"""Figures 1, 2, 3, 8, 9, Table 1 and the claims: their data, and findings that can fail."""

import numpy as np
import pandas as pd
import pytest

import scansnap as ss
from scansnap.figures import claims, fig1, fig2, fig3, fig8, fig9, growth_curves, table1
from scansnap.figures.figure import Computed, Effort, Finding

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


@pytest.mark.parametrize(
    ("agree", "of", "verdict"), [(3, 3, "agrees"), (1, 3, "in part"), (0, 3, "disagrees"), (0, 0, "not applicable")]
)
def test_the_verdict_is_counted(agree, of, verdict):
    assert Finding("It rises", "Figure 0", agree, of, "curves").verdict == verdict


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
    data = ss.simulate(classes, **fig2.TRAINING, record=[0, 5, 20, 100], device="cpu").isel(run=0)
    for (step, n), part in table.groupby(["step", "class"]):
        attention = part.attention_unnormalised / part.attention_unnormalised.sum()
        expected = data.attention.sel(step=step, token=part.token.to_numpy()).isel({"class": n})
        np.testing.assert_allclose(attention, expected, rtol=1e-5)


def test_fig2_stages_fail_on_a_run_in_which_nothing_happens():
    table = fig2.compute(QUICK).table
    for column in ("z", "attention_unnormalised"):
        start = table[table.step == 0][column].to_numpy()
        table[column] = np.tile(start, len(fig2.MOMENTS))
    table["speed_over_top"] = 1.0
    suppressed, gain, _, frozen = fig2.findings(table)
    assert (suppressed.agree, gain.agree, frozen.agree) == (0, 0, 0)


def test_fig3_says_when_the_order_is_reversed():
    table = fig3.compute(QUICK).table
    reverse = dict(zip(fig3.ETA_Y, reversed(fig3.ETA_Y), strict=True))
    table["eta_y"] = table.eta_y.map(reverse)
    later, larger, _ = fig3.findings(table)
    assert (later.verdict, larger.verdict) == ("disagrees", "disagrees")


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
    assert growth_curves.integration_agrees(table).verdict == "agrees"
    table["growth"] = ss.theory.growth(table.t.to_numpy(), eta_y=table.eta_y.to_numpy(), eta_z=0.5, n_classes=10,
                                       vocab_size=1000, c0=0.00625, form="printed")  # fmt: skip
    assert growth_curves.integration_agrees(table).verdict == "disagrees"


def test_fig8_bound_is_broken_by_a_shift():
    table = fig8.compute(QUICK).table
    table["h_recursion"] += 3 * table.eta_y / table.vocab_size
    assert [f.verdict for f in fig8.findings(table)] == ["disagrees", "disagrees"]


def test_fig9_with_a_free_ratio_is_not_equal_at_the_snap():
    table = fig9.compute(QUICK).table
    table["growth_at_t_snap"] *= 1 + 1e-3 * table.eta_z
    equal, _ = fig9.findings(table)
    assert equal.agree < equal.of


def test_claims_count_settings_and_say_why_they_fail():
    table = pd.DataFrame(
        {"claim": ["a", "a", "a"], "reference": "Lemma 0", "statement": "It holds.", "setting": ["x", "y", "z"],
         "status": ["holds", "fails", "not applicable"], "observed": ["holds", "fails", "holds"],
         "why": ["", "too large", "assumption"]}
    )  # fmt: skip
    (found,) = claims.findings(table)
    assert (found.agree, found.of, found.verdict) == (1, 2, "in part")
    assert "Fails for y: too large." in found.detail
    assert "agrees in 1 of 1" in found.detail
