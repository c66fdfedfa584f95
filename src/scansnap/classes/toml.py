"""Read and write sequence classes as TOML.

Two forms, also accepted as the ``[classes]`` table of a run file::

    preset = "syn-medium"       # a preset and its settings
    n_queries = 3

    vocab_size = 4              # or all classes explicitly
    words = ["a", "b", "c", "d"]  # optional: how the tokens read
    shared_next = true          # optional: classes may have the same next token
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
import re
import tomllib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from scansnap.checks import InputError, check_keys

_ENDLESS = re.compile("[0-9_]{4301}")  # digits
_CLASS_KEYS = ("query", "next_token", "p_class", "tokens", "p_context")
_REQUIRED = ("query", "next_token", "tokens", "p_context")


def load_table(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a TOML file; InputError if it is missing or invalid."""
    try:
        return parse("the TOML file", os.fspath(path), Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("the TOML file", os.fspath(path), "a file that exists") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the TOML file", os.fspath(path), f"a readable text file ({error})") from None


def parse(field: str, value: str, text: str) -> dict[str, Any]:
    """Parse TOML; InputError with this field and value if it is invalid."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    except RecursionError:
        reason = "its arrays or tables are nested too deeply"
    except ValueError:  # Python converts no more digits, and does not say where they are
        line = next((i for i, line in enumerate(text.splitlines(), 1) if _ENDLESS.search(line)), 0)
        reason = f"an integer has too many digits (at line {line})"
    raise InputError(field, value, f"valid TOML ({reason})")


def classes_table(path: str | PathLike[str]) -> dict[str, Any]:
    """A classes file, or the ``[classes]`` table of a run file."""
    table = load_table(path)
    if "classes" not in table:
        return table
    if not isinstance(table["classes"], dict):
        raise InputError("classes", table["classes"], "a table: [classes]")
    return table["classes"]


def explicit(table: dict[str, Any], where: str) -> dict[str, Any]:
    """The arguments of ``SequenceClasses.from_support``, from a table with explicit classes."""
    check_keys(where, table, ("preset", "vocab_size", "words", "shared_next", "class"))
    rows = table.get("class")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError("class", rows, "one [[class]] table for each class (or give a preset)")
    for n, row in enumerate(rows):
        check_keys(f"class {n}", row, _CLASS_KEYS)
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
    return {
        "tokens": [row["tokens"] for row in rows],
        "probs": [row["p_context"] for row in rows],
        "vocab_size": table["vocab_size"],
        "query": [row["query"] for row in rows],
        "next_token": [row["next_token"] for row in rows],
        "p_class": [row["p_class"] for row in rows] if all(with_p) else None,
        "words": table.get("words"),
        "shared_next": table.get("shared_next", False),
    }


def _check_type(field: str, value: Any, *, a_list: bool, whole: bool) -> None:
    """NumPy would read ``true`` among numbers as 1, so types are checked before it sees them."""
    kinds = (int,) if whole else (int, float)
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) != a_list or not all(type(item) in kinds for item in items):
        kind = "an integer" if whole else "a number"
        raise InputError(field, value, f"a list of {kind.split()[1]}s" if a_list else kind)


def dumps(vocab_size: int, rows: Iterable[dict[str, Any]], words: Sequence[str] | None, shared_next: bool) -> str:
    """The explicit form as text. (tomli-w would put every number on a line of its own, and the core is lean.)"""
    parts = [f"vocab_size = {vocab_size}\n"]
    if words is not None:
        parts.append(f"words = [{', '.join(map(_quoted, words))}]\n")
    if shared_next:
        parts.append("shared_next = true\n")
    for row in rows:
        parts.append("\n[[class]]\n" + "".join(f"{key} = {row[key]!r}\n" for key in _CLASS_KEYS))
    return "".join(parts)


def _quoted(word: str) -> str:
    """A TOML basic string. JSON escapes as TOML does, but lets DEL stand."""
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")
