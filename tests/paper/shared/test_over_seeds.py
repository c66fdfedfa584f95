"""Tables of runs as paired differences, against numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from scansnap.measure.comparison import compare
from scansnap.paper.shared.over_seeds import exceptions, overall, paired, paired_steps

OPTIONS = {"by": ["n_query"], "along": "ratio", "low": 1.0, "high": 2.0}


def table(rows):
    return pd.DataFrame(rows, columns=["n_query", "ratio", "seed", "entropy"])


# differences 2 and 4; the second curve goes down by 1 in both seeds
ROWS = [(1, 1.0, 0, 5.0), (1, 2.0, 0, 7.0), (1, 1.0, 1, 9.0), (1, 2.0, 1, 13.0),
        (3, 1.0, 0, 2.0), (3, 2.0, 0, 1.0), (3, 1.0, 1, 2.0), (3, 2.0, 1, 1.0)]  # fmt: skip


def test_the_change_is_paired_by_seed():
    got = paired(table(ROWS), "entropy", **OPTIONS)
    assert got.loc[1].tolist() == [2.0, 4.0]
    assert got.loc[3].tolist() == [-1.0, -1.0]
    # 0.5 and 1.5: standard error 0.5, and t of one degree of freedom is 12.706
    assert overall(table(ROWS), "entropy", along="ratio", low=1.0, high=2.0) == "+1.00 ± 6.35"


def test_the_order_of_rows_does_not_matter():
    shuffled = table(ROWS).sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(paired(shuffled, "entropy", **OPTIONS),
                                  paired(table(ROWS), "entropy", **OPTIONS))  # fmt: skip


@pytest.mark.parametrize("rows", [[*ROWS[:3], (1, 2.0, 1, np.nan)], ROWS[:3]], ids=["not a number", "missing"])
def test_a_run_without_a_number_makes_its_case_a_failure(rows):
    comparison = compare(paired(table(rows), "entropy", **OPTIONS))
    assert comparison.verdict == ["failed"]
    assert overall(table(rows), "entropy", along="ratio", low=1.0, high=2.0) == "no number (a run failed)"


def test_neighbours_are_taken_in_order_of_size():
    rows = [(1, ratio, seed, np.log(ratio) + seed) for ratio in (10.0, 1.0, 2.0) for seed in (0, 1)]
    got = paired_steps(table(rows), "entropy", by=["n_query"], along="ratio")
    assert list(got.index) == [("1 to 2", 1), ("2 to 10", 1)]
    np.testing.assert_allclose(got, np.log([[2, 2], [5, 5]]))


def test_exceptions_are_named_and_the_undecided_apart():
    cases = pd.DataFrame([[1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [1.0, -1.0, 0.5]], pd.Index([1, 3, 5], name="n_query"))
    comparison = compare(cases)
    assert exceptions(cases, comparison, "rises") == "Against it: queries = 3. Undecided: queries = 5."
    assert exceptions(cases, comparison, "falls") == "Against it: queries = 1. Undecided: queries = 5."
    agreed = cases.iloc[:1]
    assert exceptions(agreed, compare(agreed), "rises") == ""
