"""Checks of what users pass. Every mistake raises an `InputError`, and the command line exits with code 2."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Self

LARGEST = 2**63 - 1  # what arrays can hold


class InputError(ValueError):
    """A value that the user passed cannot be used.

    Parameters
    ----------
    field : str
        The name that the user typed or passed, such as ``eta_z``.
    value : object
        What it was.
    expected : str
        What it can be, as a noun phrase: "an integer ≥ 1".
    hint : str, optional
        What to do about it.

    Examples
    --------
    >>> from scansnap import InputError
    >>> print(InputError("eta_z", -1.0, "a float ≥ 0"))
    eta_z: expected a float ≥ 0, got -1.0
    >>> print(InputError.conflict("out/run.zarr", "it exists; pass overwrite=True to replace it"))
    out/run.zarr: it exists; pass overwrite=True to replace it
    """

    def __init__(self, field: str, value: object, expected: str, hint: str = "") -> None:
        self.field, self.value, self.expected, self.hint = field, value, expected, hint
        self._details = f"expected {expected}, got {_shorten(value)}" + (f"; {hint}" if hint else "")
        super().__init__(f"{field}: {self._details}")

    @classmethod
    def conflict(cls, field: str, message: str, value: object = None) -> InputError:
        """Return an error about a state, such as a file that exists: ``{field}: {message}``."""
        error = InputError(field, value, "")
        return error._restate(field, message)

    def with_field(self, field: str, spelling: Mapping[str, str] | None = None) -> Self:
        """Return the same error about ``field``, as the caller's user knows it.

        ``spelling`` replaces words of the message: ``{"overwrite=True": "--overwrite"}``.
        """
        details = self._details
        for word, replacement in (spelling or {}).items():
            details = details.replace(word, replacement)
        return _restore(type(self), (), self.__dict__)._restate(field, details)

    def _restate(self, field: str, details: str) -> Self:
        self.field, self._details, self.args = field, details, (f"{field}: {details}",)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)  # it may come from another process


def _restore(kind: Any, args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def _shorten(value: object) -> str:
    limit = 1000 if isinstance(value, str) else 80  # names of files may be long
    try:
        text = repr(value) if isinstance(value, str) else " ".join(repr(value).split())
    except (ValueError, RecursionError):  # an integer of more than 4300 digits, endless nesting
        return f"a value too long to show (type {type(value).__name__})"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def check_integer(field: str, value: Any, *, least: int = 0, most: int | None = None) -> int:
    """Return ``value`` as an int within [least, most]; a float such as 3.0 or a bool is refused."""
    expected = describe_integer(least, LARGEST if most is None and isinstance(value, int) and value > LARGEST else most)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(field, value, expected)
    number = int(value)
    if number < least or number > (LARGEST if most is None else most):
        raise InputError(field, number, expected)
    return number


def digits(text: str) -> int | None:
    """Return the integer in a text of digits 0 … 9; None for any other text, and beyond what arrays can hold."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) else None
    return None if number is None or number > LARGEST else number


def describe_integer(least: int = 0, most: int | None = None) -> str:
    """Return what `check_integer` accepts, in words."""
    return f"an integer ≥ {least}" + (f" and ≤ {most}" if most is not None else "")


def check_float(
    field: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Return ``value`` as a finite float within the given bounds (``above`` and ``below`` are strict)."""
    expected = describe_float(above=above, least=least, below=below, most=most)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(field, value, expected)
    try:
        number = float(value)
    except OverflowError:  # an integer past the float range
        raise InputError(field, value, expected) from None
    inside = (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    if not inside:
        raise InputError(field, number, expected)
    return number


def describe_float(
    *, above: float | None = None, least: float | None = None, below: float | None = None, most: float | None = None
) -> str:
    """Return what `check_float` accepts, in words."""
    bounds = {">": above, "≥": least, "<": below, "≤": most}
    conditions = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None)
    return f"a float {conditions}" if conditions else "a finite float"


def check_choice(field: str, value: Any, options: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``options``."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise InputError(field, value, "one of " + ", ".join(options))
    return value


def check_keys(where: str, table: Mapping[str, Any], options: Iterable[str]) -> None:
    """Refuse keys that nothing reads, so that a misspelt setting does not pass silently."""
    options = tuple(options)
    for key in table:
        if key not in options:
            hint = f"; expected one of {', '.join(options)}" if options else ""
            raise InputError.conflict(key, f"unknown key in {where}{hint}", table[key])
