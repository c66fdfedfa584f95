"""A deck: a lecture in beats, as its file has it and as the page gets it, with everything filled in.

The descriptions below are those of docs/lecture.md, of /docs and of the page's types; the file is read in
:mod:`scansnap.explorer.pages.lecture`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from scansnap.checks import InputError, choice, real, whole
from scansnap.explorer.controls import BY_NAME
from scansnap.explorer.messages.fields import Checked, Said
from scansnap.explorer.messages.setups import SetupJson
from scansnap.explorer.protocol import LIMITS

VIEWS = ("bars", "history", "curve")
CURVES = ("loss", "entropy", "growth", "log chi", "logits")
KINDS = ("common", "distinct")
BEATS, LETTERS = 100, 240  # of a deck; of a sentence, so that it fits in large type


def _text(most: int, least: int = 1) -> Checked:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not least <= len(value.strip()) or len(value) > most:
            raise InputError(name, value, f"a text of {'at least one and ' if least else ''}at most {most} letters")
        return " ".join(value.split())

    return Checked(check, {"type": "string", "maxLength": most})


def _whole(name: str, most: float = LIMITS["steps"]) -> Checked:
    described = {"type": "integer", "minimum": 0, "maximum": int(most)}
    return Checked(lambda _, value: whole(name, value, most=int(most)), described)


def _list_of(one: Checked, name: str, allowed: str) -> Checked:
    def check(_: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise InputError(name, value, allowed)
        return [one.check(name, item) for item in value]

    return Checked(check, {"type": "array", "items": one.described})


def _one_of(options: tuple[str, ...]) -> Checked:
    return Checked(lambda name, value: choice(name, value, options), {"enum": list(options)})


def _token(name: str, value: Any) -> int | str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InputError(name, value, "a token's number, its word, common or distinct")


def _rate(name: str, value: Any) -> float | None:
    return None if value is None else float(BY_NAME[name].check(value))


def _point(name: str, value: Any) -> list[float]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(name, value, "a step and a value")
    return [real(name, v) for v in value]


_POINT = Checked(_point, {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2})
_RATE = Checked(_rate, {"anyOf": [BY_NAME["eta_y"].schema(), {"type": "null"}]})
_EMPTY: Any = Field(default_factory=list)
_CLASS = _whole("classes", LIMITS["classes"])
_TOKEN = Checked(_token, {"type": ["integer", "string"]})


class Table(Said):
    """A table of the file: its keys are those of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True)


class Mark(Table):
    """New rates from a step on."""

    step: Annotated[int, _whole("step")]
    """The step they change at."""
    eta_y: Annotated[float | None, _RATE] = None
    """η_Y from then on; left out, as it was."""
    eta_z: Annotated[float | None, _RATE] = None
    """η_Z from then on; left out, as it was."""


class Highlight(Table):
    """What to look at; the rest is dimmed or left out."""

    views: Annotated[list[str], _list_of(_one_of(VIEWS), "views", f"a list of {', '.join(VIEWS)}")] = _EMPTY
    """Of bars, history (the heat map) and curve those that count."""
    classes: Annotated[list[int], _list_of(_CLASS, "classes", "a list of numbers")] = _EMPTY
    """The classes on the stage; left out, all of them."""
    tokens: Annotated[list[int | str], _list_of(_TOKEN, "tokens", "a list of tokens, common or distinct")] = _EMPTY
    """Tokens whose bars stay bright: numbers, words, or all that are common or distinct."""


class Predict(Table):
    """A question before the beat plays: which bar wins? The reveal measures it."""

    question: Annotated[str, _text(LETTERS)]
    """What the audience is asked."""
    of_class: Annotated[int, _whole("class", LIMITS["classes"])] = Field(0, alias="class")
    """The class whose bars may be clicked."""
    by: Annotated[Literal["attention", "logits"], _one_of(("attention", "logits"))] = "attention"
    """What the winner has most of at the last step: attention, or gain of its logit z since the first."""


class Theory(Table):
    """What a theory says of the curve, to be drawn beside it."""

    name: Annotated[str, _text(40)]
    """Whose it is, in a few words."""
    holds: bool = False
    """Whether it is what was measured; decides the colour."""
    points: Annotated[list[list[float]], _list_of(_POINT, "points", "a list of pairs, a step and a value each")]
    """Pairs of a step and a value, in the order of the steps; between them the line is straight."""


class Beat(Table):
    """One step of a lecture: a run, a stretch of it, and one sentence."""

    setup: SetupJson
    """A preset's name, or a table of set-up fields; preset in it names one to start from."""
    marks: list[Mark] = _EMPTY
    """Changes of the rates on the way."""
    against: SetupJson | None = None
    """A second run to draw over it, given as setup is."""
    first: Annotated[int, _whole("from")] = Field(0, alias="from")
    """The step the beat begins at."""
    last: Annotated[int, _whole("to")] = Field(alias="to")
    """The step it plays to; the same one: it stands still."""
    seconds: Annotated[float, Checked(lambda n, v: real(n, v, above=0, most=600),
                                      {"type": "number", "exclusiveMinimum": 0, "maximum": 600})] = 8.0  # fmt: skip
    """How long that takes, paced by ln(t + 1)."""
    sentence: Annotated[str, _text(LETTERS)]
    """What is to be seen, in large type; η_Y and e^{4z} are lowered and raised."""
    highlight: Highlight = Highlight()
    """What to look at."""
    curve: Annotated[Literal["loss", "entropy", "growth", "log chi", "logits"], _one_of(CURVES)] = "entropy"
    """The one curve beside the stage."""
    theory: list[Theory] = _EMPTY
    """What was predicted of it; drawn as far as the run has come."""
    predict: Predict | None = None
    """A question to ask first; the sentence follows the reveal."""


class Deck(Table):
    """A lecture."""

    name: str = ""
    """How it is asked for: a shipped one's name, or that of its file."""
    title: Annotated[str, _text(120)]
    """Of the talk."""
    author: Annotated[str, _text(120, least=0)] = ""
    """Who gives it."""
    beats: list[Beat] = Field(alias="beat")
    """In the order of the talk."""


class Decks(Said):
    """Lectures that can be given here; the one given at start first."""

    decks: list[Deck]


class Lecture(Said):
    """A deck with all its runs, as it is written into one file."""

    deck: Deck
    films: list[dict[str, Any]]
    """Every run once, as /api/runs/{run}/film says it."""
    runs: list[list[int | None]]
    """Of each beat: which film it shows, and which is drawn over it."""
