"""The numbers behind a finding, and when two of them differ beyond their error."""

import math

import numpy as np
import pandas as pd
import pytest

from scansnap.measure.comparison import compare
from scansnap.paper.figure import MOST_LISTED, Finding, Number, Points, beyond, named


def test_a_family_over_seeds_is_told_by_the_mean_of_its_cases_and_the_interval_over_seeds():
    differences = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 4.0]])
    points = Points.of(compare(differences, margin=0.5), "rises")
    (number,) = points.numbers
    by_seed = differences.mean(axis=0)  # 2, 2, 3.5
    assert number.value == pytest.approx(by_seed.mean())
    assert number.half_width == pytest.approx(4.302653 * by_seed.std(ddof=1) / math.sqrt(3), rel=1e-6)  # t of 2 degrees
    assert (points.wanted, points.margin, points.exact) == ("rises", 0.5, False)


def test_a_failed_case_takes_no_part_and_one_seed_has_no_interval():
    failed = Points.of(compare([[1.0, math.nan, 3.0], [3.0, 2.0, 4.0]]), "rises")
    assert failed.numbers[0].value == pytest.approx(3.0)
    assert math.isnan(Points.of(compare([[math.nan, 1.0]]), "rises").numbers[0].value)
    assert Points.of(compare([[1.0], [2.0]]), "rises").numbers == (Number("", 1.5, math.inf),)


def test_what_has_no_noise_is_told_case_by_case_and_of_many_the_range():
    few = Points.without_noise([1.0, 2.0], ("a", "b"))
    assert few.numbers == (Number("a", 1.0, 0.0), Number("b", 2.0, 0.0))
    many = Points.without_noise(np.arange(MOST_LISTED + 3.0))
    assert many.numbers == (Number("least", 0.0, 0.0), Number("middle", 5.0, 0.0), Number("largest", 10.0, 0.0))
    assert Points.without_noise([]).numbers == ()


def test_cases_have_the_names_of_their_table_without_what_all_share():
    table = pd.DataFrame({"eta_z": [1.0, 2.0], "n_query": [3, 3], "step": ["1 to 2", "2 to 5"]})
    assert named(pd.MultiIndex.from_frame(table)) == ("η_Z = 1, step 1 to 2", "η_Z = 2, step 2 to 5")
    assert named(None) == named(pd.RangeIndex(3)) == ()
    wide = pd.DataFrame([[1.0, 2.0], [2.0, 3.0]], index=pd.Index([0, 1], name="seq_class"))
    assert Finding.compared("It rises", "here", compare(wide), "rises", "classes").points.cases == (
        "class = 0",
        "class = 1",
    )


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ((1.0, 0.3), (1.49, 0.4), False),  # the combined interval is 0.5, the difference 0.49
        ((1.0, 0.3), (1.51, 0.4), True),
        ((1.51, 0.4), (1.0, 0.3), True),  # either way round
        ((2.0, 0.0), (2.0 + 1e-6, 0.0), False),  # rounding
        ((2.0, 0.0), (2.0 + 1e-5, 0.0), True),
        ((1.0, math.inf), (9.0, 0.1), None),  # one seed
        ((1.0, 0.1), (math.nan, 0.1), True),  # a run fails now
        ((math.nan, 0.1), (math.nan, 0.1), False),
        ((math.inf, 0.0), (math.inf, 0.0), False),
    ],
)  # fmt: skip
def test_beyond_error(old, new, answer):
    assert beyond(Number("", *old), Number("", *new)) is answer
