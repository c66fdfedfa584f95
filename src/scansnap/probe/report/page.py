"""The report on a probe's data: the values that report.html shows and report.js draws."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError
from scansnap.html.page import render
from scansnap.probe.findings import add_findings, health
from scansnap.probe.findings.scan import LEAST
from scansnap.probe.report.curves import FINE, LogStepAxis, QuantityCurves, compute_curves, loss_of, path, values_of
from scansnap.probe.report.heads import WORDS, HeadSummary, counts, heads_of, make_example, most_scanning, step_words
from scansnap.probe.schema import VARIABLES
from scansnap.storage import WriteError, check_writable, put

PACKAGE = "scansnap.probe.report"
EXAMPLES = 5
LIMITS = {"max_logit": health.MAX_LOGIT, "growing": health.GROWING, "collapsed": health.COLLAPSED, "dead": health.DEAD,
          "idle": health.IDLE, "scans": LEAST}  # fmt: skip


def report(data: xr.Dataset, target: str | PathLike[str]) -> Path:
    """Write the report, whole or not at all."""
    if not isinstance(target, str | PathLike) or not fspath(target):
        raise InputError("the report's path", target, "the path of a file")
    where = check_writable("the report's path", Path(fspath(target)))
    text = page(data)
    try:
        put(where, text)
    except WriteError as error:
        raise InputError("the report's path", str(where), "a writable path", str(error.strerror)) from None
    return where


def page(data: xr.Dataset) -> str:
    """The whole document."""
    if "verdict" not in data and set(VARIABLES) <= set(data):  # from a file, which has no findings
        data = add_findings(data)
    axis, heads = LogStepAxis(data["step"].values if "step" in data.coords else np.array([])), heads_of(data)
    curves = compute_curves(data, axis)
    places = [axis.place(step) for step in axis.steps[axis.shown()]]
    rows = _rows(heads)
    shown, by_scan = most_scanning(heads, values_of(data, "moved_from_start"), EXAMPLES)
    filters = {"number": number, "figure": figure, "percent": percent, "step": step_words, "interval": interval}
    text = render(
        PACKAGE, filters, _payload(data, axis, places, curves, heads, shown),
        heads=heads, rows=rows, n_columns=max((head.head + 1 for head in heads), default=0),
        counts=counts(heads), snapped=[head for head in heads if _marked(axis, head) is not None],
        judged=any(head.words for head in heads), words=WORDS, loss=loss_of(data, axis),
        ticks=axis.ticks(), axis=axis, curves=curves, fine=FINE,
        lines=_lines(curves[0], places) if curves else {}, uniform=curves[0].uniform if curves else [],
        examples=[(head, make_example(data, head)) for head in shown], by_scan=by_scan,
        facts=_facts(data), kinds=_kinds(rows), limits=LIMITS, has_tokens="tokens" in data,
        steps=[int(step) for step in axis.steps],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair has no bytes


def _rows(heads: list[HeadSummary]) -> list[list[HeadSummary]]:
    """The heads of each layer."""
    layers: dict[int, list[HeadSummary]] = {}
    for head in heads:
        layers.setdefault(head.layer, []).append(head)
    return list(layers.values())


def _kinds(rows: list[list[HeadSummary]]) -> dict[str, int]:
    """The number of layers of each type."""
    return Counter("full" if row[0].kind == "self" else row[0].kind for row in rows)


def _lines(curves: QuantityCurves, places: list[int]) -> dict[tuple[int, int], str]:
    return {(i, j): path(places, line) for i, layer in enumerate(curves.lines) for j, line in enumerate(layer)}


def _payload(
    data: xr.Dataset,
    axis: LogStepAxis,
    places: list[int],
    curves: list[QuantityCurves],
    heads: list[HeadSummary],
    shown: list[HeadSummary],
) -> dict[str, Any]:
    """The data of the script."""
    return {
        "x": places, "t": axis.steps[axis.shown()].astype(int).tolist(), "ticks": axis.ticks(),
        "quantities": [{"title": curve.quantity.title, "meaning": curve.quantity.meaning, "low": curve.low,
                        "high": curve.high, "lines": curve.lines, "uniform": curve.uniform} for curve in curves],
        "heads": [{"layer": head.layer, "head": head.head, "path": head.path, "kind": head.kind, "call": head.call,
                   "words": head.words, "colour": head.colour, "snap": _marked(axis, head), "details": head.details,
                   "times": [head.time("t_snap"), head.time("t_snap_ln")],
                   **{name: _rounded(value) for name, value in head.numbers.items()}} for head in heads],
        "deciles": _deciles(data, heads),
        "chosen": next((i for i, head in enumerate(heads) if shown and head is shown[0]), 0),
    }  # fmt: skip


def _marked(axis: LogStepAxis, head: HeadSummary) -> int | None:
    """The position of a head's snap on the axis."""
    return axis.place(head.snap) if math.isfinite(head.snap) and len(axis.steps) > 1 else None


def _deciles(data: xr.Dataset, heads: list[HeadSummary]) -> list[list[list[float | None]]]:
    """Attention of each head by distinctness of the tokens: first, last, uniform."""
    if not {"mass_by_decile", "uniform_by_decile"} <= set(data) or not data.sizes.get("step"):
        return []
    mass = data["mass_by_decile"].transpose("step", "layer", "head", "decile").values
    even = data["uniform_by_decile"].transpose("step", "layer", "head", "decile").values
    if not np.isfinite(mass).any():
        return []
    return [[[_rounded(v) for v in rows[at, head.layer, head.head]] for rows, at in ((mass, 0), (mass, -1), (even, -1))]
            for head in heads]  # fmt: skip


def _facts(data: xr.Dataset) -> dict[str, str]:
    """Attributes as text."""
    facts: dict[str, str] = {}
    for name, value in data.attrs.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        if name == "versions" and isinstance(value, str):
            try:
                text = ", ".join(f"{key} {version}" for key, version in json.loads(value).items())
            except (ValueError, AttributeError):
                text = value
        facts[str(name)] = text
    return facts


def _rounded(value: float) -> float | None:
    return float(f"{float(value):.4g}") if math.isfinite(value) else None


def number(value: float, signed: bool = False) -> str:
    """Three digits; a dash for NaN."""
    if not math.isfinite(value):
        return "–"
    text = f"{abs(value):.3f}" if abs(value) < 10 else figure(abs(value))
    return ("−" if value < 0 else "+" if signed else "") + text


def figure(value: float) -> str:
    """At most three digits, for axes; a dash for what is not finite."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.3g}".replace("-", "−")


def interval(head: HeadSummary) -> str:
    """The interval of the scan index; empty without one."""
    low, high = head.numbers["scan_low"], head.numbers["scan_high"]
    return f"{number(low, True)} … {number(high, True)}" if math.isfinite(low) and math.isfinite(high) else ""


def percent(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:.0f} %" if value >= 0.095 or value == 0 else f"{100 * value:.1f} %"
