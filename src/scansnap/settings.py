"""Declarations of settings: type, range, default and one line of help, in one place.

``setting`` makes a field of a frozen dataclass, ``Annotated[int, SettingSpec(…)]`` a parameter of a function. The
checks, the options of the command line, the keys of TOML files, the axes of sweeps, the controls of the page and the
tables of docs/settings.md come from these declarations.
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

MAX_RANGE = 1_000_000  # numbers in a range such as 0:10
P = ParamSpec("P")
T = TypeVar("T")
EMPTY: Any = inspect.Parameter.empty  # no default


@dataclass(frozen=True)
class Page:
    """How the page shows a setting; without both ends of a slider it is a box."""

    label: str = ""
    symbol: str = ""
    low: float | None = None  # ends of the slider
    high: float | None = None
    log: bool = False
    live: bool = False  # may change during a run
    default: Any = EMPTY
    least: float | None = None  # tighter bounds on the page
    most: float | None = None
    cap: str = ""  # the limit of the explorer that bounds it, where that has another name
    words: Mapping[str, str] = field(default_factory=dict)  # labels of none and inf


@dataclass(frozen=True)
class SettingSpec:
    """One setting: what it does, in one line, and which values it accepts."""

    help: str
    unit: str = ""
    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    choices: Collection[str] | Callable[[], Collection[str]] = ()  # a function sees what is registered later, too
    allow_inf: bool = False  # an integer or infinity, "inf" in text
    multiple: bool = False  # a list is one value
    per_run: type | None = None  # an array with one number of this type for each run
    accepts: str = ""  # in words, where type and range do not say it
    parse: Callable[[str], Any] | None = None  # of the command line's text
    page: Page | None = field(default_factory=Page)  # None: not on the page
    name: str = ""  # unless it is the field's
    kind: str = ""  # integer, float, choice, flag or text; by default from the type
    optional: bool = False  # accepts None, "none" in text; by default from the type
    default: Any = EMPTY

    @property
    def options(self) -> tuple[str, ...]:
        """The choices at this moment."""
        return tuple(self.choices() if callable(self.choices) else self.choices)

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        return self.accepts or self._range()

    @property
    def summary(self) -> str:
        """Range, unit and default for a reader."""
        unit = f" ({self.unit})" if self.unit else ""
        none = ", or none" if self.optional and not self.accepts else ""
        default = "" if self.default is EMPTY else f"; default: {format_value(self.default)}"
        is_technical = self.most is not None and self.most >= 2**31 - 1  # a limit of arrays, of no use to a reader
        expected = replace(self, most=None).expected if is_technical else self.expected
        return f"{expected}{none}{unit}{default}"

    def check(self, value: Any) -> Any:
        """Return ``value`` in its plain form; refuse what is not accepted."""
        if self.optional and (value is None or (isinstance(value, str) and value == "none")):
            return None
        if self.multiple and self.kind == "choice":
            if not isinstance(value, Iterable):
                raise InputError(self.name, value, "a list of " + ", ".join(self.options))
            values = [value] if isinstance(value, str) else value
            return tuple(check_choice(self.name, choice, self.options) for choice in values)
        if self.multiple and isinstance(value, list | tuple):
            if not value:
                raise InputError(self.name, value, self.expected)
            return tuple(map(self._check_single, value))
        return self._check_single(value)

    def read(self, text: str) -> Any:
        """Parse an option of the command line: ``0.5,1`` or ``0:10`` where several values are accepted."""
        if self.parse is not None:
            return self.parse(text)
        if self.kind in ("choice", "text"):
            return text.split(",") if self.multiple else text
        words = {"true": True, "false": False} if self.kind == "flag" else {"none": None} if self.optional else {}
        if text in words or (self.allow_inf and text == "inf"):
            return words.get(text, math.inf)
        if self.per_run:
            return parse_numbers(self.name, text)
        if not self.multiple:
            return parse_number(self.name, text, self.expected)
        values = parse_numbers(self.name, text, self.expected)
        return values if len(values) > 1 else values[0]

    def _check_single(self, value: Any) -> Any:
        if self.allow_inf and (value == "inf" if isinstance(value, str) else value is math.inf or value == math.inf):
            return math.inf
        if self.allow_inf and isinstance(value, str):
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
        if self.kind == "integer":
            return {"least": int(self.least or 0), "most": None if self.most is None else int(self.most)}
        return {name: getattr(self, name) for name in ("above", "least", "below", "most")}

    def _range(self) -> str:
        if self.kind == "choice":
            return ("any of " if self.multiple else "one of ") + ", ".join(self.options)
        if self.kind in _NUMBERS:
            return _NUMBERS[self.kind][1](**self._bounds) + (", or inf" if self.allow_inf else "")
        return "true or false" if self.kind == "flag" else "a text"


_NUMBERS: dict[str, tuple[Callable[..., Any], Callable[..., str]]] = {
    "integer": (check_integer, describe_integer), "float": (check_float, describe_float),
}  # fmt: skip


def setting(default: Any = EMPTY, help: str = "", **options: Any) -> Any:
    """Declare a field of a dataclass; one without a default is required, and so is an array."""
    metadata = {"setting": SettingSpec(help, default=default, **options)}
    if default is EMPTY or "per_run" in options:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(owner: Any) -> dict[str, SettingSpec]:
    """Return what a dataclass or a function declares, by the names that users know."""
    return {spec.name: spec for spec in specs_by_field(owner).values()}


def check_fields(instance: Any) -> None:
    """Check every declared field of a frozen dataclass and store its plain form; for ``__post_init__``."""
    owner: Any = type(instance)
    for name, spec in specs_by_field(owner).items():
        object.__setattr__(instance, name, spec.check(getattr(instance, name)))


def check_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that its declared parameters are checked in every call."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        for name, spec in specs_by_field(function).items():
            if name in bound.arguments:
                bound.arguments[name] = spec.check(bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return call


@functools.cache
def specs_by_field(owner: Any) -> dict[str, SettingSpec]:
    if is_dataclass(owner):
        hints: dict[str, Any] = get_type_hints(owner)
        specs = {item.name: item.metadata["setting"] for item in fields(owner) if "setting" in item.metadata}
        return {name: _complete(spec, name, hints[name], spec.default) for name, spec in specs.items()}
    owner = inspect.unwrap(getattr(owner, "__func__", owner))
    defaults = {name: parameter.default for name, parameter in inspect.signature(owner).parameters.items()}
    hints = get_type_hints(owner, include_extras=True)
    annotated = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: _complete(spec, name, hint, defaults[name]) for name, (hint, spec, *_) in annotated.items()}


def _complete(spec: SettingSpec, name: str, hint: Any, default: Any) -> SettingSpec:
    """Fill in name, kind, optional and default from the field."""
    types = {spec.per_run} if spec.per_run else {hint} if get_origin(hint) is tuple else {hint, *get_args(hint)}
    kind = ("choice" if spec.choices else "flag" if bool in types else
            "integer" if int in types or spec.allow_inf else "float" if float in types else "text")  # fmt: skip
    return replace(spec, name=spec.name or name, kind=spec.kind or kind, optional=type(None) in types, default=default)


def format_value(value: Any) -> str:
    """Return a value as a user would write it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_number(name: str, text: str, expected: str = "a number") -> float | int:
    """Return an int where the text looks like one, else a float."""
    for kind in (int, float) if text.isascii() else ():
        try:
            value = kind(text)
        except ValueError:
            continue
        if isinstance(value, int) or math.isfinite(value) or not re.search("[0-9]", text):  # 1e999 is not infinite
            return value
    raise InputError(name, text, expected)


def parse_numbers(name: str, text: str, expected: str = "a number") -> list[float | int]:
    """Parse ``0.5,1,2`` or, for integers, ``0:10`` (10 not included)."""
    low, colon, high = text.partition(":")
    if not colon:
        return [parse_number(name, part.strip(), expected) for part in text.split(",")]
    first, last = parse_number(name, low, expected), parse_number(name, high, expected)
    if not (isinstance(first, int) and isinstance(last, int) and first < last):
        raise InputError(name, text, "numbers separated by commas, or a range such as 0:10")
    if last - first > MAX_RANGE:
        raise InputError(name, text, f"at most {MAX_RANGE:,} numbers")
    return list(range(first, last))
