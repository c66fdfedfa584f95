"""The arguments of the theory's functions: one rule per quantity, checked in one place, for scalars and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.checks import InputError, check_float

FloatArray = NDArray[np.float64]
Result = Any  # a float when every argument is a scalar, else an array; typed the way NumPy types its ufuncs

# The bounds are those of scansnap.checks.check_float: above and below are strict, least and most are not.
_RULES: dict[str, dict[str, float]] = {
    "t": {"least": 0},
    "s": {"least": 0},
    "eta_y": {"above": 0},
    "eta_z": {"above": 0},
    "n_classes": {"least": 1},
    "n_queries": {"least": 1},
    "n_distinct": {"least": 1},
    "n_common": {"least": 1},
    "vocab_size": {"least": 2},  # with one token there is nothing to tell apart: M − 1 = 0
    "c0": {"above": 0},
    "exponent": {"above": 0},
    "p_class": {"above": 0, "most": 1},
    "p_query": {"above": 0, "most": 1},
    "f_dominant": {"above": 0, "most": 1},
    "delta": {"least": 0},
    "epsilon": {"above": 0},
    "r0": {"above": -1},
    "chi": {"above": 0},
    "u": {"least": 0, "most": 700},  # e^u is a double
    "log_u": {"least": 0},
    "f": {"above": 0, "most": 1},
    "p": {"above": 0, "most": 1},
    "context": {"least": 2},  # T, the query included: a sequence has one token at least beside it
    "momentum": {"least": 0, "below": 1},
    "overlap": {"least": 0, "below": 1},  # ρ = 1: the classes are one
}


def to_arrays(**given: ArrayLike) -> list[FloatArray]:
    """The arguments as float arrays that broadcast together, each within the rule of its name."""
    arrays = [_checked(field, value, _RULES[field]) for field, value in given.items()]
    try:
        np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = ", ".join(f"{field} {array.shape}" for field, array in zip(given, arrays, strict=True))
        raise InputError(next(iter(given)), shapes, "arguments that broadcast together") from None
    return arrays


def positive_t(t: FloatArray) -> FloatArray:
    """Refuse t = 0, where the late expansions have no value."""
    return _checked("t", t, {"above": 0})


def to_result(value: ArrayLike) -> Result:
    """A float for scalar input, the array otherwise."""
    array = np.asarray(value, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def _checked(field: str, value: ArrayLike, bounds: dict[str, float]) -> FloatArray:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise InputError(field, value, "a number or an array of numbers") from None
    if array.dtype.kind not in "iuf":
        raise InputError(field, value, "a number or an array of numbers")
    array = array.astype(np.float64)
    bad = ~np.isfinite(array)
    if "least" in bounds:
        bad |= array < bounds["least"]
    if "above" in bounds:
        bad |= array <= bounds["above"]
    if "below" in bounds:
        bad |= array >= bounds["below"]
    if "most" in bounds:
        bad |= array > bounds["most"]
    if bad.any():
        check_float(field, array[bad].flat[0].item(), **bounds)  # raises
    return array
