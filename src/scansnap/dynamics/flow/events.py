"""Events of a flow: detected between its steps and located on the interpolant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from scansnap.checks import InputError, check_float, check_integer
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrators import FloatArray, Span
from scansnap.dynamics.flow.state import FlowField, FlowState

_CHECKED = (0.25, 0.5, 0.75, 1.0)  # where in a step events are checked: two crossings closer than that can be missed
_NOISE = 1e-11  # a rate this small beside the terms that cancel in it has no sign


@dataclass(frozen=True)
class EntropyBelow:
    """Event: the entropy of a class's attention over its distinct tokens falls below a level.

    The time is 0 if the entropy is below the level from the start.

    Parameters
    ----------
    level
        The level in nats.
    seq_class
        Index of the class.
    terminal
        Whether the flow ends at the event.

    Examples
    --------
    >>> str(EntropyBelow(0.5, seq_class=1))
    'entropy of class 1 below 0.5'
    """

    level: float
    seq_class: int
    terminal: bool = False

    def __str__(self) -> str:
        return f"entropy of class {self.seq_class} below {self.level:g}"


@dataclass(frozen=True)
class FateFlip:
    """Event: ż of a query and a context token changes sign, so that its attention turns from rising to falling or back.

    Parameters
    ----------
    query, token
        Token ids of the query and of the context token.
    terminal
        Whether the flow ends at the event.

    Examples
    --------
    >>> str(FateFlip(query=3, token=0))
    'fate of token 0 flips for query 3'
    """

    query: int
    token: int
    terminal: bool = False

    def __str__(self) -> str:
        return f"fate of token {self.token} flips for query {self.query}"


@dataclass(frozen=True)
class Crossing:
    """Event: a function of the state crosses 0.

    Parameters
    ----------
    function
        Maps the state of the flow to a number; ``state["gap"]`` is the variable ``gap``.
    direction
        1 for rising only, −1 for falling only, 0 for both.
    terminal
        Whether the flow ends at the event.
    name
        Name of the event in the result; by default that of the function.

    Examples
    --------
    >>> str(Crossing(lambda state: state["gap"].min() - 5, direction=1, name="gap of 5"))
    'gap of 5'
    """

    function: Callable[[FlowState], float]
    direction: int = 0
    terminal: bool = False
    name: str = ""

    def __str__(self) -> str:
        return self.name or getattr(self.function, "__name__", type(self.function).__name__)


Event = EntropyBelow | FateFlip | Crossing | Callable[[FlowState], float]


class EventTracker:
    """One event during one flow; ``times`` collects its occurrences."""

    def __init__(self, event: Event, classes: SequenceClasses) -> None:
        self.times: list[float] = []
        self.crossing = _crossing(event, classes)
        self._from_start = isinstance(event, EntropyBelow)
        self._sign = 0.0  # the last sign, 0 before the first

    def _value(self, state: FlowState) -> float:
        value: Any = self.crossing.function(state)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"the event {str(self.crossing)!r} at t = {state.t:g}", value, "a finite number")
        return number

    def start(self, state: FlowState) -> float:
        """Check t = 0. Returns when the flow must end for this event: then or never (∞)."""
        self._sign = np.sign(self._value(state))
        if self._from_start and self._sign <= 0:
            self.times.append(0.0)
            self._sign = -1.0
        return 0.0 if self.times and self.crossing.terminal else math.inf

    def locate(self, step: Span, field: FlowField, states: Sequence[FlowState]) -> float:
        """Find changes of sign within a step. Returns when in it the flow must end for this event, or ∞."""

        def value(time: float) -> float:
            return self._value(FlowState(time, field, step.weights(time)))

        left, n_before = step.t, len(self.times)
        for state in states:
            sign = np.sign(self._value(state))
            if sign * self._sign < 0 and self.crossing.direction in (0, sign):
                no_sign = value(left) * sign >= 0  # it was lost in rounding there
                self.times.append(left if no_sign else brentq(value, left, state.t, xtol=1e-12 * state.t))
            self._sign = sign or self._sign
            left = state.t
        return self.times[n_before] if self.crossing.terminal and len(self.times) > n_before else math.inf


def states_within(step: Span, field: FlowField) -> list[FlowState]:
    """The states within a step at which events are checked."""
    return [FlowState(time, field, step.weights(time)) for time in (step.t + step.h * part for part in _CHECKED)]


def _crossing(event: Event, classes: SequenceClasses) -> Crossing:
    """What to tracker."""
    if isinstance(event, EntropyBelow):
        n = check_integer("the class of an event", event.seq_class, most=classes.n_classes - 1)
        level = check_float("the level of an event", event.level)
        if len(classes.distinct(n)) == 0:
            raise InputError("the class of an event", n, "a class with distinct tokens")
        return Crossing(lambda state: float(state["entropy"][n]) - level, -1, event.terminal, str(event))
    if isinstance(event, FateFlip):
        users = np.flatnonzero(classes.query == event.query)
        if not any(event.token in classes.support(n)[0] for n in map(int, users)):
            raise InputError("an event", event, "about a token in the context of one of the query's classes")
        cell = int(np.searchsorted(classes.queries, event.query)), event.token

        def rate(state: FlowState) -> float:
            value = float(state["z_rate"][cell])
            return value if abs(value) > _NOISE * float(state.z_terms()[cell]) else 0.0

        return Crossing(rate, 0, event.terminal, str(event))
    if callable(event):  # with the attributes that SciPy's events have
        event = Crossing(event, getattr(event, "direction", 0), getattr(event, "terminal", False))
    if not isinstance(event, Crossing) or not callable(event.function):
        allowed = (
            "EntropyBelow(level, seq_class), FateFlip(query, token), Crossing(function) or a function of the state"
        )
        raise InputError("an event", event, allowed)
    if not isinstance(event.terminal, bool):
        raise InputError(f"terminal of the event {str(event)!r}", event.terminal, "a bool")
    direction = np.sign(check_float(f"direction of the event {str(event)!r}", event.direction))
    return Crossing(event.function, int(direction), event.terminal, str(event))


def event_times(trackers: Sequence[EventTracker]) -> FloatArray:
    """Times by event and occurrence, padded with NaN; at least one column."""
    most = max([1, *(len(tracker.times) for tracker in trackers)])
    times = np.full((len(trackers), most), np.nan)
    for row, tracker in zip(times, trackers, strict=True):
        row[: len(tracker.times)] = tracker.times
    return times
