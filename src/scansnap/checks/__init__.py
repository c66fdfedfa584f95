"""Bad input, said in one sentence: the field, its value, and what is allowed.

Every mistake a user can make ends in an :class:`InputError`. The command line prints it and exits with 2;
in Python it is a ``ValueError`` like any other.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

LARGEST = 2**63 - 1  # what arrays can hold


class InputError(ValueError):
    """A value the user gave cannot be used."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} is {_show(value)}; it must be {allowed}.")

    def __reduce__(self) -> tuple[Any, ...]:
        return InputError, (self.field, self.value, self.allowed)  # it may come from another process


def _show(value: object) -> str:
    most = 1000 if isinstance(value, str) else 80  # names of files may be long
    try:
        text = repr(value) if isinstance(value, str) else " ".join(repr(value).split())
    except (ValueError, RecursionError):  # an integer of more than 4300 digits, endless nesting
        return f"too long to show (type {type(value).__name__})"
    return text if len(text) <= most else text[: most - 3] + "..."


def whole(field: str, value: Any, *, least: int = 0, most: int | None = None) -> int:
    """``value`` as an int within [least, most]; a float such as 3.0 or a bool is refused."""
    allowed = whole_words(least, LARGEST if most is None and isinstance(value, int) and value > LARGEST else most)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(field, value, allowed)
    number = int(value)
    if number < least or number > (LARGEST if most is None else most):
        raise InputError(field, number, allowed)
    return number


def digits(text: str) -> int | None:
    """The integer in a text of digits 0 … 9; None for any other text, and beyond what arrays can hold."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) else None
    return None if number is None or number > LARGEST else number


def whole_words(least: int = 0, most: int | None = None) -> str:
    """What :func:`whole` allows."""
    return f"a whole number of at least {least}" + (f" and at most {most}" if most is not None else "")


def real(
    field: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """``value`` as a finite float within the given bounds (``above``/``below`` are strict)."""
    allowed = real_words(above=above, least=least, below=below, most=most)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(field, value, allowed)
    try:
        number = float(value)
    except OverflowError:  # an integer past the float range
        raise InputError(field, value, allowed) from None
    inside = (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    if not inside:
        raise InputError(field, number, allowed)
    return number


def real_words(
    *, above: float | None = None, least: float | None = None, below: float | None = None, most: float | None = None
) -> str:
    """What :func:`real` allows."""
    bounds = {"above": above, "at least": least, "below": below, "at most": most}
    words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
    return f"a finite number {words}".rstrip()


def choice(field: str, value: Any, options: Iterable[str]) -> str:
    """``value`` if it is one of ``options``."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise InputError(field, value, "one of " + ", ".join(options))
    return value


def known_keys(where: str, given: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuse keys nobody reads: a misspelt setting must not pass silently."""
    allowed = tuple(allowed)
    for key in given:
        if key not in allowed:
            raise InputError(f"the key {key!r} in {where}", given[key], "left out or one of " + ", ".join(allowed))
