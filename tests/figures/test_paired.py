"""Paired differences against numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from scansnap.figures import paired


def table(rows):
    return pd.DataFrame(rows, columns=["n_query", "ratio", "seed", "entropy"])


# differences 2 and 4: mean 3, std √2, standard error 1; the second curve goes down by 1 in both seeds
ROWS = [(1, 1.0, 0, 5.0), (1, 2.0, 0, 7.0), (1, 1.0, 1, 9.0), (1, 2.0, 1, 13.0),
        (3, 1.0, 0, 2.0), (3, 2.0, 0, 1.0), (3, 1.0, 1, 2.0), (3, 2.0, 1, 1.0)]  # fmt: skip


def test_the_change_is_paired_by_seed():
    got = paired.change(table(ROWS), "entropy", by=["n_query"], along="ratio", low=1.0, high=2.0)
    assert got["mean"].to_dict() == {1: 3.0, 3: -1.0}
    assert got["error"].to_dict() == {1: pytest.approx(1.0), 3: 0.0}
    assert paired.rises(got).to_dict() == {1: True, 3: False}
    assert paired.falls(got).to_dict() == {1: False, 3: True}
    assert paired.where(paired.falls(got)) == "queries = 3"
    assert paired.overall(table(ROWS), "entropy", along="ratio", low=1.0, high=2.0) == "+1.00 ± 0.50"  # 0.5 and 1.5


def test_the_order_of_rows_does_not_matter():
    shuffled = table(ROWS).sample(frac=1, random_state=0)
    options = {"by": ["n_query"], "along": "ratio", "low": 1.0, "high": 2.0}
    pd.testing.assert_frame_equal(paired.change(shuffled, "entropy", **options),
                                  paired.change(table(ROWS), "entropy", **options))  # fmt: skip


@pytest.mark.parametrize("rows", [[*ROWS[:3], (1, 2.0, 1, np.nan)], ROWS[:2]], ids=["not a number", "one seed"])
def test_what_cannot_be_told_counts_for_neither_side(rows):
    got = paired.change(table(rows), "entropy", by=["n_query"], along="ratio", low=1.0, high=2.0)
    assert not paired.rises(got).any()
    assert not paired.falls(got).any()


def test_neighbours_are_taken_in_order_of_size():
    rows = [(1, ratio, seed, np.log(ratio) + seed) for ratio in (10.0, 1.0, 2.0) for seed in (0, 1)]
    got = paired.neighbours(table(rows), "entropy", by=["n_query"], along="ratio")
    assert list(got.index) == [("1 to 2", 1), ("2 to 10", 1)]
    np.testing.assert_allclose(got["mean"], [np.log(2), np.log(5)])


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [(0.08512, 0.0149, "+0.085 ± 0.015"), (-0.5, 0.2, "−0.50 ± 0.20"), (1.0, 1e-17, "+1.000 ± 0.000")],
)
def test_digits_follow_the_error(mean, error, text):
    assert paired.said(mean, error) == text
