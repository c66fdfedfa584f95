"""Rank correlation, slope and shared leaders, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from scansnap.measure.ranks import overlap, rank_correlation, slope


def test_it_is_pearsons_of_the_mean_ranks() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, (2, 6, 20)).astype(float)  # with ties
    a[0, 3] = np.nan
    for found, x, y in zip(rank_correlation(a, b), a, b, strict=True):
        both = np.isfinite(x)
        assert found == pytest.approx(np.corrcoef(rankdata(x[both]), rankdata(y[both]))[0, 1], abs=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", [3, 50, 10**9])
def test_it_is_scipys_to_rounding(dtype: type, values: int) -> None:
    a, b = np.random.default_rng(values).integers(-values, values, (2, 10, 301)).astype(dtype)
    scipys = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(rank_correlation(a, b), scipys, rtol=0, atol=1e-15)


def test_rows_without_an_order_have_none() -> None:
    a = np.array([[1.0, 2, 3], [1, 1, 1], [1, 2, np.nan]])
    correlation = rank_correlation(a, np.array([[3.0, 2, 1]] * 3))
    assert correlation[0] == pytest.approx(-1)
    assert np.isnan(correlation[1:]).all()


def test_leaders_shared_only_where_there_are_more_than_leaders() -> None:
    shared, chance = overlap(np.array([[3.0, 2, 1], [3, 2, np.nan]]), np.array([[3.0, 1, 2]] * 2), 2)
    assert (shared[0], chance[0]) == (0.5, 2 / 3)
    assert np.isnan(shared[1])
    assert np.isnan(chance[1])


def test_the_slope_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(3, 30))
    b = 0.3 * a + 2 + 0.1 * rng.normal(size=a.shape)
    b[0, 5] = np.nan
    a[2] = 1.0
    slopes = slope(a, b)
    for i, keep in ((0, np.isfinite(b[0])), (1, slice(None))):
        assert slopes[i] == pytest.approx(np.polyfit(a[i, keep], b[i, keep], 1)[0])
    assert np.isnan(slopes[2])
