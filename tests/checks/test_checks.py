"""Every refusal is one sentence: the field, its value, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from scansnap.checks import InputError, choice, known_keys, real, whole


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def test_input_error_is_a_value_error_that_keeps_its_parts() -> None:
    error = InputError("eta_y", -1.5, "a finite number above 0")
    assert isinstance(error, ValueError)
    assert (error.field, error.value, error.allowed) == ("eta_y", -1.5, "a finite number above 0")
    assert str(error) == "eta_y is -1.5; it must be a finite number above 0."


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "None"), (True, "True"), ("a b", "'a b'"), (3, "3"), (math.nan, "nan"), ([1, 2], "[1, 2]")],
)
def test_message_shows_the_value(value: object, shown: str) -> None:
    assert str(InputError("x", value, "y")) == f"x is {shown}; it must be y."


def test_message_stays_one_short_line() -> None:
    message = str(InputError("x", np.arange(100.0).reshape(10, 10), "y"))
    assert "\n" not in message
    assert message.startswith("x is array([[ 0., 1., 2.")
    assert message.endswith("...; it must be y.")
    assert len(message) == len("x is ; it must be y.") + 80


@pytest.mark.parametrize("value", [0, 7, np.int8(7), np.int64(0), np.uint16(7)])
def test_whole_gives_a_python_int(value: object) -> None:
    number = whole("n", value, most=7)
    assert type(number) is int
    assert number == value


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (3.0, {}, "n is 3.0; it must be a whole number of at least 0."),
        ("3", {}, "n is '3'; it must be a whole number of at least 0."),
        (None, {}, "n is None; it must be a whole number of at least 0."),
        (True, {}, "n is True; it must be a whole number of at least 0."),
        (np.True_, {}, "n is np.True_; it must be a whole number of at least 0."),
        ([1], {"least": 1}, "n is [1]; it must be a whole number of at least 1."),
        (-1, {}, "n is -1; it must be a whole number of at least 0."),
        (np.int64(-1), {}, "n is -1; it must be a whole number of at least 0."),
        (0, {"least": 1, "most": 4}, "n is 0; it must be a whole number of at least 1 and at most 4."),
        (5, {"least": 1, "most": 4}, "n is 5; it must be a whole number of at least 1 and at most 4."),
        (1, {"most": 0}, "n is 1; it must be a whole number of at least 0 and at most 0."),
    ],
)
def test_whole_refuses(value: object, bounds: dict[str, int], message: str) -> None:
    assert refusal(lambda: whole("n", value, **bounds)) == message


def test_whole_bounds_are_inclusive() -> None:
    assert [whole("n", value, least=-2, most=3) for value in (-2, 3)] == [-2, 3]


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.5), np.float64(0.25), np.int64(1), Fraction(1, 4)])
def test_real_gives_a_python_float(value: float) -> None:
    number = real("x", value, least=0.25, most=1)
    assert type(number) is float
    assert number == float(value)


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        ("0.5", {}, "x is '0.5'; it must be a finite number."),
        (None, {}, "x is None; it must be a finite number."),
        (True, {}, "x is True; it must be a finite number."),
        (np.False_, {}, "x is np.False_; it must be a finite number."),
        (1j, {}, "x is 1j; it must be a finite number."),
        (math.nan, {"least": 0}, "x is nan; it must be a finite number at least 0."),
        (math.inf, {}, "x is inf; it must be a finite number."),
        (-math.inf, {"most": 0}, "x is -inf; it must be a finite number at most 0."),
        (0, {"above": 0}, "x is 0.0; it must be a finite number above 0."),
        (-1e-9, {"least": 0}, "x is -1e-09; it must be a finite number at least 0."),
        (1, {"least": 0, "below": 1}, "x is 1.0; it must be a finite number at least 0 and below 1."),
        (1.5, {"above": 0, "most": 1}, "x is 1.5; it must be a finite number above 0 and at most 1."),
        (np.float32(2), {"most": 1}, "x is 2.0; it must be a finite number at most 1."),
    ],
)
def test_real_refuses(value: object, bounds: dict[str, float], message: str) -> None:
    assert refusal(lambda: real("x", value, **bounds)) == message


def test_real_refuses_an_integer_past_the_float_range() -> None:
    message = refusal(lambda: real("x", 10**400, above=0))
    assert message.startswith("x is 1000")
    assert message.endswith("it must be a finite number above 0.")


def test_choice() -> None:
    assert choice("init", "zero", ("zero", "uniform")) == "zero"
    assert choice("init", "uniform", (name for name in ("zero", "uniform"))) == "uniform"
    allowed = "it must be one of zero, uniform."
    for value, shown in [("Zero", "'Zero'"), ("", "''"), (0, "0"), (None, "None"), (["zero"], "['zero']")]:
        assert refusal(lambda value=value: choice("init", value, ("zero", "uniform"))) == (
            f"init is {shown}; {allowed}"
        )


def test_known_keys() -> None:
    known_keys("[run]", {}, ())
    known_keys("[run]", {"steps": 1, "seed": 2}, (key for key in ("seed", "steps", "context")))
    assert refusal(lambda: known_keys("[run]", {"steps": 1, "sed": 2}, ("seed", "steps"))) == (
        "the key 'sed' in [run] is 2; it must be left out or one of seed, steps."
    )
