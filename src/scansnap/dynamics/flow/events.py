"""Moments worth knowing precisely: found between the steps of a flow, located on its interpolant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from scansnap.checks import InputError, real, whole
from scansnap.dynamics.flow.integrators import FloatArray, Step
from scansnap.dynamics.flow.population import Point, PopulationFlow

_LOOKS = (0.25, 0.5, 0.75, 1.0)  # where in a step to look: two crossings closer than that can be missed
_NOISE = 1e-11  # a rate this small beside the terms that cancel in it has no sign


@dataclass(frozen=True)
class EntropyBelow:
    """The entropy (nats) of the class's attention over its distinct tokens falls below ``level``.

    Time 0 counts if it is below from the start.
    """

    level: float
    class_: int

    def __str__(self) -> str:
        return f"entropy of class {self.class_} below {self.level:g}"


@dataclass(frozen=True)
class FateFlip:
    """ż of a query and a context token (token ids) changes sign: a rising token starts to fall, or the reverse."""

    query: int
    token: int

    def __str__(self) -> str:
        return f"fate of token {self.token} flips for query {self.query}"


Event = EntropyBelow | FateFlip


class Watch:
    """One event during one flow; ``times`` collects its occurrences."""

    def __init__(self, event: Event, field: PopulationFlow) -> None:
        self.times: list[float] = []
        self._value, self._falling = _reading(event, field)
        self._field = field
        self._sign = 0.0  # the last sign seen, 0 before there was any

    def start(self) -> None:
        """Look at t = 0."""
        self._sign = np.sign(self._value(self._field.point(np.zeros(0))))
        if self._falling and self._sign <= 0:
            self.times.append(0.0)
            self._sign = -1.0

    def look(self, step: Step) -> None:
        """Look for changes of sign within a step."""

        def value(time: float) -> float:
            return self._value(self._field.point(step.weights(time)))

        left = step.t
        for right in (step.t + step.h * part for part in _LOOKS):
            sign = np.sign(value(right))
            if sign * self._sign < 0 and not (self._falling and sign > 0):
                no_sign = value(left) * sign >= 0  # it was lost in rounding there
                self.times.append(left if no_sign else brentq(value, left, right, xtol=1e-12 * right))
            self._sign = sign or self._sign
            left = right


def _reading(event: Event, field: PopulationFlow) -> tuple[Callable[[Point], float], bool]:
    """What to watch, and whether only its falling through 0 counts."""
    at = field.layout
    if isinstance(event, EntropyBelow):
        n = whole("the class of an event", event.class_, most=at.classes.n_classes - 1)
        level = real("the level of an event", event.level)
        if len(at.classes.distinct(n)) == 0:
            raise InputError("the class of an event", n, "a class with distinct tokens")
        row = int(np.flatnonzero(at.order == n)[0])
        return lambda point: float(field.entropy(point)[row]) - level, True
    if not isinstance(event, FateFlip):
        raise InputError("an event", event, "EntropyBelow(level, class_) or FateFlip(query, token)")
    cell = at.find_cell(event.query, event.token)
    if cell is None:
        raise InputError("an event", event, "about a token in the context of one of the query's classes")

    pairs = np.nonzero(at.used & (at.cell == cell))  # the classes that move it, and where they have the token

    def rate(point: Point) -> float:
        value = float(point.z_rate[cell])
        terms = (field.eta_z * field.p_class * point.f * point.g)[pairs].abs().sum()
        return value if abs(value) > _NOISE * float(terms) else 0.0

    return rate, False


def event_times(watches: Sequence[Watch]) -> FloatArray:
    """Times by event and occurrence, padded with NaN; at least one column."""
    most = max([1, *(len(watch.times) for watch in watches)])
    times = np.full((len(watches), most), np.nan)
    for row, watch in zip(times, watches, strict=True):
        row[: len(watch.times)] = watch.times
    return times
