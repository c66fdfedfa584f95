"""The figure of time scales: its findings, that they can fail, and the drawing."""

from dataclasses import replace

import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.figures import timescales
from scansnap.paper.report.targets import TARGETS


@pytest.fixture(scope="module")
def computed():
    return timescales.compute(Effort(quick=True, device="cpu"))


def test_it_is_a_target():
    assert "timescales" in TARGETS


def test_what_it_finds(computed):
    verdicts = [finding.verdict for finding in computed.findings]
    assert verdicts[1:7] == ["agrees"] * 6
    assert verdicts[0] in ("agrees", "mostly agrees", "mixed")  # to 10⁹ t₀ only
    assert verdicts[7] == "mixed", "in ln t some freeze and some do not"
    assert "preset textbook: fastest in ln t at 5" in computed.findings[7].detail
    assert "10⁹" in computed.note


def test_every_flow_snaps_where_it_does(computed):
    snaps = computed.settings["snaps"]
    for name in ("l2", "none"):
        assert snaps[name]["t"]["why_not"] == snaps[name]["ln t"]["why_not"] == ""
        assert 0.3 < snaps[name]["ln t"]["fastest"] < 3
    for name in ("fixed", "decay_y", "textbook"):
        assert snaps[name]["ln t"]["why_not"] == "not yet"


def test_the_statements_fail_on_the_wrong_flow(computed):
    """Each flow under another's name."""
    swapped = {"none": "fixed", "fixed": "none", "decay_y": "decay_z", "decay_z": "decay_y"}
    findings = timescales.findings(computed.table.replace({"flow": swapped}))
    assert [finding.agree for finding in findings[:5]] == [0] * 5


def test_it_draws(computed):
    figure = timescales.draw(replace(computed))
    figure.draw_without_rendering()
    assert [ax.get_ylabel() for ax in figure.axes] == ["logit gap of attention", "speed per t", "speed per ln t"]
