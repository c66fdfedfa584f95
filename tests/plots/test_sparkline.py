"""A claim's curve in a line of a table."""

import numpy as np
import pytest

from scansnap.claims.claim import Alternative, Curve, Statement
from scansnap.plots.sparkline import POINTS, sparkline

SAYS = Statement("theorem-0", "Theorem 0", "it doubles")


def claim(measured, predicted, **axes):
    x = np.geomspace(1, 100, len(measured))
    curve = Curve("t", "y", x, np.asarray(measured), np.asarray(predicted), **axes)
    return SAYS.judge(quantity="y", measured=1, predicted=1, deviation=0, tolerance=1, curve=curve)


def test_lines_fill_the_box_on_the_axes_of_the_curve():
    x = np.geomspace(1, 100, 500)
    line = sparkline(claim(x, 10 * x, log_y=True), "textbook")
    assert line.setting == "textbook"
    assert line.instead == ()
    assert len(line.measured) <= POINTS
    assert line.measured[0] == (0, 0)
    assert line.measured[-1] == (1, pytest.approx(2 / 3, abs=1e-3))  # two decades of three
    assert line.predicted[-1] == (1, 1)
    xs, ys = np.array(line.measured).T
    np.testing.assert_allclose(ys, 2 / 3 * xs, atol=1e-3)  # straight where both axes are logarithmic


def test_what_holds_instead_is_on_the_same_axes_and_sets_their_range():
    flat = claim(np.linspace(0, 1, 50), np.zeros(50))
    ours = Alternative(claim([1, 1], [1, 1]), x=np.array([1.0, 10.0]), y=np.array([0.0, 0.5]))
    line = sparkline(type(flat)(**{**vars(flat), "alternative": ours}), "here")
    assert line.instead[0][0] == 0
    assert line.instead[-1][0] == 1
    assert max(x for x, _ in line.measured) <= 1


def test_rounding_is_not_magnified_and_what_cannot_be_drawn_is_not():
    flat = sparkline(claim(1e-15 * np.sin(np.arange(30)), np.zeros(30)), "here")
    assert {round(y, 2) for _, y in (*flat.measured, *flat.predicted)} == {0.5}
    assert sparkline(claim([1.0, np.nan, np.nan], [1.0, 1.0, 1.0]), "here") is None
    assert sparkline(SAYS.not_applicable("no curve"), "here") is None
