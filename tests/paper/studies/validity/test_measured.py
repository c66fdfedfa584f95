"""One setting: what is measured is what the claims measure, and what is predicted is predicted by their own code."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.regime_map import MapPoint
from scansnap.paper.studies.validity.measured import (
    ETA_Y,
    FULL,
    GENERAL,
    MOMENTS,
    QUICK,
    ValiditySetting,
    along,
    deviations,
    measure,
    memory,
    no_memory,
    settings,
    times,
)

POINT = MapPoint(ratio=45.0, overlap=0.24)
NAMES = {"2a": "theorem-2a-rate", "3": "theorem-3-identity", "4": "theorem-4-growth"}


@pytest.fixture(scope="module")
def row() -> dict:
    """Close to the preset textbook: every assumption is met."""
    return measure(ValiditySetting("ratio", POINT.ratio, POINT))


@pytest.mark.integration
def test_what_is_measured_is_what_the_claims_measure(row: dict) -> None:
    """Against the report of verify() on its own times; a worst over other times differs a little."""
    classes = POINT.classes()
    report = ss.verify(classes, eta_y=ETA_Y, eta_z=ETA_Y / 45, checks=["theorem-2", "theorem-3", "theorem-4"])
    for theorem, name in NAMES.items():
        claim = report[name]
        assert row[f"{theorem}_measured"] == pytest.approx((1 - claim.margin) * claim.tolerance, rel=0.03)


def test_the_memory_predicts_the_deviations_and_the_controls_do_not(row: dict) -> None:
    assert row["assumptions_met"]
    for theorem in NAMES:
        measured = row[f"{theorem}_measured"]
        for by in ("memory", "response"):
            assert row[f"{theorem}_{by}"] == pytest.approx(measured, rel=0.02), (theorem, by)
        for by in ("wrong", "no_memory"):
            assert abs(row[f"{theorem}_{by}"] / measured - 1) > 0.1, (theorem, by)
    # without a memory all distinct tokens rise as their f², but for what attention's own move does to f
    assert row["2a_no_memory"] < 0.01 * row["2a_measured"]
    assert row["3_no_memory"] < 0.01 * row["3_measured"]


def test_the_error_is_that_of_the_response(row: dict) -> None:
    """docs/derivations.md has 1e-3 for textbook at 100 t₀ and this ratio."""
    assert 5e-4 < row["error_100"] < 2e-3
    assert row["error_1"] < row["error_10"] < row["error_100"]
    for moment in MOMENTS:
        assert row[f"estimate_{moment}"] == pytest.approx(row[f"error_{moment}"], rel=0.3)
    assert row["trusted_until"] == np.inf
    assert 0.5 < row["paper_1"] < row["paper_10"] < row["paper_100"]  # Theorem 4 falls behind, and never catches up


@pytest.mark.integration
def test_far_outside_the_error_is_told_and_not_trusted() -> None:
    point = MapPoint(ratio=2.0, overlap=0.8, vocab_size=44)
    result = measure(ValiditySetting("vocab_size", point.ratio, point))
    assert result["error_100"] > 1
    assert result["estimate_100"] > 0.1
    assert result["trusted_until"] < 1
    assert not result["assumptions_met"]
    assert "2a_wrong" not in result  # the controls are asked only where the theorem speaks


def test_a_predicted_path_is_judged_as_the_flow_is() -> None:
    """The flow's own z, given as if it were predicted, gives back the flow's deviations: all that along() adds is ż."""
    classes, t_0 = POINT.classes(), float(ss.theory.t_snap(eta_y=ETA_Y, n_classes=2, vocab_size=POINT.vocab_size))
    t = times(t_0)
    exact = ss.flow(classes, ETA_Y, ETA_Y / 45, t=t, rtol=1e-9, atol=1e-16, variables=("z", "attention", "g"))
    wanted = deviations(from_trajectory(exact, classes), "x")
    result = deviations(along(classes, ETA_Y, ETA_Y / 45, t, exact.z.values), "x")
    for name, value in wanted.items():
        assert result[name] == pytest.approx(value, rel=2e-3), name


def test_the_closed_forms_are_those_of_the_flow_where_attention_hardly_moves() -> None:
    point = MapPoint(ratio=1e6, overlap=0.24)
    t = times(float(ss.theory.t_snap(eta_y=ETA_Y, n_classes=2, vocab_size=point.vocab_size)))[:40]
    z = ss.flow(point.classes(), ETA_Y, ETA_Y / 1e6, t=t, rtol=1e-10, atol=1e-20, variables=["z"]).z.values
    for result in (memory(point, t), no_memory(point, t)):
        np.testing.assert_allclose(result[1:], z[1:], rtol=1e-4, atol=1e-6 * np.abs(z).max())
    np.testing.assert_allclose(memory(point, t, wrong=3.0)[-1], 3 * z[-1], rtol=1e-4)  # in proportion to η_Z


def test_settings_outside_the_family_have_the_response_alone() -> None:
    result = measure(ValiditySetting(GENERAL, 300.0, None, "syn-medium", (("n_queries", 3),)))
    assert result["classes"] == "syn-medium 3"
    assert result["overlap"] == pytest.approx(0.722, abs=1e-3)
    assert "2a_memory" not in result
    for theorem in NAMES:
        assert result[f"{theorem}_response"] == pytest.approx(result[f"{theorem}_measured"], rel=0.12)


def test_the_maps_begin_where_there_are_such_classes() -> None:
    for size in (QUICK, FULL):
        asked = settings(size)
        points = [setting.point for setting in asked if setting.point is not None]
        assert all(point.vocab_size >= point.n_tokens for point in points)
        assert len(points) == sum(n * size.up for n in size.across.values())
        assert len(asked) - len(points) == 3 * len(size.ratios)
    ratio, base = ([setting for setting in settings(QUICK) if setting.part == part] for part in ("ratio", "vocab_size"))
    assert {setting.point.vocab_size for setting in ratio} == {MapPoint().vocab_size}
    assert {setting.ratio for setting in base} == {MapPoint().ratio}
