"""Figure 12: the runs of Figure 11 by η_Z."""

import numpy as np
import pytest
from recall_checks import flatter, mirrored

from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig11, fig12


@pytest.fixture(scope="module")
def computed():
    return fig12.compute(Effort(quick=True, device="cpu"))


@pytest.fixture(scope="module")
def ten_seeds():
    return fig12.compute(Effort(device="cpu"))


@pytest.mark.integration
def test_findings_by_another_route(ten_seeds):
    ends, steps = ten_seeds.findings
    assert (ends.agree, ends.undecided, ends.of) == flatter(ten_seeds.table, "eta_z", "ratio", better=3.0)
    assert ends.agree > 12
    assert steps.of == 48


def test_findings_turn_round_with_the_data(ten_seeds):
    ends, steps = fig12.findings(mirrored(ten_seeds.table, "eta_z"))
    assert ends.verdict == "disagrees"
    assert (steps.agree, steps.disagree) == (0, ten_seeds.findings[1].agree)


def test_few_seeds_decide_little(computed):
    ends, _ = computed.findings
    assert ends.verdict == "undecided"
    assert (ends.agree, ends.undecided, ends.of) == flatter(computed.table, "eta_z", "ratio", better=3.0)


def test_the_descent_is_from_the_lowest_to_the_highest_threshold_of_its_size(computed):
    falls = fig11.descents(computed.table)
    assert len(falls) == 4 * 4 * 4 * 3
    one = computed.table.query("n_query == 10 and eta_z == 0.5 and ratio == 1 and seed == 0").sort_values("threshold")
    expected = one["recall"].iloc[0] - one["recall"].iloc[-1]
    got = falls.query("n_query == 10 and eta_z == 0.5 and ratio == 1 and seed == 0")["descent"].item()
    assert got == pytest.approx(expected)
    assert expected > 0.1


def test_the_drawing_has_a_panel_for_each_size_and_ratio(computed):
    figure = fig12.draw(computed)
    assert len(figure.axes) == 16
    assert figure.axes[3].get_title() == r"$\eta_Y/\eta_Z$ = 10"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        rf"$\eta_Z$ = {rate}" for rate in ("0.5", "1", "2", "3")
    ]
    line = next(line for line in figure.axes[2].lines if line.get_label() == r"$\eta_Z$ = 0.5")
    here = computed.table.query("n_query == 1 and ratio == 5 and eta_z == 0.5").groupby("threshold")["recall"].mean()
    np.testing.assert_allclose(line.get_ydata(), here)
