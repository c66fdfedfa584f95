"""A setting is declared once: its type, what it may be, its default, and a line on what it does.

``knob`` makes a field of a frozen dataclass, ``Annotated[int, Knob(…)]`` a parameter of a function. From these
declarations come the checks, the options of the command line, the keys of TOML files, the axes of sweeps, the controls
of the page and the tables of docs/settings.md.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from scansnap.checks import InputError, check_choice, check_float, check_integer, describe_float, describe_integer

MOST = 1_000_000  # numbers in a range
P = ParamSpec("P")
T = TypeVar("T")
EMPTY: Any = inspect.Parameter.empty  # no default


@dataclass(frozen=True)
class Page:
    """How the page shows a setting; without the ends of a slider it is a box. What is left out is as everywhere."""

    label: str = ""
    symbol: str = ""
    low: float | None = None  # ends of the slider
    high: float | None = None
    log: bool = False
    live: bool = False  # may change in the middle of a run
    default: Any = EMPTY
    least: float | None = None  # bounds that are tighter there
    most: float | None = None
    cap: str = ""  # the limit of the explorer that bounds it, where that has another name
    words: Mapping[str, str] = field(default_factory=dict)  # how none and inf read


@dataclass(frozen=True)
class Knob:
    """One setting: what it does, in one line, and what it may be."""

    help: str
    unit: str = ""
    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    choices: Collection[str] | Callable[[], Collection[str]] = ()  # a registry too: what is registered later is allowed
    inf: bool = False  # infinity is expected, in words inf; numbers are whole
    many: bool = False  # a list is one value
    each: type | None = None  # an array with one such number for each run
    form: str = ""  # what is expected, where type and range do not say it
    parse: Callable[[str], Any] | None = None  # of the command line's text
    page: Page | None = field(default_factory=Page)  # None: not on the page
    name: str = ""  # unless it is the field's
    kind: str = ""  # whole, real, choice, flag or text: from the type, unless given
    optional: bool = False  # None is expected, in words none: from the type
    default: Any = EMPTY

    @property
    def options(self) -> tuple[str, ...]:
        """What there is to choose from now."""
        return tuple(self.choices() if callable(self.choices) else self.choices)

    @property
    def expected(self) -> str:
        """What it may be, in words."""
        return self.form or self._range()

    @property
    def told(self) -> str:
        """Range, unit and default for a reader."""
        unit = f" ({self.unit})" if self.unit else ""
        none = ", or none" if self.optional and not self.form else ""
        default = "" if self.default is EMPTY else f"; default: {shown(self.default)}"
        return f"{self.expected}{none}{unit}{default}"

    def check(self, value: Any) -> Any:
        """``value`` as it is kept, if it is allowed; one sentence if not."""
        if self.optional and (value is None or (isinstance(value, str) and value == "none")):
            return None
        if self.many and self.kind == "choice":
            if not isinstance(value, Iterable):
                raise InputError(self.name, value, "a list of " + ", ".join(self.options))
            return tuple(
                check_choice(self.name, one, self.options) for one in ([value] if isinstance(value, str) else value)
            )
        if self.many and isinstance(value, list | tuple):
            if not value:
                raise InputError(self.name, "empty", self.expected)
            return tuple(self._one(one) for one in value)
        return self._one(value)

    def read(self, text: str) -> Any:
        """A value from the command line, still to be checked: ``0.5,1`` or ``0:10`` where several are allowed."""
        if self.parse is not None:
            return self.parse(text)
        if self.kind in ("choice", "text"):
            return text.split(",") if self.many else text
        words = {"true": True, "false": False} if self.kind == "flag" else {"none": None} if self.optional else {}
        if text in words or (self.inf and text == "inf"):
            return words.get(text, math.inf)
        if self.each:
            return numbers(self.name, text)
        found = numbers(self.name, text, self.expected) if self.many else [number(self.name, text, self.expected)]
        return found if len(found) > 1 else found[0]

    def _one(self, value: Any) -> Any:
        if self.inf and (value == "inf" if isinstance(value, str) else isinstance(value, float) and value == math.inf):
            return math.inf
        if self.inf and isinstance(value, str):
            raise InputError(self.name, value, self.expected)
        if self.kind == "choice":
            return check_choice(self.name, value, self.options)
        if self.kind == "flag" and not isinstance(value, bool):
            raise InputError(self.name, value, "true or false")
        if self.kind in _NUMBERS:
            return _NUMBERS[self.kind][0](self.name, value, **self._bounds)
        return value

    @property
    def _bounds(self) -> dict[str, Any]:
        if self.kind == "whole":
            return {"least": int(self.least or 0), "most": None if self.most is None else int(self.most)}
        return {name: getattr(self, name) for name in ("above", "least", "below", "most")}

    def _range(self) -> str:
        if self.kind == "choice":
            return ("any of " if self.many else "one of ") + ", ".join(self.options)
        if self.kind in _NUMBERS:
            return _NUMBERS[self.kind][1](**self._bounds) + (", or inf" if self.inf else "")
        return "true or false" if self.kind == "flag" else "a text"


_NUMBERS: dict[str, tuple[Callable[..., Any], Callable[..., str]]] = {
    "whole": (check_integer, describe_integer), "real": (check_float, describe_float),
}  # fmt: skip


def knob(default: Any = EMPTY, help: str = "", **rest: Any) -> Any:
    """A field of a dataclass with its declaration; without a default it must be given, and so must an array."""
    declared = {"knob": Knob(help, default=default, **rest)}
    if default is EMPTY or "each" in rest:
        return field(metadata=declared)
    return field(default=default, metadata=declared)


def knobs_of(place: Any) -> dict[str, Knob]:
    """What a dataclass or a function declares, by the names that users know."""
    return {one.name: one for one in _by_field(place).values()}


def check(made: Any) -> None:
    """For ``__post_init__``: every declared field of a frozen dataclass is checked, and kept in its plain form."""
    place: Any = type(made)
    for name, one in _by_field(place).items():
        object.__setattr__(made, name, one.check(getattr(made, name)))


def checked(make: Callable[P, T]) -> Callable[P, T]:
    """A function whose declared parameters are checked when it is called."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs)
        for name, one in _by_field(make).items():
            if name in given.arguments:
                given.arguments[name] = one.check(given.arguments[name])
        return make(*given.args, **given.kwargs)

    return call


