"""A run to take away: its data as CSV, its film as JSON, and one HTML file that plays without a server."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.explorer import protocol

FILM_DATA, FILM_PLAYER = "/*__FILM_DATA__*/", "/*__FILM_PLAYER__*/"
CSV_HEADER = "step,quantity,class,query,token,kind,value\n"


def unpack(head: dict[str, Any], payload: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n,) and frames (n, floats) of a worker's answer."""
    n, floats = head["n"], head["floats"]
    rows = np.frombuffer(payload, "<f4", n * floats, 4 * n).reshape(n, floats)
    return np.frombuffer(payload, "<u4", n), rows


def film(head: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """The answer of /film."""
    n = head["n"]
    return {
        "run": head["about"], "marks": head["about"]["marks"], "n": n, "floats": head["floats"],
        "steps": base64.b64encode(payload[: 4 * n]).decode(), "data": base64.b64encode(payload[4 * n :]).decode(),
    }  # fmt: skip


def film_html(static: Path, data: dict[str, Any]) -> str:
    """The page's template with the film and its player in it. What visitors wrote is all in the data, where no ``<``
    is left; of our own player a script ends at ``</``, which must not occur inside."""
    template = (static / "film.html").read_text(encoding="utf-8")
    for placeholder, content in (
        (FILM_PLAYER, bundle(static / "js" / "draw", "player")),
        (FILM_DATA, protocol.in_page(data)),
    ):
        if placeholder not in template:
            raise InputError("static/film.html", "without its placeholder", f"a page that contains {placeholder}")
        template = template.replace(placeholder, content.replace("</", "<\\/"), 1)
    return template


_IMPORT = re.compile(r'^import \{ (.+?) \} from "(\.\.?(?:/[a-z]+)*)/([a-z]+)\.js";$', re.M)
_EXPORT = re.compile(r"^export (?=(?:const|function|class) ([\w$]+))", re.M)


def bundle(folder: Path, entry: str) -> str:
    """A module of the page and all it imports as one script: each in a function of its own that returns its exports."""
    found: dict[str, str] = {}
    exports: dict[str, list[str]] = {}

    def add(name: str, folder: Path) -> None:
        source = (folder / f"{name}.js").read_text(encoding="utf-8")
        for names, way, other in _IMPORT.findall(source):
            if other not in found:
                add(other, folder / way)
            for missing in set(names.split(", ")) - set(exports[other]):
                raise InputError(
                    f"static/js/{folder.name}/{name}.js", missing, f"one of {', '.join(exports[other])} of {other}.js"
                )
        exports[name] = _EXPORT.findall(source)
        source = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = module_\3;", source))
        if left := re.search(r"^(?:import|export)\b.*$", source, re.M):
            raise InputError(
                f"static/js/{folder.name}/{name}.js", left[0], "an import of names, or one const, function or class"
            )
        found[name] = f"const module_{name} = (() => {{\n{source}return {{ {', '.join(exports[name])} }};\n}})();\n"

    add(entry, folder)
    return '"use strict";\n' + "".join(found.values())


def csv_lines(head: dict[str, Any], payload: bytes, frames: int) -> Iterator[str]:
    """Tidy rows, one frame at a time; of more than ``frames`` recorded steps, that many evenly in log step."""
    steps, rows = unpack(head, payload)
    which = np.arange(len(steps))
    if len(steps) > frames:
        places = np.concatenate([[0.0], np.geomspace(1, len(steps) - 1, frames - 1)]) if frames > 1 else np.array([0])
        which = np.unique(np.rint(places).astype(int))
    labels = [",".join(label) for label in _labels(head["about"])]
    yield CSV_HEADER
    for i in which:
        step = str(steps[i])
        yield "".join(f"{step},{label},{_number(value)}\n" for label, value in zip(labels, rows[i], strict=True))


def _number(value: np.float32) -> str:
    return (
        ""
        if np.isnan(value)
        else np.format_float_positional(value, trim="-")
        if 1e-4 <= abs(value) < 1e7
        else str(value)
    )


def _labels(about: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Quantity, class, query, token and kind of each number of a frame."""
    layout, classes = about["layout"], about["classes"]["classes"]
    kinds = [dict(zip(row["tokens"], row["kinds"], strict=True)) for row in classes]
    common = set(about["classes"]["common"])
    queries = [str(row["query"]) for row in classes]
    out: list[tuple[str, str, str, str, str]] = [("loss", "", "", "", "")]
    for quantity in ("entropy", "growth", "log_chi"):
        out += [(quantity, str(n), queries[n], "", "") for n in range(len(classes))]
    for n, tokens in enumerate(layout["tokens"]):
        out += [("attention", str(n), queries[n], str(token), kinds[n].get(token, "query")) for token in tokens]
    owned = {token for row in kinds for token in row}
    for query, tokens in zip(layout["queries"], layout["query_tokens"], strict=True):
        out += [("z", "", str(query), str(token), "common" if token in common else "distinct" if token in owned
                 else "query") for token in tokens]  # fmt: skip
    return out
