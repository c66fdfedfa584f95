"""Lectures: decks read from their files, their runs computed, and one HTML file that needs no server."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from scansnap.checks import InputError, known_keys, whole_words
from scansnap.explorer import protocol
from scansnap.explorer.live.hosted import Hosted
from scansnap.explorer.messages.decks import BEATS, KINDS, Beat, Deck, Highlight, Mark, Predict, Theory
from scansnap.explorer.messages.fields import Checked
from scansnap.explorer.pages.export import bundle, film
from scansnap.explorer.setups.blueprint import Blueprint
from scansnap.explorer.setups.presets import PRESETS
from scansnap.explorer.setups.read import read_setup
from scansnap.progress import Progress

FOLDER, STATIC = (Path(__file__).parents[1] / name for name in ("decks", "static"))
SHIPPED = ("paper", "holds", "adam")  # in the order they are offered
DATA, PLAYER, STYLE = "/*__LECTURE_DATA__*/", "/*__LECTURE_PLAYER__*/", "/*__LECTURE_STYLE__*/"
_SETUPS = {preset["name"]: preset["setup"] for preset in PRESETS}
_Model = TypeVar("_Model", bound=BaseModel)
Run = tuple[dict[str, Any], list[dict[str, Any]]]  # a set-up and the changes of its rates


# --- reading ---------------------------------------------------------------------------------------------------------


def find(deck: str) -> Deck:
    """A shipped deck by its name, or one from a file."""
    return read_deck(FOLDER / f"{deck}.toml", deck) if deck in SHIPPED else read_deck(Path(deck))


def decks(own: Path | None = None) -> list[Deck]:
    """All that can be given here: the own one first."""
    return [*([] if own is None else [read_deck(own)]), *(find(name) for name in SHIPPED)]


def read_deck(path: Path, name: str = "") -> Deck:
    """The deck in a file, or an :class:`InputError` that names the field, its value and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("deck", str(path), f"a TOML file that exists, or one of {', '.join(SHIPPED)}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError("deck", str(path), f"a TOML file that can be read ({reason})") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("deck", str(path), f"a TOML file ({error})") from None
    return deck_of(table, name or path.stem)


def deck_of(table: Mapping[str, Any], name: str) -> Deck:
    """The deck a table describes; set-ups are filled in."""
    known_keys("the deck", table, ("title", "author", "beat"))
    rows = table.get("beat")
    if not isinstance(rows, list) or not 0 < len(rows) <= BEATS or not all(isinstance(row, dict) for row in rows):
        raise InputError("beat", rows, f"one to {BEATS} tables [[beat]]")
    beats = [_beat(row, f"beat {i}") for i, row in enumerate(rows, 1)]
    return _read(Deck, {**table, "name": name, "beat": beats}, "the deck")


def _beat(row: dict[str, Any], where: str) -> Beat:
    known_keys(where, row, _keys(Beat))
    given, blueprint = dict(row), _setup(row.get("setup"), f"setup of {where}")
    given["setup"] = blueprint.setup
    if "against" in row:
        given["against"] = _setup(row["against"], f"against of {where}").setup
    for key, model in (("highlight", Highlight), ("predict", Predict)):
        if key in row:
            given[key] = _read(model, row[key], f"{key} of {where}")
    if "theory" in row:
        lines = row["theory"] if isinstance(row["theory"], list) else [row["theory"]]
        given["theory"] = [_read(Theory, line, f"theory of {where}") for line in lines]
    given["marks"] = _marks(row.get("marks", []), blueprint, f"marks of {where}")
    beat = _read(Beat, given, where)
    _hold_against_run(beat, blueprint, where)
    return beat


def _setup(given: Any, where: str) -> Blueprint:
    """A preset's name, or a table; ``preset`` in it is where it starts from."""
    table = {"preset": given} if isinstance(given, str) else given
    if not isinstance(table, dict):
        raise InputError(where, given, "a preset's name or a table of set-up fields")
    table = dict(table)
    if "preset" in table:
        preset = table.pop("preset")
        if preset not in _SETUPS:
            raise InputError(where, preset, f"one of {', '.join(_SETUPS)}")
        table = {**_SETUPS[preset], **table}
    try:
        return read_setup({**table, "batch_size": None} if table.get("batch_size") == "none" else table)
    except InputError as error:
        raise InputError(f"{error.field} in {where}", error.value, error.allowed) from None


def _marks(rows: Any, blueprint: Blueprint, where: str) -> list[Mark]:
    """In the order of their steps, each with both rates."""
    if not isinstance(rows, list):
        raise InputError(where, rows, "a list of tables with step, eta_y and eta_z")
    now, steps = {name: blueprint.setup[name] for name in ("eta_y", "eta_z")}, blueprint.settings.steps
    made: list[Mark] = []
    for row in rows:
        mark = _read(Mark, row, where)
        least = made[-1].step + 1 if made else 1
        if not least <= mark.step < steps:
            raise InputError(f"step in {where}", mark.step, whole_words(least, steps - 1))
        now |= {name: value for name, value in (("eta_y", mark.eta_y), ("eta_z", mark.eta_z)) if value is not None}
        made.append(Mark(step=mark.step, **now))
    return made


def _hold_against_run(beat: Beat, blueprint: Blueprint, where: str) -> None:
    """Steps, classes and tokens are those of the run."""
    steps, classes = blueprint.settings.steps, blueprint.classes
    if beat.last > steps:
        raise InputError(f"to of {where}", beat.last, f"{whole_words(0, steps)}, the steps of its run")
    if beat.first > beat.last:
        raise InputError(f"from of {where}", beat.first, f"{whole_words(0, beat.last)}, where the beat ends")
    if beat.predict is not None and beat.first == beat.last:
        raise InputError(f"from of {where}", beat.first, f"before {beat.last}: there is something to predict")
    asked = [beat.predict.of_class] if beat.predict else []
    for name, chosen in (("classes in highlight", beat.highlight.classes), ("class in predict", asked)):
        for k in chosen:
            if k >= classes.n_classes:
                raise InputError(f"{name} of {where}", k, whole_words(0, classes.n_classes - 1))
    words = set(getattr(classes, "words", None) or ())
    tokens = set(np.concatenate([classes.support(n)[0] for n in range(classes.n_classes)]).tolist())
    for token in beat.highlight.tokens:
        if token not in (words | set(KINDS) if isinstance(token, str) else tokens):
            allowed = f"common, distinct, a word of the run, or a token of its classes ({min(tokens)} to {max(tokens)})"
            raise InputError(f"tokens in highlight of {where}", token, allowed)


def _read(model: type[_Model], given: Any, where: str) -> _Model:
    """A table as a model; a mistake is said of the field in its place."""
    if not isinstance(given, dict):
        raise InputError(where, given, "a table")
    known_keys(where, given, _keys(model))
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause, name = first.get("ctx", {}).get("error"), str(first["loc"][0])
        try:
            for field in model.model_fields.values():  # it is missing: said like a value that cannot be
                for kind in field.metadata if field.alias == name or field is model.model_fields.get(name) else ():
                    if isinstance(kind, Checked) and not isinstance(cause, InputError):
                        kind.check(name, None)
        except InputError as missing:
            cause = missing
        if not isinstance(cause, InputError):
            cause = InputError(name, given.get(name), "given")
        raise InputError(f"{cause.field} of {where}", cause.value, cause.allowed) from None


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


# --- runs and the file -----------------------------------------------------------------------------------------------


def runs(deck: Deck) -> tuple[list[Run], list[list[int | None]]]:
    """Every run once, and of each beat which one it shows and which is drawn over it."""
    found: dict[str, int] = {}
    made: list[Run] = []

    def number(setup: dict[str, Any] | None, marks: list[Mark]) -> int | None:
        if setup is None:
            return None
        run = setup, [mark.model_dump() for mark in marks]
        at = found.setdefault(protocol.dumps(run), len(made))
        if at == len(made):
            made.append(run)
        return at

    places = [[number(beat.setup, beat.marks), number(beat.against, [])] for beat in deck.beats]
    return made, places


def lecture(deck: Deck, progress: Progress | None = None) -> dict[str, Any]:
    """The deck with all its runs, computed here."""
    wanted, places = runs(deck)
    before = np.cumsum([0, *(setup["steps"] for setup, _ in wanted)]).tolist()
    films = []
    for i, run in enumerate(wanted):
        done = partial(_pass_on, progress, before[i], before[-1])
        films.append(_film(run, f"lecture-{i}", done))
    return {"deck": told(deck), "films": films, "runs": places}


def _pass_on(progress: Progress | None, before: int, total: int, done: int) -> None:
    if progress is not None:
        progress(before + done, total)


def told(deck: Deck) -> dict[str, Any]:
    """As the page gets it; a set-up is told as it was read."""
    return deck.model_dump(by_alias=True, warnings=False)


def _film(run: Run, name: str, progress: Callable[[int], None]) -> dict[str, Any]:
    """The frames of one run from its start to its end, as the explorer keeps them."""
    setup, marks = run
    hosted = Hosted(name, setup, lambda _: None)
    live = hosted.live
    for mark in [*marks, None]:
        end = live.steps if mark is None else mark["step"]
        while live.step < end and not live.over:
            live.advance(min(end - live.step, 1000))
            progress(live.step)
        if mark is not None:
            live.change(mark["eta_y"], mark["eta_z"])
    if live.failed_step is not None:
        rates = f"{setup['eta_y']:g} and {setup['eta_z']:g}"
        allowed = f"smaller: the run leaves the range of numbers at step {live.failed_step}"
        raise InputError("eta_y and eta_z of a beat", rates, allowed)
    steps, rows = live.film.after(-1)
    head = {"about": hosted.describe().model_dump(warnings=False), "n": len(steps), "floats": rows.shape[1]}
    return film(head, steps.astype("<u4").tobytes() + np.ascontiguousarray(rows, dtype="<f4").tobytes())


def template(static: Path) -> str:
    """The file without its data: what shows a lecture, in one page."""
    css, js = static / "css", static / "js"
    style = "\n".join((css / name).read_text(encoding="utf-8") for name in ("base.css", "lecture.css"))
    page = (static / "lecture.html").read_text(encoding="utf-8")
    for placeholder, content in ((STYLE, style), (PLAYER, bundle(js / "lecture", "offline"))):
        if placeholder not in page or DATA not in page:
            raise InputError("static/lecture.html", "without its placeholder", f"a page that contains {placeholder}")
        page = page.replace(placeholder, content.replace("</", "<\\/"), 1)
    return page


def html(static: Path, data: dict[str, Any]) -> str:
    """One file that gives the lecture without a server. No ``<`` in the data: a script cannot end inside it."""
    return template(static).replace(DATA, protocol.dumps(data).replace("<", "\\u003c"), 1)
