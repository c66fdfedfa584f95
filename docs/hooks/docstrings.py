"""How docstrings and declarations are read for the reference (an extension of Griffe).

Docstrings are written to be read in a terminal: parameters in columns, ``:class:`` and its kin, doctests. Here they
become Markdown. A field is described where it is declared, by the comment behind it or by its knob, and so it is here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import griffe

from scansnap.settings import settings_of

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")


def markdown(text: str, inside: str = "") -> str:
    """A docstring as Markdown; names that are not whole are looked for in ``inside``, a module or class."""
    blocks = [_block(block) for block in re.split(r"\n{2,}", text)]
    return ROLE.sub(lambda found: _link(found[1], inside), "\n\n".join(blocks))


def _link(name: str, inside: str) -> str:
    whole = name if name.startswith("scansnap") else f"{inside}.{name}"
    return f'<autoref identifier="{whole}" optional><code>{name.rpartition(".")[2]}</code></autoref>'


def _block(block: str) -> str:
    if block.startswith(">>>"):
        return f"```pycon\n{block}\n```"
    rows = columns(block.split("\n"))
    return block if rows is None else "\n".join(f"- `{name}`: {says}" for name, says in rows)


def columns(lines: list[str]) -> list[tuple[str, str]] | None:
    """Name and text of each row of a block in two columns; None where it is something else.

    A text goes on, indented to its column, in the lines below; a name too long for the first column has its own line.
    """
    begins = [match.end() for line in lines if (match := re.match(r"\S.*? {2,}(?=\S)|\s+", line))]
    if lines[0].startswith(" ") or not begins or len(set(begins)) > 1:
        return None
    (column,), rows = set(begins), list[tuple[str, str]]()
    for line in lines:
        if line.startswith(" "):
            name, says = rows.pop()
            rows.append((name, f"{says} {line.strip()}".strip()))
        elif line[column - 1 : column] == " ":
            rows.append((line[:column].strip(), line[column:]))
        elif re.fullmatch(r"[\w, ]+", line):
            rows.append((line, ""))
        else:
            return None
    return rows


def behind(line: str) -> str:
    """The comment behind a declaration that is about it, and not to a tool."""
    comment = line.partition("  # ")[2].strip()
    return "" if comment.startswith(("fmt:", "type:", "noqa")) else comment


class Docstrings(griffe.Extension):
    """Runs when the package is read, before Griffe makes the ``__init__`` of dataclasses."""

    def on_package(self, *, pkg: griffe.Module, **rest: Any) -> None:
        for one in _within(pkg):
            if one.docstring is not None:
                home = one if isinstance(one, griffe.Class | griffe.Module) else one.parent
                one.docstring.value = markdown(one.docstring.value, home.path if home else "")
            if isinstance(one, griffe.Class):
                _describe_fields(one)


def _within(room: griffe.Object) -> Iterator[griffe.Object]:
    yield room
    for member in list(room.members.values()):
        if isinstance(member, griffe.Object):
            yield from _within(member)


def _describe_fields(cls: griffe.Class) -> None:
    fields = {name: one for name, one in cls.members.items() if isinstance(one, griffe.Attribute)}
    knobs: dict[str, Any] = {}
    if any(str(one.value).startswith("setting(") for one in fields.values()):
        declared = settings_of(getattr(importlib.import_module(cls.module.path), cls.name))
        knobs = {"name" if name == "optimizer" else name: one for name, one in declared.items()}
    told: list[str] = []
    for name, one in fields.items():
        if name in knobs:
            says = f"{knobs[name].help} Allowed: {knobs[name].summary}."
            one.value = repr(knobs[name].default) if "; default: " in knobs[name].summary else None
        else:
            says = behind(one.lines[-1] if one.lines else "")
        if says and one.docstring is None and cls.docstring is not None and not name.startswith("_"):
            told.append(f"- `{name}`: {says}")
    if told:  # below the class, in one list: a heading for each would be a long page
        cls.docstring.value += "\n\n" + "\n".join(told)  # type: ignore[union-attr]
