"""Sequence classes as TOML, in and out.

Two forms, also accepted as the ``[classes]`` table of a run file::

    preset = "syn-medium"       # a preset and its settings
    n_queries = 3

    vocab_size = 4              # or every class spelt out
    words = ["a", "b", "c", "d"]  # optional: how the tokens read
    [[class]]
    query = 3
    next_token = 1
    p_class = 0.5               # optional, for all classes or none
    tokens = [0, 1]
    p_context = [0.5, 0.5]

Numbers are written with Python's shortest exact representation, so that a round trip changes no bit.
"""

from __future__ import annotations

import json
import os
import tomllib
from os import PathLike
from pathlib import Path
from typing import Any

from scansnap.checks import InputError, known_keys
from scansnap.classes import SequenceClasses
from scansnap.storage import put, writable

_CLASS_KEYS = ("query", "next_token", "p_class", "tokens", "p_context")
_REQUIRED = ("query", "next_token", "tokens", "p_context")


def load_table(path: str | PathLike[str]) -> dict[str, Any]:
    """A TOML file as a dictionary, its absence or bad syntax said in one sentence."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("the TOML file", os.fspath(path), "a file that exists") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the TOML file", os.fspath(path), f"a readable text file ({error})") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        raise InputError("the TOML file", os.fspath(path), f"valid TOML ({error})") from None


def read(path: str | PathLike[str]) -> SequenceClasses:
    """Classes from a classes file, or from the ``[classes]`` table of a run file."""
    table = load_table(path)
    if "classes" in table:
        table = table["classes"]
        if not isinstance(table, dict):
            raise InputError("classes", table, "a table: [classes]")
    return from_table(table, where=os.fspath(path))


def from_table(table: dict[str, Any], where: str) -> SequenceClasses:
    """Classes from a parsed TOML table; ``where`` names it in messages."""
    if "preset" in table:
        return SequenceClasses.preset(table["preset"], **{k: v for k, v in table.items() if k != "preset"})
    known_keys(where, table, ("preset", "vocab_size", "words", "class"))
    rows = table.get("class")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError("class", rows, "one [[class]] table for each class (or give a preset)")
    for n, row in enumerate(rows):
        known_keys(f"class {n}", row, _CLASS_KEYS)
        for key in _REQUIRED:
            if key not in row:
                raise InputError(f"{key} of class {n}", None, "given")
        for key, value in row.items():
            a_list, whole = key in ("tokens", "p_context"), key not in ("p_class", "p_context")
            _check_type(f"{key} of class {n}", value, a_list=a_list, whole=whole)
    with_p = ["p_class" in row for row in rows]
    if any(with_p) and not all(with_p):
        raise InputError(f"p_class of class {with_p.index(False)}", None, "given for all classes or for none")
    if "vocab_size" not in table:
        raise InputError("vocab_size", None, "given beside the [[class]] tables")
    return SequenceClasses.from_support(
        [row["tokens"] for row in rows],
        [row["p_context"] for row in rows],
        vocab_size=table["vocab_size"],
        query=[row["query"] for row in rows],
        next_token=[row["next_token"] for row in rows],
        p_class=[row["p_class"] for row in rows] if all(with_p) else None,
        words=table.get("words"),
    )


def _check_type(field: str, value: Any, *, a_list: bool, whole: bool) -> None:
    """NumPy would read ``true`` among numbers as 1, so types are checked before it sees them."""
    kinds = (int,) if whole else (int, float)
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) != a_list or not all(type(item) in kinds for item in items):
        kind = "whole number" if whole else "number"
        raise InputError(field, value, f"a list of {kind}s" if a_list else f"a {kind}")


def write(classes: SequenceClasses, path: str | PathLike[str]) -> None:
    """Write the explicit form, whole or not at all."""
    put(writable("the TOML file", Path(path)), dumps(classes))


def dumps(classes: SequenceClasses, *, words: bool = True) -> str:
    """The explicit form as text; without ``words`` only what decides numbers."""
    parts = [f"vocab_size = {classes.vocab_size}\n"]
    if words and classes.words is not None:
        parts.append(f"words = [{', '.join(map(_quoted, classes.words))}]\n")
    for n in range(classes.n_classes):
        tokens, probs = classes.support(n)
        parts.append(
            "\n[[class]]\n"
            f"query = {classes.query[n]}\n"
            f"next_token = {classes.next_token[n]}\n"
            f"p_class = {classes.p_class[n].item()!r}\n"
            f"tokens = {tokens.tolist()}\n"
            f"p_context = {probs.tolist()!r}\n"
        )
    return "".join(parts)


def _quoted(word: str) -> str:
    """A TOML basic string. JSON escapes as TOML does, but lets DEL stand."""
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")
