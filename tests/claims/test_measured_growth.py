"""B_n of a run against the integral of ξ_n, and ξ_n against its definition."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from flows import NAMES, flow_of, judge
from scipy.interpolate import CubicSpline

from scansnap.claims.evidence import from_flow
from scansnap.claims.theorems.gradient_decomposition import coefficients
from scansnap.claims.theorems.theorem3 import BOUNDS_TOLERANCE
from scansnap.classes import SequenceClasses

IDENTITY, LOWER, UPPER, MONOTONE = NAMES["theorem-3"]
judged = partial(judge, "theorem-3")


@pytest.mark.parametrize(
    ("preset", "eta_y", "eta_z", "close"), [("textbook", 0.9, 0.02, 1e-4), ("strong", 0.9, 0.5, 1e-3)]
)
def test_growth_along_the_path_is_the_integral_of_the_speed(preset, eta_y, eta_z, close):
    evidence = flow_of(preset, eta_y, eta_z)
    t = evidence.t[1:]
    for n in range(2):
        speed = (
            evidence.eta_z * evidence.classes.p_class[n] * coefficients(evidence, n, np.arange(1, len(evidence.t)))[1]
        )
        integral = CubicSpline(np.log(t), speed * t).antiderivative()(np.log(t)) + speed[0] * t[0] / 2
        np.testing.assert_allclose(evidence.measured_growth[1:, n], integral, rtol=close, atol=close * integral[-1])


def test_sixty_times_are_enough_for_the_tolerance_of_the_bounds():
    coarse, fine = flow_of("strong", 0.9, 0.5), flow_of("strong", 0.9, 0.5, 240)
    error = coarse.measured_growth[-1] / fine.measured_growth[-1] - 1
    assert np.abs(error).max() < 1e-3 < BOUNDS_TOLERANCE


def test_the_speed_is_that_of_the_full_decomposition():
    """With attention held, g_n is in the span of the f_n, and ξ_n = γ Σ β_nn' f_nᵀ f_n' by its definition."""
    evidence = flow_of("textbook", 0.9, 1e-6)
    f, g = evidence.f[-1], evidence.g[-1]
    for n in range(2):
        tokens, _ = evidence.classes.support(n)  # g is recorded on the class's own context
        parts, *_ = np.linalg.lstsq(f[:, tokens].T, g[n, tokens], rcond=None)  # γι_n and −γβ_nn'
        gamma_iota, xi = coefficients(evidence, n, np.array([-1]))
        assert gamma_iota[0] == pytest.approx(parts[n], rel=1e-5)
        assert xi[0] == pytest.approx(-parts[1 - n] * evidence.overlap[-1, 0, 1], rel=1e-3)


def test_a_class_without_distinct_tokens_has_no_growth():
    classes = SequenceClasses([[0.5, 0.5, 0, 0, 0], [0.5, 0.2, 0.3, 0, 0]], query=[3, 3], next_token=[3, 4])
    evidence = from_flow(classes, eta_y=0.9, eta_z=0.02, t_end=20.0, n_times=10)
    assert np.isnan(evidence.measured_growth[:, 0]).all()
    assert np.isfinite(evidence.measured_growth[:, 1]).all()
