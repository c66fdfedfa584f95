"""Every refusal is one sentence: the field, its value, and what is allowed."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from refusals import refused
from scansnap.checks import InputError, check_choice, check_float, check_integer, check_keys


def test_message_and_parts_of_an_input_error() -> None:
    error = InputError("eta_y", -1.5, "a float > 0", "use a rate")
    assert isinstance(error, ValueError)
    assert str(error) == "eta_y: expected a float > 0, got -1.5; use a rate"
    assert (error.field, error.value, error.expected, error.hint) == ("eta_y", -1.5, "a float > 0", "use a rate")


@pytest.mark.parametrize(
    "error", [InputError("eta_y", -1.5, "a float > 0"), InputError.conflict("out", "it exists; pass overwrite=True")]
)
def test_errors_come_from_other_processes_and_change_their_field(error: InputError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    moved = copy.with_field("--out", {"overwrite=True": "--overwrite"})
    assert (moved.field, moved.value) == ("--out", error.value)
    assert str(moved) == str(error).replace(error.field, "--out", 1).replace("overwrite=True", "--overwrite")
    assert copy.field == error.field


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "None"), (True, "True"), ("a b", "'a b'"), (3, "3"), (math.nan, "nan"), ([1, 2], "[1, 2]")],
)
def test_message_names_field_value_and_what_is_allowed(value: object, shown: str) -> None:
    message = str(InputError("a field", value, "what is fine"))
    assert all(part in message for part in ("a field", shown, "what is fine"))


def test_message_stays_one_short_line() -> None:
    message = str(InputError("x", np.arange(100.0).reshape(10, 10), "y"))
    assert "\n" not in message
    assert "array([[ 0., 1., 2." in message
    assert len(message) < 120


@pytest.mark.parametrize("value", [0, 7, np.int8(7), np.int64(0), np.uint16(7)])
def test_whole_gives_a_python_int(value: object) -> None:
    number = check_integer("n", value, most=7)
    assert type(number) is int
    assert number == value


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (3.0, {}), ("3", {}), (None, {}), (True, {}), (np.True_, {}), ([1], {"least": 1}), (-1, {}), (np.int64(-1), {}),
        (0, {"least": 1, "most": 4}), (5, {"least": 1, "most": 4}), (1, {"most": 0}),
    ],
)  # fmt: skip
def test_whole_refuses(value: object, bounds: dict[str, int]) -> None:
    with refused("n") as error:
        check_integer("n", value, **bounds)
    assert error.value.value == value


def test_whole_bounds_are_inclusive() -> None:
    assert [check_integer("n", value, least=-2, most=3) for value in (-2, 3)] == [-2, 3]


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.5), np.float64(0.25), np.int64(1), Fraction(1, 4)])
def test_real_gives_a_python_float(value: float) -> None:
    number = check_float("x", value, least=0.25, most=1)
    assert type(number) is float
    assert number == float(value)


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        ("0.5", {}), (None, {}), (True, {}), (np.False_, {}), (1j, {}), (math.nan, {"least": 0}), (math.inf, {}),
        (-math.inf, {"most": 0}), (0, {"above": 0}), (-1e-9, {"least": 0}), (1, {"least": 0, "below": 1}),
        (1.5, {"above": 0, "most": 1}), (np.float32(2), {"most": 1}),
    ],
)  # fmt: skip
def test_real_refuses(value: float, bounds: dict[str, float]) -> None:
    with refused("x") as error:
        check_float("x", value, **bounds)
    assert error.value.value == value or (math.isnan(value) and math.isnan(error.value.value))


def test_real_refuses_an_integer_past_the_float_range() -> None:
    with refused("x", 10**400):
        check_float("x", 10**400, above=0)


def test_choice() -> None:
    assert check_choice("init", "zero", ("zero", "uniform")) == "zero"
    assert check_choice("init", "uniform", (name for name in ("zero", "uniform"))) == "uniform"
    for value in ("Zero", "", 0, None, ["zero"]):
        with refused("init", value, names=("zero", "uniform")):
            check_choice("init", value, ("zero", "uniform"))


def test_known_keys() -> None:
    check_keys("[run]", {}, ())
    check_keys("[run]", {"steps": 1, "seed": 2}, (key for key in ("seed", "steps", "context")))
    with refused("sed", 2, names=("seed", "steps")):
        check_keys("[run]", {"steps": 1, "sed": 2}, ("seed", "steps"))
