"""When a probe measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from scansnap.checks import InputError, check_integer, digits

_EVERY = "a number of steps, a list of steps, or log:N with N measurements a decade"
Due = Callable[[int], bool]


def schedule(every: int | str | Iterable[int]) -> Due:
    """Whether a step is to be measured."""
    if isinstance(every, str):
        kind, _, text = every.partition(":")
        per_decade = digits(text) or 0
        if kind != "log" or per_decade < 1:
            raise InputError("every", every, _EVERY)

        def place(step: int) -> int:
            return math.floor(per_decade * math.log10(step) + 1e-9)

        return lambda step: step < 2 or place(step) > place(step - 1)
    if isinstance(every, Iterable):
        steps = {check_integer("every", one) for one in every}
        return lambda step: step in steps
    n = check_integer("every", every, least=1)
    return lambda step: step % n == 0
