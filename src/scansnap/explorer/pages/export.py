"""A run to take away: its data as CSV, its film as JSON, and one HTML file that plays without a server."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.explorer import protocol
from scansnap.explorer.protocol import FILM_PLACEHOLDER

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


def film_html(template: str, data: dict[str, Any]) -> str:
    """The template with the film in it. A script element ends at ``</``, so that must not occur inside."""
    if FILM_PLACEHOLDER not in template:
        raise InputError("static/film.html", "without its placeholder", f"a page that contains {FILM_PLACEHOLDER}")
    return template.replace(FILM_PLACEHOLDER, protocol.dumps(data).replace("</", "<\\/"), 1)


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
