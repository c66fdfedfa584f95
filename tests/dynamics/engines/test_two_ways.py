"""Cells of Figure 6 computed in two independent ways: from token counts, and from explicit token sequences.

The count form draws one multinomial for each sequence and never sees a position; the token form draws every token and
counts them. Different seeds make the two samples independent, so the means may differ by their standard errors only.
"""

import numpy as np
import pytest
from scipy.stats import chi2

import scansnap as ss

CELLS = [(1, 0.5, 1.0), (1, 2.0, 10.0), (3, 3.0, 2.0)]  # queries, η_Z, ratio
SEEDS = 8
UNLIKELY = 1e-4  # how rarely chance alone may fail this test


def cell(n_queries, eta_z, ratio, first_seed, **options):
    """Entropy over distinct tokens after 100 steps as in Figure 6: mean over classes, one number for each seed."""
    runs = ss.grid(eta_z=eta_z, ratio=ratio, seed=range(first_seed, first_seed + SEEDS))
    data = ss.simulate(ss.SequenceClasses.syn_medium(n_queries), runs, steps=100, momentum=0.9, init="uniform",
                       record=[100], variables=["entropy"], device="cpu", **options)  # fmt: skip
    return data.entropy.isel(step=-1).mean("seq_class").values


def distance(a, b):
    """Difference of the means in standard errors."""
    error = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / SEEDS)
    return (a.mean() - b.mean()) / error


@pytest.fixture(scope="module")
def counts():
    return [cell(*c, first_seed=0) for c in CELLS]


@pytest.mark.integration
def test_counts_and_tokens_agree_within_their_standard_errors(counts):
    distances = [distance(a, cell(*c, first_seed=1000, sampling="tokens")) for a, c in zip(counts, CELLS, strict=True)]
    surprise = np.sum(np.square(distances))
    # Student's t with 14 degrees of freedom has variance 14/12
    assert surprise * 12 / 14 < chi2.isf(UNLIKELY, len(CELLS)), (
        f"distances in standard errors: {np.round(distances, 2)}"
    )


def test_the_comparison_sees_another_cell(counts):
    """It has the power to fail: a quarter of the attention's rate is far outside the standard errors."""
    others = [(n_queries, eta_z / 4, 4 * ratio) for n_queries, eta_z, ratio in CELLS]
    distances = [distance(a, cell(*c, first_seed=1000)) for a, c in zip(counts, others, strict=True)]
    assert np.sum(np.square(distances)) > 3 * chi2.isf(UNLIKELY, len(CELLS)), np.round(distances, 2)
