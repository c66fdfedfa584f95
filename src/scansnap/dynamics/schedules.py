"""Learning-rate schedules: a factor of the base rate for every update, written as text.

    constant             1
    cosine(floor)        floor + (1 − floor)(1 + cos πt)/2       floor is 0 unless given
    linear(floor)        floor + (1 − floor)(1 − t)
    step(every, factor)  factor^⌊n/every⌋, at least ``floor`` with step(every, factor, floor)

n counts the updates after the warm-up and t = n/N, where N is their total number. ``cosine(floor, steps)`` and
``linear(floor, steps)`` reach the floor after ``steps`` updates in all and stay there. ``warmup(W) cosine`` first
raises the factor linearly, (s + 1)/W for update s < W. A factor depends only on the number of its update, so a
continued run uses the same rates. This module does not import torch.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace

from scansnap.checks import InputError

FORM = (
    "constant, cosine(floor), linear(floor) or step(every, factor), after warmup(steps) if wanted: "
    "for example cosine, step(100, 0.5) or warmup(50) cosine(0.1)"
)
_PATTERN = re.compile(r"(?:warmup\((\d+)\) )?(constant|cosine|linear|step)(?:\(([^()]*)\))?", re.ASCII)


@dataclass(frozen=True)
class Schedule:
    """A parsed schedule.

    Examples
    --------
    >>> schedule = Schedule.parse("warmup(2) cosine(0.25)")
    >>> [schedule.factor(step, 10) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.625, 0.25]
    >>> str(schedule)
    'warmup(2) cosine(0.25)'
    """

    kind: str = "constant"
    floor: float = 0.0
    steps: int | None = None  # of cosine and linear; None: those of the run
    every: int = 1
    drop: float = 1.0  # factor of the step schedule
    warmup: int = 0

    @staticmethod
    @functools.cache
    def parse(text: str, field: str = "schedule") -> Schedule:
        """The schedule that a text describes; InputError names ``field``."""
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        try:
            if match is None:
                raise ValueError
            numbers = [float(part) for part in match[3].split(",")] if match[3] else []
            schedule = _make(match[2], numbers, int(match[1] or 0))
        except ValueError:
            raise InputError(field, text, FORM) from None
        return schedule

    @property
    def is_constant(self) -> bool:
        """Whether every factor is 1."""
        return self.kind == "constant" and not self.warmup

    def factor(self, step: int, steps: int) -> float:
        """The factor of update number ``step`` (from 0) of ``steps``."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        n, total = step - self.warmup, max((self.steps or steps) - self.warmup, 1)
        if self.kind == "cosine":
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(n, total) / total))
        if self.kind == "linear":
            return self.floor + (1 - self.floor) * (1 - min(n, total) / total)
        if self.kind == "step":
            try:
                return max(self.floor, self.drop ** (n // self.every))
            except OverflowError:  # a factor above 1, many times over: the run ends as non-finite
                return math.inf
        return 1.0

    def largest_factor(self, steps: int) -> float:
        """The largest factor of a run of ``steps`` updates."""
        return max(1.0, self.factor(max(steps - 1, 0), steps))

    def resolve(self, steps: int) -> Schedule:
        """This schedule with its number of updates filled in where the factors depend on it."""
        return replace(self, steps=self.steps or steps) if self.kind in ("cosine", "linear") else self

    def __str__(self) -> str:
        if self.kind == "step":
            numbers: list[float] = [self.every, self.drop, *([self.floor] if self.floor else [])]
        else:
            numbers = [self.floor, self.steps] if self.steps else [self.floor] if self.floor else []
        warmup = f"warmup({self.warmup}) " if self.warmup else ""
        return f"{warmup}{self.kind}" + (f"({', '.join(f'{x!r}' for x in numbers)})" if numbers else "")


def _make(kind: str, numbers: list[float], warmup: int) -> Schedule:
    """A schedule from the numbers in its brackets; ValueError where they do not fit."""
    if kind == "step":
        if not 2 <= len(numbers) <= 3:
            raise ValueError
        every, drop, floor = (*numbers, 0.0)[:3]
        if not (0 < drop < math.inf and 0 <= floor <= 1):
            raise ValueError
        return Schedule(kind, floor, every=_positive_integer(every), drop=drop, warmup=warmup)
    if len(numbers) > (0 if kind == "constant" else 2):
        raise ValueError
    floor, steps = numbers[0] if numbers else 0.0, _positive_integer(numbers[1]) if len(numbers) == 2 else None
    if not 0 <= floor <= 1 or (steps is not None and steps <= warmup):
        raise ValueError
    return Schedule(kind, floor, steps, warmup=warmup)


def _positive_integer(number: float) -> int:
    if not (1 <= number < math.inf and number == int(number)):
        raise ValueError
    return int(number)
