"""Reads a set-up of the page and checks it by the same code as files and the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.checks import InputError, check_choice, check_float, check_integer, check_keys, digits
from scansnap.classes import PRESETS, SequenceClasses
from scansnap.classes.toml import parse
from scansnap.dynamics.settings import Settings, run_settings, settings
from scansnap.explorer.controls import BY_NAME, CONTROLS, PRESET_CONTROLS
from scansnap.explorer.limits import LIMITS
from scansnap.runs import Runs, grid, run_fields, values_of


class ClassesError(InputError):
    """A mistake in the classes, with the control that shows it: a preset's setting, or the classes as a whole."""

    def __init__(self, error: InputError, control: str) -> None:
        super().__init__(error.field, error.value, error.expected)
        self.__dict__.update(error.__dict__)
        self.args, self.control = error.args, control


@dataclass(frozen=True)
class SetupReading:
    """A set-up as the package runs it."""

    setup: dict[str, Any]  # every key filled in, as JSON
    classes: SequenceClasses
    runs: Runs  # one
    settings: Settings
    note: str = ""  # what of a file the page does not show


def read_setup(value: Any) -> SetupReading:
    """The run that a set-up describes, or an `InputError` that names the control."""
    if not isinstance(value, dict):
        raise InputError("setup", value, "an object")
    check_keys("the set-up", value, ("classes", *BY_NAME))
    classes, form, from_file, note = _classes(value.get("classes"))
    values = {name: control.default for name, control in BY_NAME.items()}
    values |= from_file | {k: v for k, v in value.items() if k != "classes"}
    for control in CONTROLS:
        if control.name == "optimizer" and isinstance(values["optimizer"], dict):
            continue  # a table of its own settings, checked where it is read
        values[control.name] = control.check(values[control.name])
    rates = {name: values.pop(name) for name in run_fields() if name in values}
    run_options = settings({**values, "record": [0]})
    if not run_options.has_momentum:
        rates["momentum"] = 0.0  # the page has a momentum field for every optimiser
    runs = grid(**rates)
    return SetupReading({"classes": form, **rates, **values}, classes, runs, run_options, note)


def field_of(error: InputError) -> str:
    """The control a refusal belongs to."""
    if isinstance(error, ClassesError):
        return error.control
    if error.field.isidentifier():
        return error.field
    return next((name for name in BY_NAME if name in error.field), "request")


# --- classes ---------------------------------------------------------------------------------------------------------


def _classes(form: Any) -> tuple[SequenceClasses, dict[str, Any], dict[str, Any], str]:
    """The classes, their form in the set-up, the settings of a run file, and a note on what the page leaves out."""
    try:
        if not isinstance(form, dict) or sum(key in form for key in ("preset", "toml", "bars", "text")) != 1:
            raise InputError("classes", form, "an object with preset, toml, bars or text")
        if "toml" in form:
            check_keys("classes", form, ("toml",))
            table, run, note = _toml_tables(form["toml"])
            return _from_table(table), form, run, note
        if "bars" in form:
            check_keys("classes", form, ("bars",))
            return _from_table(_bars(form["bars"])), form, {}, ""
        if "text" in form:
            from scansnap.corpus import passage  # SciPy's sparse tables take a second that the first run need not wait

            check_keys("classes", form, ("text", "pairs"))
            counts = passage.read(form["text"], most=int(LIMITS["text_characters"])).classes(form.get("pairs"))
            return SequenceClasses(**counts.table()), form, {}, ""
        return _from_table(form), form, {}, ""
    except InputError as error:
        of_preset = isinstance(form, dict) and "preset" in form and error.field in PRESET_CONTROLS
        raise ClassesError(error, error.field if of_preset else "classes") from None


