"""B_n of a run, step by step and over a whole path."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.measure.growth import GrowthPoint


def path(n: int = 400) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Two classes: tokens that rise as dz_l = f_l² dB with f_l² = w_l/(1 + B), and one without distinct tokens."""
    b = np.linspace(0.0, 2.0, n)
    weights = np.array([0.5, 0.3])
    z, f = np.log1p(b)[:, None] * weights, np.sqrt(weights / (1 + b)[:, None])
    return b, [(z, f), (np.zeros((n, 0)), np.zeros((n, 0)))]


def test_it_is_the_clock_that_the_tokens_rise_by() -> None:
    b, tokens = path()
    growth = GrowthPoint.of(tokens).growth()
    assert growth.shape == (400, 2)
    np.testing.assert_allclose(growth[:, 0], b, rtol=1e-5)
    assert np.isnan(growth[:, 1]).all()


def test_step_by_step_is_the_same_to_the_last_bit() -> None:
    _, tokens = path(50)
    whole = GrowthPoint.of(tokens)
    at = [GrowthPoint(height, weight) for height, weight in zip(whole.height, whole.weight, strict=True)]
    total = np.zeros(2)
    for i in range(1, 50):
        total = total + at[i].since(at[i - 1])
        np.testing.assert_array_equal(total[0], whole.growth()[i, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_not_hidden(bad: float) -> None:
    _, tokens = path(50)
    tokens[0][0][30, 0] = bad
    growth = GrowthPoint.of(tokens).growth()[:, 0]
    assert np.isfinite(growth[:30]).all()
    assert not np.isfinite(growth[30:]).any()
