"""Reads lecture decks from TOML files and fills in every set-up.

The fields below describe the tables of a file: check, default, and the help text that docs/lecture.md repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scansnap.checks import InputError, check_choice, check_float, check_integer, check_keys, describe_integer
from scansnap.classes.toml import parse
from scansnap.explorer.controls import BY_NAME
from scansnap.explorer.limits import LIMITS
from scansnap.explorer.presets import PRESETS
from scansnap.explorer.setup import SetupReading, read_setup
from scansnap.settings import EMPTY

FOLDER = Path(__file__).parent / "decks"
SHIPPED_DECKS = ("paper", "holds", "adam")  # in the order of the list
VIEWS = ("bars", "history", "curve")
CURVES = ("loss", "entropy", "growth", "log chi", "logits")
KINDS = ("common", "distinct")
_SETUPS = {preset["name"]: preset["setup"] for preset in PRESETS}
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class DeckField:
    """A key of a table: its check, its help text, and its default (none: required)."""

    check: Check
    help: str
    default: Any = EMPTY


# --- how values are checked ------------------------------------------------------------------------------------------


def _text(most: int, least: int = 1) -> Check:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not least <= len(value.strip()) or len(value) > most:
            raise InputError(name, value, f"a text of {'at least one and ' if least else ''}at most {most} letters")
        return " ".join(value.split())

    return check


def _list_of(check: Check, allowed: str) -> Check:
    def check_all(name: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise InputError(name, value, allowed)
        return [check(name, item) for item in value]

    return check_all


def _one_of(options: tuple[str, ...]) -> Check:
    return lambda name, value: check_choice(name, value, options)


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
    return [check_float(name, v) for v in value]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(name, value, "true or false")
    return value


def _keep(name: str, value: Any) -> Any:
    """A nested table, read before the beat itself."""
    return value


_STEP = partial(check_integer, most=LIMITS["steps"])
_CLASS = partial(check_integer, most=LIMITS["classes"])

MARK: dict[str, DeckField] = {
    "step": DeckField(_STEP, "The step of the change."),
    "eta_y": DeckField(_rate, "η_Y from this step on; by default unchanged.", None),
    "eta_z": DeckField(_rate, "η_Z from this step on; by default unchanged.", None),
}
HIGHLIGHT: dict[str, DeckField] = {
    "views": DeckField(_list_of(_one_of(VIEWS), f"a list of {', '.join(VIEWS)}"),
                   "The views to emphasise: bars, history (the heat map), curve.", ()),
    "classes": DeckField(_list_of(_CLASS, "a list of numbers"), "The classes on the stage; by default all.", ()),
    "tokens": DeckField(_list_of(_token, "a list of tokens, common or distinct"),
                    "The tokens whose bars stay bright: numbers, words, common or distinct.", ()),
}  # fmt: skip
PREDICT: dict[str, DeckField] = {
    "question": DeckField(_text(LIMITS["sentence"]), "The question to the audience."),
    "class": DeckField(_CLASS, "The class whose bars can be clicked.", 0),
    "by": DeckField(_one_of(("attention", "logits")),
                "What decides at the last step: attention, or logits (their gain since the first step).",
                "attention"),
}  # fmt: skip
THEORY: dict[str, DeckField] = {
    "name": DeckField(_text(40), "The label of the line."),
    "holds": DeckField(_flag, "Whether the prediction holds; it decides the colour.", False),
    "points": DeckField(_list_of(_point, "a list of pairs, a step and a value each"),
                    "Pairs of a step and a value, in ascending order of the steps, joined by straight lines."),
}  # fmt: skip
BEAT: dict[str, DeckField] = {
    "setup": DeckField(_keep, "A preset's name, or a table of set-up fields, whose preset is the start."),
    "marks": DeckField(_keep, "Changes of the rates during the run.", ()),
    "against": DeckField(_keep, "A second run to draw over the first, in the form of setup.", None),
    "from": DeckField(_STEP, "The first step of the beat.", 0),
    "to": DeckField(_STEP, "The last step of the beat; equal to from, the beat stands still."),
    "seconds": DeckField(partial(check_float, above=0, most=600), "The duration, paced by ln(t + 1).", 8.0),
    "sentence": DeckField(_text(LIMITS["sentence"]), "The sentence in large type; η_Y and e^{4z} are typeset."),
    "highlight": DeckField(_keep, "What to emphasise.", None),
    "curve": DeckField(_one_of(CURVES), "The curve beside the stage.", "entropy"),
    "theory": DeckField(_keep, "Predictions of the curve, drawn up to the step on screen.", ()),
    "predict": DeckField(_keep, "A question to ask first; the sentence follows the reveal.", None),
}
DECK: dict[str, DeckField] = {
    "title": DeckField(_text(120), "The title."),
    "author": DeckField(_text(120, least=0), "The speaker; optional.", ""),
    "beat": DeckField(_keep, "One table `[[beat]]` for each beat, in order."),
}


# --- reading ---------------------------------------------------------------------------------------------------------


def load_deck(name: str) -> dict[str, Any]:
    """A shipped deck by its name, or one from a file."""
    return read_deck(FOLDER / f"{name}.toml", name) if name in SHIPPED_DECKS else read_deck(Path(name))


def read_deck(path: Path, name: str = "") -> dict[str, Any]:
    """The deck in a file, or an `InputError` that names the field, its value and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("deck", str(path), f"a TOML file that exists, or one of {', '.join(SHIPPED_DECKS)}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError("deck", str(path), f"a TOML file that can be read ({reason})") from None
    return deck_of(parse("deck", str(path), text), name or path.stem)


def deck_of(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The deck that a table describes, as the page gets it."""
    check_keys("the deck", table, DECK)
    rows, most = table.get("beat"), LIMITS["beats"]
    if not isinstance(rows, list) or not 0 < len(rows) <= most or not all(isinstance(row, dict) for row in rows):
        raise InputError("beat", rows, f"one to {most} tables [[beat]]")
    beats = [_beat(row, f"beat {i}") for i, row in enumerate(rows, 1)]
    return {"name": name, **_read(DECK, {**table, "beat": beats}, "the deck")}


def _read(fields: Mapping[str, DeckField], table: Any, where: str) -> dict[str, Any]:
    """A table with its defaults filled in."""
    if not isinstance(table, dict):
        raise InputError(where, table, "a table")
    check_keys(where, table, fields)
    values = {}
    for name, field in fields.items():
        if name not in table and field.default is not EMPTY:
            values[name] = list(field.default) if isinstance(field.default, tuple) else field.default
            continue
        try:
            values[name] = field.check(name, table.get(name))
        except InputError as error:
            raise error.with_field(f"{error.field} of {where}") from None
    return values


def _beat(row: dict[str, Any], where: str) -> dict[str, Any]:
    check_keys(where, row, BEAT)
    reading = _setup(row.get("setup"), f"setup of {where}")
    lines = row.get("theory", [])
    beat = {
        **row,
        "setup": reading.setup,
        "against": _setup(row["against"], f"against of {where}").setup if "against" in row else None,
        "highlight": _read(HIGHLIGHT, row.get("highlight", {}), f"highlight of {where}"),
        "predict": _read(PREDICT, row["predict"], f"predict of {where}") if "predict" in row else None,
        "theory": [
            _read(THEORY, line, f"theory of {where}") for line in (lines if isinstance(lines, list) else [lines])
        ],
        "marks": _marks(row.get("marks", []), reading, f"marks of {where}"),
    }
    beat = _read(BEAT, beat, where)
    _check_against_run(beat, reading, where)
    return beat


def _setup(value: Any, where: str) -> SetupReading:
    """A preset's name, or a table; ``preset`` in it is where it starts from."""
    table = {"preset": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        raise InputError(where, value, "a preset's name or a table of set-up fields")
    table = dict(table)
    if "preset" in table:
        preset = table.pop("preset")
        if preset not in _SETUPS:
            raise InputError(where, preset, f"one of {', '.join(_SETUPS)}")
        table = {**_SETUPS[preset], **table}
    try:
        return read_setup({**table, "batch_size": None} if table.get("batch_size") == "none" else table)
    except InputError as error:
        raise error.with_field(f"{error.field} in {where}") from None


def _marks(rows: Any, reading: SetupReading, where: str) -> list[dict[str, Any]]:
    """In the order of their steps, each with both rates."""
    if not isinstance(rows, list):
        raise InputError(where, rows, "a list of tables with step, eta_y and eta_z")
    rates, steps = {name: reading.setup[name] for name in ("eta_y", "eta_z")}, reading.settings.steps
    marks: list[dict[str, Any]] = []
    for row in rows:
        mark = _read(MARK, row, where)
        least = marks[-1]["step"] + 1 if marks else 1
        if not least <= mark["step"] < steps:
            raise InputError(f"step in {where}", mark["step"], describe_integer(least, steps - 1))
        rates |= {name: mark[name] for name in rates if mark[name] is not None}
        marks.append({"step": mark["step"], **rates})
    return marks


def _check_against_run(beat: dict[str, Any], reading: SetupReading, where: str) -> None:
    """Steps, classes and tokens are those of the run."""
    steps, classes, predict = reading.settings.steps, reading.classes, beat["predict"]
    if beat["to"] > steps:
        raise InputError(f"to of {where}", beat["to"], f"{describe_integer(0, steps)}, the steps of its run")
    if beat["from"] > beat["to"]:
        raise InputError(f"from of {where}", beat["from"], f"{describe_integer(0, beat['to'])}, where the beat ends")
    if predict is not None and beat["from"] == beat["to"]:
        raise InputError(f"from of {where}", beat["from"], f"before {beat['to']}: there is something to predict")
    predicted = [predict["class"]] if predict else []
    for name, chosen in (("classes in highlight", beat["highlight"]["classes"]), ("class in predict", predicted)):
        for k in chosen:
            if k >= classes.n_classes:
                raise InputError(f"{name} of {where}", k, describe_integer(0, classes.n_classes - 1))
    words = set(getattr(classes, "words", None) or ())
    tokens = {int(token) for n in range(classes.n_classes) for token in classes.support(n)[0]}
    for token in beat["highlight"]["tokens"]:
        if token not in (words | set(KINDS) if isinstance(token, str) else tokens):
            allowed = f"common, distinct, a word of the run, or a token of its classes ({min(tokens)} to {max(tokens)})"
            raise InputError(f"tokens in highlight of {where}", token, allowed)