def _from_table(table: dict[str, Any]) -> SequenceClasses:
    """Classes from a table of a file, after a check of its size."""
    if "preset" in table:
        preset = check_choice("preset", table["preset"], PRESETS)
        options = {k: v for k, v in table.items() if k != "preset"}
        for name, value in options.items():
            if name in PRESET_CONTROLS and name != "distinct_weights":
                PRESET_CONTROLS[name].check(value)
        if preset == "synthetic":
            _sizes(options)
        if preset == "syn-medium":
            check_integer("n_queries", options.get("n_queries", 1), least=1, most=int(LIMITS["classes"]) // 2)
    elif isinstance(table.get("class"), list) and len(table["class"]) > LIMITS["classes"]:
        raise InputError("the number of classes", len(table["class"]), f"at most {LIMITS['classes']}")
    if "vocab_size" in table:
        check_integer("vocab_size", table["vocab_size"], least=1, most=int(LIMITS["tokens"]))
    return SequenceClasses.from_table(table, "the classes")


def _sizes(options: dict[str, Any]) -> None:
    size = {name: options.get(name, PRESET_CONTROLS[name].default) for name in
            ("n_queries", "next_per_query", "common", "common_per_query", "distinct", "unused")}  # fmt: skip
    k = size["n_queries"] * size["next_per_query"]
    if k > LIMITS["classes"]:
        raise InputError("n_queries · next_per_query", k, f"at most {LIMITS['classes']} classes")
    tokens = size["common"] + size["common_per_query"] * size["n_queries"] + size["distinct"] * k + size["unused"]
    if tokens > LIMITS["tokens"]:
        raise InputError("the number of tokens", tokens, f"at most {LIMITS['tokens']}")


def _toml_tables(text: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The classes of a classes file or run file, the settings of its first run, and how many more it has."""
    if not isinstance(text, str):
        raise InputError("toml", text, "a text")
    table = parse("toml", text[:60], text)
    if "classes" not in table and "run" not in table:
        return table, {}, ""
    check_keys("the run file", table, ("classes", "run"))
    run = table.get("run", {})
    for name, value in (("run", run), ("classes", table.get("classes"))):
        if not isinstance(value, dict):
            raise InputError(name, value, f"a table: [{name}]")
    check_keys("[run]", run, file_keys())
    lists = {k: values_of(run_fields()[k], v) for k, v in run.items() if k in run_fields() and isinstance(v, list)}
    n_runs = math.prod(len(values) for values in lists.values())
    first = ", ".join(f"{name} = {values[0]:g}" for name, values in lists.items())
    note = f"The file has {n_runs} runs; this is the first: {first}." if n_runs > 1 else ""
    run = {k: v for k, v in run.items() if k not in ("record", "variables")}
    run |= {name: values[0] for name, values in lists.items()}
    if run.get("batch_size") == "none":
        run["batch_size"] = None
    if "ratio" in run:
        if "eta_y" in run:
            raise InputError("eta_y and ratio", "both given", "one of the two")
        run["eta_y"] = check_float("ratio", run.pop("ratio"), above=0) * check_float(
            "eta_z", run.get("eta_z", 1.0), least=0
        )
    return table["classes"], run, note


def file_keys() -> list[str]:
    """The keys of a run file that the page reads; it has no frozen attention and so no modified update."""
    return sorted({*run_fields(), *run_settings()} - {"update"})


def _bars(bars: Any) -> dict[str, Any]:
    """Weights per token and class, normalised, as a file has them."""
    if not isinstance(bars, dict):
        raise InputError("bars", bars, "an object with vocab_size and classes")
    check_keys("bars", bars, ("vocab_size", "words", "classes"))
    rows = bars.get("classes")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError("classes of bars", rows, "a list of at least one class")
    table = []
    p_class = [row.get("p_class") for row in rows]
    if all(p is not None for p in p_class):
        p_class = list(_normalised("p_class", p_class))
    for n, (row, p) in enumerate(zip(rows, p_class, strict=True)):
        check_keys(f"class {n}", row, ("query", "next_token", "p_class", "tokens", "weights"))
        entry = {k: v for k, v in row.items() if k not in ("weights", "p_class")}
        entry["p_context"] = _normalised(f"weights of class {n}", row.get("weights"))
        table.append(entry | ({} if p is None else {"p_class": p}))
    classes = {"vocab_size": bars.get("vocab_size"), "class": table}
    return classes if bars.get("words") is None else classes | {"words": _words(bars["words"], classes["vocab_size"])}


def _words(words: Any, vocab_size: Any) -> list[str]:
    """One word for every token; a token without a word reads as its number."""
    size = check_integer("vocab_size", vocab_size, least=1, most=int(LIMITS["tokens"]))
    if not isinstance(words, dict):
        raise InputError("words of bars", words, "an object: the word of each token by its number")
    for token in words:
        number = digits(token) if isinstance(token, str) else None
        if number is None or number >= size:
            raise InputError("the token of a word", token, f"an integer < {size}")
    return [words.get(str(token), str(token)) for token in range(size)]


def _normalised(field: str, weights: Any) -> list[float]:
    if not isinstance(weights, list) or not weights:
        raise InputError(field, weights, "a list of numbers")
    values = np.array([check_float(field, w, least=0, most=1e30) for w in weights])
    total = values.sum()
    if total <= 0:
        raise InputError(field, "all 0", "at least one number above 0")
    return [float(v) for v in (values / total if abs(total - 1) > 1e-12 else values)]