@functools.cache
def _by_field(place: Any) -> dict[str, Knob]:
    if is_dataclass(place):
        hints = get_type_hints(place)
        found = {one.name: one.metadata["knob"] for one in fields(place) if "knob" in one.metadata}
        return {name: _filled(one, name, hints[name], one.default) for name, one in found.items()}
    place = inspect.unwrap(getattr(place, "__func__", place))
    defaults = {name: one.default for name, one in inspect.signature(place).parameters.items()}
    hints = get_type_hints(place, include_extras=True)
    marked = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: _filled(one, name, hint, defaults[name]) for name, (hint, one, *_) in marked.items()}


def _filled(one: Knob, name: str, hint: Any, default: Any) -> Knob:
    types = {one.each} if one.each else {hint} if get_origin(hint) is tuple else {hint, *get_args(hint)}
    kind = ("choice" if one.choices else "flag" if bool in types else "whole" if int in types or one.inf else
            "real" if float in types else "text")  # fmt: skip
    return replace(one, name=one.name or name, kind=one.kind or kind, optional=type(None) in types, default=default)


def shown(value: Any) -> str:
    """A default as one would write it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def number(name: str, text: str, expected: str = "a number") -> float | int:
    """An int where it looks like one, else a float."""
    for kind in (int, float) if text.isascii() else ():
        try:
            value = kind(text)
        except ValueError:
            continue
        if isinstance(value, int) or math.isfinite(value) or not re.search("[0-9]", text):  # 1e999 is not infinite
            return value
    raise InputError(name, text, expected)


def numbers(name: str, text: str, expected: str = "a number") -> list[float | int]:
    """``0.5,1,2`` or, for whole numbers, ``0:10`` (10 not included)."""
    low, colon, high = text.partition(":")
    if not colon:
        return [number(name, part.strip(), expected) for part in text.split(",")]
    first, last = number(name, low, expected), number(name, high, expected)
    if not (isinstance(first, int) and isinstance(last, int) and first < last):
        raise InputError(name, text, "numbers separated by commas, or a range such as 0:10")
    if last - first > MOST:
        raise InputError(name, text, f"at most {MOST:,} numbers")
    return list(range(first, last))
