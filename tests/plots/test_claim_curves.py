"""The figure of all claims: what has a curve is drawn, whatever its shape."""

from dataclasses import replace

import numpy as np

from scansnap.claims.claim import Alternative, Curve, Statement
from scansnap.claims.report import Report
from scansnap.plots import claim_curves
from scansnap.plots.style import save_figure


def claim(name, curve):
    statement = Statement(name, name.title(), "a statement")
    return statement.judge(quantity="q", measured=1.0, predicted=1.0, deviation=0.0, tolerance=1.0, curve=curve)


def test_an_undecided_claim_and_an_identity_are_named():
    x = np.geomspace(1, 10, 5)
    curve = Curve("t", "y", x, x, x)
    judged = {"quantity": "q", "measured": 1.0, "predicted": 1.0, "tolerance": 1.0, "curve": curve}
    still = Statement("a", "A", "a statement").judge(deviation=0.9, interval=(0.5, 2.0), **judged)
    law = Statement("b", "B", "a statement", "identity").judge(deviation=0.0, **judged)
    titles = [ax.get_title() for ax in claim_curves.draw([still, law]).axes]
    assert titles == ["A: undecided", "B, identity: holds"]


def test_what_fails_comes_first_with_both_curves():
    x = np.geomspace(1, 10, 5)
    holds = claim("a", Curve("t", "y", x, x, x))
    broken = replace(claim("b", Curve("t", "B_n of class 0", x, x, x / 9)), status="fails")
    broken = replace(broken, alternative=Alternative(holds, "10 t₀", x[1:], 1.01 * x[1:], 0.01, 8 / 9))
    figure = claim_curves.draw([holds, broken])
    first, second = figure.axes
    assert first.get_title() == "B: fails"
    assert first.get_ylabel() == "$B_{n}$ of class 0"
    assert [line.get_label() for line in first.lines] == ["ours: a", "measured", "the paper"]
    assert first.texts[0].get_text() == "instead: a holds up to 10 t₀\n1% off; the paper 89%"
    assert min(first.lines[1].get_xdata()) == x[1], "all three over what ours speaks of"
    assert [line.get_label() for line in second.lines] == ["measured", "predicted"]


def test_only_claims_with_curves_are_drawn(tmp_path):
    x = np.geomspace(1, 10, 5)
    curves = [Curve("t", "a rather long label that has to be broken into lines", x, x, np.ones(1)),
              Curve("T", "y", x, x, x, log_y=True), Curve("z", "y", -x, x, x, log_x=False), None]  # fmt: skip
    report = Report("here", tuple(claim(f"claim {i}", curve) for i, curve in enumerate(curves)))
    shown = claim_curves.compute(report)
    assert [c.name for c in shown] == ["claim 0", "claim 1", "claim 2"]
    figure = claim_curves.draw(shown)
    assert len(figure.axes) == 3
    save_figure(figure, tmp_path / "c.pdf")
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
