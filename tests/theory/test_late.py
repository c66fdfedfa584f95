"""The late law: its own limits, and the exact flow at the times a test can reach."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap import theory


def exponent(log_u: float, k: int, rho: float) -> tuple[float, float]:
    """ρ and −d ln ρ/d ln u by a difference."""
    around = theory.late_overlap([log_u * 0.999, log_u, log_u * 1.001], n_classes=k, overlap=rho)
    return around[1], -np.log(around[2] / around[0]) / (0.002 * log_u)


@pytest.mark.parametrize("k", [2, 5])
def test_the_overlap_falls_as_one_over_the_logarithm(k: int) -> None:
    """Any past is forgotten: ρ 4(K − 1) ln u → 1, and the local exponent tends to 4(K − 1)ρ."""
    ends = [theory.late_overlap([100.0, 3000.0], n_classes=k, overlap=rho) for rho in (0.1, 0.5, 0.9)]
    scaled = np.array(ends) * 4 * (k - 1) * np.array([100.0, 3000.0])
    np.testing.assert_allclose(scaled[:, 1], 1, atol=0.01)
    assert (np.abs(scaled[:, 1] - 1) < np.abs(scaled[:, 0] - 1)).all()
    rho, slope = exponent(1000.0, k, 0.5)
    assert slope == pytest.approx(4 * (k - 1) * rho, rel=5e-3)
    assert slope == pytest.approx(theory.late_exponent(rho, n_classes=k), rel=5e-3)
    assert slope != pytest.approx(4 * k * rho, rel=0.1)  # of K − 1 others, not K


def test_two_classes_have_the_second_order() -> None:
    """s = 4ρ(1 − 5ρ + …) for K = 2."""
    lost = [(1 - slope / (4 * rho)) / rho for rho, slope in (exponent(x, 2, 0.3) for x in (50.0, 1000.0))]
    assert lost[1] == pytest.approx(5, abs=0.1)
    assert abs(lost[1] - 5) < abs(lost[0] - 5)


def test_the_flow_falls_as_the_late_law_says() -> None:
    """K = 2, M = 44, ratio 2, to 10¹² t₀ (a gap of 33): the exponent of ρ over the last stretch, to 5%."""
    p = np.zeros((2, 44))
    p[:, 0], p[0, 1], p[1, 2] = 0.5, 0.5, 0.5
    classes = ss.SequenceClasses(p_context=p, query=[3, 3], next_token=[4, 5])
    t = theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=44) * np.geomspace(1, 1e12, 13)
    flow = ss.flow(classes, 0.9, 0.45, t, rtol=1e-9, variables=("attention", "gap"))
    attention, gap = flow.attention.values[:, 0], flow.gap.values[:, 0]
    rho = attention[:, 0] ** 2 / (attention**2).sum(1)
    late = gap > 15
    measured = -np.polyfit(np.log(gap[late]), np.log(rho[late]), 1)[0]
    middle = np.exp(np.log(rho[late]).mean())
    grid = np.linspace(0.3, 6, 400)
    path = theory.late_overlap(grid, n_classes=2, overlap=0.5)
    held = np.interp(-middle, -path, -np.gradient(np.log(path), grid))
    assert measured == pytest.approx(held, rel=0.05)
    assert measured < 0.85 * theory.late_exponent(middle, n_classes=2)  # first order alone is not enough


def test_bad_input_is_named() -> None:
    assert type(theory.late_overlap(1, n_classes=2, overlap=0.2)) is float
    assert theory.late_overlap(0, n_classes=2, overlap=0.2) == pytest.approx(0.2)
    assert theory.late_overlap([[1, 0.5]], n_classes=2, overlap=0.2).shape == (1, 2)
    with refused("n_classes and overlap"):
        theory.late_overlap(1, n_classes=1, overlap=0.2)
    with refused("log_u", -1.0):
        theory.late_overlap(-1, n_classes=2, overlap=0.2)
