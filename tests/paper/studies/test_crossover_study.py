"""The study of insight (c): what the flow says of it, and findings that can fail."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.figures import numbered
from scansnap.paper.studies import crossover


@pytest.fixture(scope="module")
def computed():
    patch = pytest.MonkeyPatch()
    patch.setattr(crossover, "RATIOS", (1.0, 2.0, 4.0, 8.0, 16.0))
    yield crossover.compute(Effort(quick=True, device="cpu"))
    patch.undo()


def test_insight_c_holds_above_the_crossover_only(computed):
    insight, peak, closed_form, _ = computed.findings
    assert 0 < insight.agree < insight.of
    assert (peak.verdict, closed_form.verdict) == ("agrees", "agrees")
    assert computed.settings["crossover"]["10"] == pytest.approx(3.95, abs=0.01)
    assert crossover.draw(replace(computed)).axes


def test_another_crossover_and_another_theory_disagree(computed):
    star = {float(moment): 3 * ratio for moment, ratio in computed.settings["crossover"].items()}
    table = computed.table.assign(closed_form=computed.table.closed_form * 1.2)
    _, peak, closed_form, _ = crossover.findings(table, star)
    assert (peak.agree, closed_form.agree) == (0, 0)
    falling = table.assign(flow=1 / table.ratio)
    assert crossover.findings(falling, star)[0].verdict == "agrees"


def test_a_peak_at_an_end_is_none():
    assert np.isnan(crossover.peak(np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 1.0])))
    assert crossover.peak(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 1.0])) == pytest.approx(2)


def test_numbered_statements_draw_and_count(monkeypatch):
    """Of a table made by hand: a claim that fails on one setting, and a step of a proof, which does not count."""
    from scansnap.claims.statements import PAPER, PaperRow, Part

    def part(claim, status, kind="measured"):
        return Part("textbook", claim, kind, status, "", None, None, None, "", "")

    parts = (part("a", "holds"), part("a", "fails"), part("b", "holds"), part("c", "fails", "proof step"))
    monkeypatch.setattr(numbered, "check_paper", lambda progress: [PaperRow(PAPER[5], parts), PaperRow(PAPER[1], ())])
    computed = numbered.compute(Effort(quick=True))
    assert isinstance(computed.table, pd.DataFrame)
    assert [(f.reference, f.agree, f.of) for f in computed.findings] == [("Theorem 1", 1, 2), ("Assumption 1", 0, 0)]
    assert computed.table.verdict.tolist() == ["holds in part", "not yet checked"]
    assert numbered.draw(computed).axes
