"""Kinds of fields. Pydantic reads and describes them; the sentence of a refusal comes from :mod:`scansnap.checks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import core_schema

from scansnap.checks import InputError, known_keys, real, whole
from scansnap.explorer.protocol import LIMITS

Number = float | Literal["inf", "-inf"] | None  # as JSON has it: null where there is none
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Checked:
    """A value that ``check(name, value)`` reads or refuses, and what is said of it in the description."""

    check: Callable[[str, Any], Any]
    described: dict[str, Any] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def read(value: Any, info: core_schema.ValidationInfo) -> Any:
            return self.check(str(info.field_name), value)

        return core_schema.with_info_plain_validator_function(read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.described)


def within(least: int, most: int | float) -> Checked:
    """A whole number."""
    described = {"type": "integer", "minimum": least, "maximum": int(most)}
    return Checked(lambda name, value: whole(name, value, least=least, most=int(most)), described)


def _speed(name: str, value: Any) -> float | None:
    if value is None or value == "max":
        return None
    return real(name, value, above=0, most=LIMITS["speed"])


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(name, value, "true or false")
    return value


def _c0(name: str, value: Any) -> float | None:
    return None if value is None else real(name, value, above=0, most=1e30)


def _moment(name: str, value: Any) -> int | None:
    return None if value is None else whole(name, value, least=0, most=int(LIMITS["steps"]))


MOMENT = Checked(_moment, {"anyOf": [{"type": "integer", "minimum": 0, "maximum": int(LIMITS["steps"])},
                                     {"type": "null"}]})  # fmt: skip
SPEED = Checked(_speed, {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": LIMITS["speed"]},
                                   {"const": "max"}, {"type": "null"}]})  # fmt: skip
FLAG = Checked(_flag, {"type": "boolean"})
C0 = Checked(_c0, {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1e30}, {"type": "null"}]})
ANYTHING = Checked(lambda name, value: value)


class Said(BaseModel):
    """Something the server says: exactly these fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Asked(BaseModel):
    """Something the page says."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


def read(model: type[Model], given: dict[str, Any], where: str = "") -> Model:
    """``given`` as a model, or an :class:`InputError` on its first mistake; ``where``: other keys are refused too."""
    if where:
        known_keys(where, given, model.model_fields)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            raise cause from None
        name = str(first["loc"][0])
        for kind in model.model_fields[name].metadata:  # it is missing: said like a value that cannot be
            if isinstance(kind, Checked):
                kind.check(name, None)
        raise InputError(name, given.get(name), "an object") from None
