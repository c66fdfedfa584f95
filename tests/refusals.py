"""What a test asserts of input that is refused: the field, and where it matters the value; never the sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from scansnap.checks import InputError

Field = str | tuple[str, Any]  # in tables also with the value
Names = str | tuple[str, ...]


@contextmanager
def refused(
    field: Field, value: Any = ANY, *, names: Names = (), error: type[InputError] = InputError
) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """The block raises an `InputError` about ``field``.

    ``value`` is what was at fault; ``names`` are what the message names: options, packages, files, numbers.
    """
    with pytest.raises(error) as caught:
        yield caught
    assert_refusal(caught.value, field, value, names=names)


def assert_refusal(error: InputError, field: Field, value: Any = ANY, *, names: Names = ()) -> None:
    if isinstance(field, tuple):
        field, value = field
    assert error.field == field, str(error)
    assert value is ANY or repr(error.value) == repr(value), str(error)  # so that nan is nan, and True is not 1
    for name in (names,) if isinstance(names, str) else names:
        assert name in str(error)


def bad_values(**values: Iterable[Any]) -> list[tuple[dict[str, Any], str]]:
    """Rows of a table of what is refused: each value of each setting, and the setting as the field."""
    return [({name: value}, name) for name, some in values.items() for value in some]
