"""The figure on deviations: R² about the line y = x, findings that can fail, a drawing of given numbers."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_rows import sound_rows

from scansnap.claims.regime_map import MapPoint
from scansnap.paper.figure import Computed
from scansnap.paper.studies import deviations
from scansnap.paper.studies.deviations import by_theorem, explained, r_squared
from scansnap.paper.studies.validity.measured import GENERAL, ValiditySetting, measure
from scansnap.plots.style import save_figure


@pytest.fixture
def table() -> pd.DataFrame:
    return by_theorem(sound_rows())


def test_r_squared_is_about_the_identity_not_about_a_fitted_line() -> None:
    measured = np.array([1.0, 2.0, 4.0])
    assert r_squared(measured, measured) == 1
    assert r_squared(measured, np.full(3, measured.mean())) == 0
    assert r_squared(measured, 3 * measured) < -8  # perfectly correlated, and wrong
    assert r_squared(measured, measured + 10) < -60
    assert r_squared(measured, np.array([1.0, 2.0, np.nan])) == -np.inf
    assert r_squared(measured, np.array([1.0, 2.0, np.inf])) == -np.inf


def test_sound_rows_agree(table: pd.DataFrame) -> None:
    result = deviations.findings(table)
    assert [f.verdict for f in result] == ["agrees"] * 6
    assert [f.of for f in result] == [3, 3, 3, 6, 27, 6]  # trusted at 10 t₀ and not met: 9 on the maps, 2 general
    of = explained(table, "3")
    assert of["memory"]["met"] > 0.99
    assert of["wrong"]["met"] < 0
    assert set(of["response"]) == {"met", "met_log", "trusted", "trusted_log", "maps", "maps_log"}


@pytest.mark.parametrize(
    ("change", "which"),
    [
        (lambda t: {"memory": np.where(t.theorem == "2a", t.wrong, t.memory)}, 0),
        (lambda t: {"memory": np.where(t.theorem == "3", t.no_memory, t.memory)}, 1),
        (lambda t: {"memory": np.where(t.theorem == "4", np.nan, t.memory)}, 2),
        (lambda t: {"wrong": t.memory, "no_memory": t.memory}, 3),  # controls that do as well as the memory
        (lambda t: {"response": np.where(t.part == GENERAL, t.response, 3 * t.response)}, 4),
        (lambda t: {"response": np.where(t.part == GENERAL, np.inf, t.response)}, 5),
    ],
)
def test_each_finding_can_fail(table: pd.DataFrame, change, which: int) -> None:
    result = deviations.findings(table.assign(**change(table)))
    assert [i for i, f in enumerate(result) if f.verdict == "disagrees"] == [which]


def test_a_control_is_lost_only_with_ten_times_more_unexplained(table: pd.DataFrame) -> None:
    """Off by 1% the memory leaves 1 of what a control off by 2% leaves 4, and one off by 4% leaves 16."""
    near, far = (deviations.findings(table.assign(wrong=control, no_memory=control))
                 for control in (0.98 * table.measured, 0.96 * table.measured))  # fmt: skip
    assert (near[3].agree, far[3].agree) == (0, 6)


def test_it_draws_what_it_is_given(table: pd.DataFrame, tmp_path: Path) -> None:
    figure = deviations.draw(Computed(table, {}))
    save_figure(figure, tmp_path / "deviations.png")
    assert len(figure.axes) == 6
    for ax, (by, theorem) in zip(figure.axes, product(("memory", "response"), ("2a", "3", "4")), strict=True):
        rows = table[(table.theorem == theorem) & table.assumptions_met]
        (blue,) = [line for line in ax.lines if line.get_label() == "assumptions met"]
        np.testing.assert_allclose(blue.get_xdata(), rows[by])
        np.testing.assert_allclose(blue.get_ydata(), rows.measured)
        assert ax.get_xlim() == ax.get_ylim()
        assert f"R² = {explained(table, theorem)[by]['met']:.4f}" in ax.texts[0].get_text()


@pytest.mark.integration
def test_on_a_small_map_the_memory_explains_what_the_controls_do_not() -> None:
    """Five settings that meet every assumption, by the exact flow. The drive alone keeps something of Theorem 4, which
    fails by its premise first, but leaves far more of it unexplained."""
    places = [(16.0, 0.3), (60.0, 0.2), (60.0, 0.3), (60.0, 0.4), (300.0, 0.3)]
    points = [MapPoint(ratio=ratio, overlap=overlap) for ratio, overlap in places]
    table = by_theorem(pd.DataFrame([measure(ValiditySetting("ratio", point.ratio, point)) for point in points]))
    assert table.assumptions_met.all()
    for theorem, most in (("2a", 0.5), ("3", 0.5), ("4", 0.95)):
        of = explained(table, theorem)
        assert min(of["memory"]["met"], of["memory"]["met_log"], of["response"]["met"]) > 0.99, theorem
        for control in ("wrong", "no_memory"):
            assert of[control]["met"] < most
            assert 1 - of[control]["met"] > 10 * (1 - of["memory"]["met"])
    assert deviations.findings(table)[3].verdict == "agrees"
