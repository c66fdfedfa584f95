"""The tables of the Runge–Kutta method: every condition they must meet, one for each rooted tree (Butcher)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scansnap.dynamics.flow.coefficients import E3, E5, A, B, D
from scansnap.dynamics.flow.integrators import END, INSIDE, _interpolant

Tree = tuple  # of the trees that hang from the root


def trees(order: int) -> list[Tree]:
    """Rooted trees with that many nodes: 1, 1, 2, 4, 9, 20, 48, 115."""
    return forests(order - 1, order - 1)


def forests(nodes: int, largest: int) -> list[Tree]:
    """Collections of trees with so many nodes in all, the largest first and none above ``largest``."""
    if nodes == 0:
        return [()]
    found = []
    for size in range(1, min(nodes, largest) + 1):
        for first in trees(size):
            rests = forests(nodes - size, size)
            found += [(first, *rest) for rest in rests if not rest or size > order_of(rest[0]) or first >= rest[0]]
    return found


def order_of(tree: Tree) -> int:
    return 1 + sum(order_of(child) for child in tree)


def density(tree: Tree) -> int:
    return order_of(tree) * math.prod(density(child) for child in tree)


def stages(tree: Tree) -> np.ndarray:
    """Φ_i(tree) at every stage: the exact solution has Σ_i b_i Φ_i = 1/density."""
    product = np.ones(len(A))
    for child in tree:
        product = product * (A @ stages(child))
    return product


def misses(weights: np.ndarray, order: int, theta: float = 1.0, exact: float = 1.0) -> np.ndarray:
    """By how much the conditions of this order fail, for the state at t + θh (or, with ``exact`` 0, for nothing)."""
    w = np.pad(weights, (0, len(A) - len(weights)))
    return np.array([w @ stages(tree) - exact * theta**order / density(tree) for tree in trees(order)])


def test_the_number_of_conditions() -> None:
    assert [len(trees(order)) for order in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]


def test_shape_of_the_tables() -> None:
    assert (A.shape, B.shape, E3.shape, E5.shape, D.shape) == ((16, 16), (12,), (12,), (12,), (4, 16))
    assert (np.triu(A) == 0).all()  # explicit
    assert (A[END, :END] == B).all()


def test_times_of_the_stages() -> None:
    root = math.sqrt(6)
    c = (6 - root) / 45
    exact = [0, 2 * c / 3, c, (6 - root) / 30, (6 + root) / 30, 1 / 3, 1 / 4, 4 / 13, 127 / 195, 3 / 5, 6 / 7,
             1, 1, 1 / 10, 1 / 5, 7 / 9]  # fmt: skip
    np.testing.assert_allclose(A.sum(1), exact, atol=2e-15)


@pytest.mark.parametrize("order", range(1, 9))
def test_conditions_of_the_step(order: int) -> None:
    assert np.abs(misses(B, order)).max() < 1e-14


def test_quadrature() -> None:
    """The bushy trees: Σ b_i c_i^{q−1} = 1/q, and not for q = 9."""
    c = A.sum(1)[:END]
    off = [abs(B @ c ** (q - 1) - 1 / q) for q in range(1, 10)]
    assert max(off[:8]) < 1e-15
    assert off[8] > 1e-6


def test_the_step_is_of_order_8_and_no_more() -> None:
    assert np.abs(misses(B, 9)).max() > 1e-6


@pytest.mark.parametrize(("estimate", "order"), [(E5, 5), (E3, 3)])
def test_error_estimates_vanish_up_to_their_order(estimate: np.ndarray, order: int) -> None:
    """The end less that of a method of order q: nothing up to q, something at q + 1."""
    for lower in range(1, order + 1):
        assert np.abs(misses(estimate, lower, exact=0)).max() < 1e-14
    assert np.abs(misses(estimate, order + 1, exact=0)).max() > 1e-6


@pytest.mark.parametrize("theta", [0.1, 0.5, 0.7, 0.93])
def test_conditions_of_the_interpolant(theta: float) -> None:
    weights = _interpolant(theta)[0]
    assert len(weights) == INSIDE
    for order in range(1, 8):
        assert np.abs(misses(weights, order, theta)).max() < 2e-14
    assert np.abs(misses(weights, 8, theta)).max() > 1e-8


@pytest.mark.parametrize(("row", "column"), [(4, 2), (9, 6), (12, 8), (11, 0)])
def test_a_wrong_digit_is_noticed(row: int, column: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One number off by 1e-9 breaks some condition by much more than rounding."""
    wrong = A.copy()
    wrong[row, column] += 1e-9
    monkeypatch.setitem(globals(), "A", wrong)
    worst = max(np.abs(misses(wrong[END, :END], order)).max() for order in range(1, 9))
    assert worst > 1e-12


def test_scipy_has_the_same_numbers() -> None:
    """Where this SciPy shows its own: to the last bit."""
    scipy = pytest.importorskip("scipy.integrate").DOP853
    pairs = {
        "A": A[:END, :END],
        "A_EXTRA": A[END + 1 :],
        "B": B,
        "E3": np.append(E3, 0),
        "E5": np.append(E5, 0),
        "D": D,
    }
    for name, ours in pairs.items():
        theirs = getattr(scipy, name, None)
        if theirs is not None:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
