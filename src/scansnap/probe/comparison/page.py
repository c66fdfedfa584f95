"""A page with two runs side by side: curves of all heads on one scale, the largest differences, and the events."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.html.page import render
from scansnap.probe.comparison.diff import EVENTS, MARGIN, describe, events_in_order, largest_differences
from scansnap.probe.report.curves import (
    FINE,
    QUANTITIES,
    LogStepAxis,
    bounds,
    heights,
    loss_values,
    path,
    short,
    values_of,
)
from scansnap.probe.report.page import figure, number
from scansnap.storage import check_writable, put

PACKAGE = "scansnap.probe.comparison"
SHOWN = ("entropy_rel", "max_logit", "distinctness", "sink", "previous", "induction", "moved_from_start")
NUMBERS = ("value_a", "value_b", "difference", "low", "high", "layer_b", "head_b")


def write_page(
    a: xr.Dataset, b: xr.Dataset, result: xr.Dataset, target: str | PathLike[str], names: tuple[str, str] = ("a", "b")
) -> Path:
    """Write the page of a comparison that `scansnap.probe.diff` returned."""
    where = check_writable("the report's path", Path(target))
    put(where, page(a, b, result, names))
    return where


def page(a: xr.Dataset, b: xr.Dataset, result: xr.Dataset, names: tuple[str, str] = ("a", "b")) -> str:
    """The whole document."""
    axis = LogStepAxis(np.union1d(a["step"].values, b["step"].values))
    largest = largest_differences(result, 40)
    rows = [result.sel(quantity=quantity).isel(layer=layer, head=head) for quantity, layer, head in largest]
    return render(
        PACKAGE, {"number": number, "figure": figure, "step": short}, {},
        names=names, facts=describe(result, names).splitlines()[:2], charts=list(_charts((a, b), axis)), fine=FINE,
        ticks=axis.ticks(), margin=MARGIN,
        rows=[{name: row[name].item() for name in row.coords if name in ("quantity", "path")}
              | {name: row[name].item() for name in NUMBERS}
              | {"layer": at[1], "head": at[2]}
              for row, at in zip(rows, largest, strict=True)],
        events=[(event, [dict(events_in_order(result[f"event_{side}"])).get(event) for side in "ab"],
                 [int(np.isfinite(result[f"event_{side}"].sel(event=event)).sum()) for side in "ab"])
                for event in EVENTS],
        steps=result.attrs["steps"],
    )  # fmt: skip


def _charts(runs: tuple[xr.Dataset, xr.Dataset], axis: LogStepAxis) -> list[dict[str, Any]]:
    """Of each quantity that both runs have, the curves of every head in each run on one scale."""
    titles = {quantity.name: quantity for quantity in QUANTITIES}
    charts = []
    for name in ("loss", *SHOWN):
        values = [loss_values(run) if name == "loss" else values_of(run, name) for run in runs]
        finite = [v[np.isfinite(v)] for v in values if v is not None]
        if len(finite) < 2 or not all(len(v) for v in finite):
            continue
        low, high = (0.0, 1.0) if name in titles and titles[name].unit_range else bounds(
            float(min(v.min() for v in finite)), float(max(v.max() for v in finite)), from_zero=name != "loss"
        )  # fmt: skip
        panels = []
        for run, table in zip(runs, values, strict=True):
            places = [axis.place(step) for step in run["step"].values]
            assert table is not None  # every run has finite values
            lines = table.reshape(len(places), -1).T
            panels.append([path(places, heights(line, low, high)) for line in lines])
        title, meaning = (titles[name].title, titles[name].meaning) if name in titles else (name.replace("_", " "), "")
        charts.append({"title": title, "meaning": meaning, "low": low, "high": high, "panels": panels})
    return charts
