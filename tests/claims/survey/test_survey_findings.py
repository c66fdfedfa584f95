"""The rule by which a measurement with an interval over seeds becomes a verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scansnap.claims.survey.statement import OURS, Citation, survey_statement
from scansnap.measure.comparison import mean_interval

ONE = survey_statement("one", "a statement", source=OURS, setting="a setting")
TEN = np.linspace(-0.1, 0.1, 10)


@pytest.mark.parametrize(("centre", "status"), [(1.0, "holds"), (2.5, "holds"), (0.86, "undecided"), (0.5, "fails")])
def test_one_sided_with_noise(centre: float, status: str) -> None:
    """Beyond what is predicted is as good as there; the bound inside the interval leaves it open."""
    found = ONE.judge_values(TEN + centre, predicted=1.0, bound=0.85, quantity="x")
    assert found.status == status
    assert found.range is not None
    assert found.range[0] < centre < found.range[1]


@pytest.mark.parametrize(("value", "status"), [(0.0, "holds"), (0.1, "holds"), (0.11, "fails"), (-0.11, "fails")])
def test_both_sides_exact(value: float, status: str) -> None:
    found = ONE.judge_values(value, predicted=0.0, bound=0.1, two_sided=True, quantity="x", failure="far")
    assert (found.status, found.range) == (status, None)
    assert found.reason == ("far" if status == "fails" else "")


def test_below_is_better_where_the_bound_is_above() -> None:
    assert ONE.judge_values(-5.0, predicted=0.0, bound=0.1, quantity="x").status == "holds"
    assert ONE.judge_values(0.2, predicted=0.0, bound=0.1, quantity="x").status == "fails"


def test_what_is_no_number_fails() -> None:
    assert ONE.judge_values(np.array([1.0, math.nan, 1.0]), predicted=1.0, bound=0.5, quantity="x").status == "fails"
    assert ONE.judge_values(math.nan, predicted=1.0, bound=0.5, quantity="x").status == "fails"


def test_equal_values_say_something_from_six_on() -> None:
    assert mean_interval(np.ones(6)) == (1.0, 1.0, 1.0)
    assert mean_interval(np.ones(5)) == (1.0, -math.inf, math.inf)
    assert ONE.judge_values(np.ones(5), predicted=1.0, bound=0.5, quantity="x").status == "undecided"


def test_not_applicable_keeps_source_and_setting() -> None:
    found = ONE.judge_not_applicable("there is nothing")
    assert (found.status, found.setting, found.source) == ("not applicable", "a setting", OURS)


def test_a_source_says_how_much_of_it_was_read() -> None:
    assert str(Citation("A 2024", "T", "1234.5", "abstract")).endswith("(arXiv 1234.5, as we read it)")
    assert str(Citation("A 2024", "T", "1234.5", "text")).endswith("(arXiv 1234.5)")
    assert str(Citation("A poster 1", "T", "", "abstract")) == "A poster 1, T (as we read it)"
    assert str(OURS) == "our own"
