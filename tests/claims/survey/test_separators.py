"""Gradients of attention with a fixed head, and the two programs, against what is known of them."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from scansnap.claims.survey.separators import (
    SeparatorProblem,
    draw_factors,
    factors,
    least_frobenius,
    least_nuclear,
    merged,
)

RNG = np.random.default_rng(3)


def test_the_gradient_is_that_of_the_loss() -> None:
    problem = SeparatorProblem(RNG.normal(size=(3, 4, 5)), RNG.normal(size=(3, 2)), RNG.normal(size=(3, 4)))
    w, d = RNG.normal(size=(5, 2)), RNG.normal(size=(5, 2))

    def loss(at: np.ndarray) -> float:
        s = softmax(np.einsum("ntd,de,ne->nt", problem.x, at, problem.q), axis=1)
        return float(np.logaddexp(0, -(s * problem.value).sum(1)).mean())

    slope = (loss(w + 1e-5 * d) - loss(w - 1e-5 * d)) / 2e-5
    assert np.isclose(-slope, (problem.gradient(w) * d).sum(), rtol=1e-6)


def test_the_least_norms_are_feasible_and_least() -> None:
    """Each is feasible, best in its own norm, and no small feasible change of the Frobenius one is better."""
    constraints = draw_factors(1).constraints(np.zeros(5, dtype=np.int64))
    frobenius, nuclear = least_frobenius(constraints), least_nuclear(constraints)
    for w in (frobenius, nuclear):
        assert (constraints * w).sum((1, 2)).min() > 1 - 1e-6
    assert np.linalg.norm(frobenius) < np.linalg.norm(nuclear)
    assert np.linalg.norm(nuclear, "nuc") < np.linalg.norm(frobenius, "nuc")
    for _ in range(50):
        other = frobenius + 0.1 * RNG.normal(size=frobenius.shape)
        other /= min((constraints * other).sum((1, 2)).min(), 1.0)
        assert (constraints * other).sum((1, 2)).min() <= 0 or np.linalg.norm(other) >= np.linalg.norm(frobenius)


def test_two_tokens_have_a_known_margin() -> None:
    """One context, x_1 − x_2 = (2, 0): the separator of least norm is (½, 0)."""
    problem = SeparatorProblem(np.array([[[1.0, 0.0], [-1.0, 0.0]]]), np.ones((1, 1)), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(least_frobenius(problem.constraints(np.zeros(1, dtype=np.int64)))[:, 0], [0.5, 0.0])
    w = merged(problem, np.array([1e6, 1e12]))
    assert problem.selected(w[-1]).tolist() == [0]
    # the gap is 2 w_1, and closes its own gradient: it grows by ln of the time's growth
    assert np.isclose(2 * (w[1, 0, 0] - w[0, 0, 0]), np.log(1e6), rtol=1e-3)


def test_decay_balances_the_factors_at_twice_its_rate() -> None:
    """AᵀA − BᵀB falls like e^{−2λt}, whatever the loss."""
    a, b = factors(draw_factors(0), np.array([10.0, 60.0]), np.random.default_rng(0), size=0.3, decay=0.02)
    apart = np.linalg.norm(a.transpose(0, 2, 1) @ a - b.transpose(0, 2, 1) @ b, axis=(1, 2))
    assert np.isclose(np.log(apart[0] / apart[1]), 2 * 0.02 * 50, rtol=1e-3)
