"""The dial: which of the paper's statements survive on the way to a transformer, one assumption at a time.

Every rung is trained at the same effective rates, alone on top of the YZ model, on top of all rungs before it, and left
out of the full model, with SGD and with AdamW; a control has next tokens that say nothing. Only named does
``reproduce`` make it: it takes hours.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from scansnap.dial.observables import OBSERVABLES, REFERENCE
from scansnap.dial.study import FULL, QUICK, Dial, dial
from scansnap.dynamics.device import pick_device
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.style import SERIES, styled
from scansnap.progress import Progress

TITLE = "From the YZ model to a transformer"
CAPTION = (
    f"Rungs against observables at an effective η_Y/η_Z of {REFERENCE:g}, means over seeds; green holds, red fails, "
    "yellow undecided, violet diverged, grey has no threshold. Three strips: the rung alone, all rungs up to it, the "
    "full model without it. Below: how far logits of distinct tokens rise above those of common ones, with guides."
)
COLOURS = {"holds": "#b7dfc0", "fails": "#f2b8a8", "undecided": "#f7e6a1", "measured": "#ececec",
           "no rates": "#c9c3e6", "diverged": "#d3bfe8", "clock not met": "#e3d5ee"}  # fmt: skip
STRIPS = ("alone", "cumulative", "without")


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The whole table; finished cells of a stopped command are taken over."""
    jobs = max(1, (os.cpu_count() or 1) if pick_device(effort.device).type == "cpu" else 4)
    found = dial(quick=effort.quick, out=effort.kept, device=effort.device, jobs=jobs, progress=progress)
    return computed(found)


def computed(found: Dial) -> Computed:
    """The table and its findings, from a dial."""
    setting = QUICK if found.quick else FULL
    settings = {"seeds": found.cells[0]["seeds"], "ratios": found.cells[0]["ratios"], "eta_y": setting.eta_y,
                "loss_step": setting.loss_step, "context": setting.context, "end": setting.end,
                "cells": len(found.cells)}  # fmt: skip
    clocks = ", ".join(sorted({cell["clock"] for cell in found.cells}))
    note = f"{settings['seeds']} seeds; {clocks} clock" + (
        f"; quick: T = {setting.context}, to {setting.end} t₀" if found.quick else ""
    )
    return Computed(found.table, settings, findings(found.table), note, {"cells": list(found.cells)})


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Each statement counted over the cells, and the control: nothing may hold in it."""
    counted = []
    judged = table[table.way != "control"]
    bounded = [one for one in OBSERVABLES if one.least is not None or one.most is not None]
    for one in bounded:
        rows = judged[judged.observable == one.name]
        if len(rows):
            agree, open_ = int((rows.verdict == "holds").sum()), int((rows.verdict == "undecided").sum())
            counted.append(Finding(f"{one.says} {_bounds(one.least, one.most)}", "the dial", agree, len(rows), "cells",
                                   undecided=open_))  # fmt: skip
    control = table[(table.way == "control") & table.observable.isin([one.name for one in bounded])]
    if len(control):
        nothing = int((control.verdict != "holds").sum())
        counted.append(
            Finding("nothing holds where next tokens are shuffled", "control", nothing, len(control), "cells")
        )
    return tuple(counted)


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"between {least:g} and {most:g}"
    return f"at least {least:g}" if least is not None else f"at most {most:g}"


def draw(computed: Computed) -> Figure:
    """Three strips of cells over two panels of curves."""
    table, cells = computed.table, computed.extra["cells"]
    rows = list(dict.fromkeys(zip(table.rung, table.optimizer, strict=True)))
    rows = sorted(rows, key=lambda row: list(dict.fromkeys(table.rung)).index(row[0]))
    tall = max(3.2, 0.19 * len(rows) + 1.2)
    with styled(15.0, tall + 3.4) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=(tall, 3.4))
        top, bottom = parts
        strips = top.subplots(1, 3, sharey=True)
        for ax, way in zip(strips, STRIPS, strict=True):
            _strip(ax, table[table.way == way], rows, way)
        for ax, optimizer in zip(bottom.subplots(1, 2, sharey=True), ("sgd", "adamw"), strict=True):
            _gaps(ax, [cell for cell in cells if cell["optimizer"] == optimizer and cell["way"] == "alone"], optimizer)
    return figure


def _strip(ax: Axes, table: pd.DataFrame, rows: list[tuple[str, str]], way: str) -> None:
    names = [one.name for one in OBSERVABLES]
    colours = np.ones((len(rows), len(names), 4))
    for row in table.itertuples():
        i, j = rows.index((row.rung, row.optimizer)), names.index(row.observable)
        colours[i, j] = to_rgba(COLOURS[row.verdict])
        known = np.isfinite(row.value) and abs(row.value) < 1e6  # what diverged is of no size
        value = f"{row.value:.2f}" if known and abs(row.value) < 100 else f"{row.value:.0f}" if known else "–"
        ax.text(j, i, value, ha="center", va="center", fontsize=5.5)
    ax.imshow(colours, aspect="auto", interpolation="nearest")
    ax.set_xticks(range(len(names)), [name.replace("_", " ") for name in names], rotation=60, ha="right", fontsize=6.5)
    ax.set_yticks(range(len(rows)), [f"{rung}  {optimizer}" for rung, optimizer in rows], fontsize=6.5)
    ax.set_title(way)
    ax.tick_params(length=0)


def _gaps(ax: Axes, cells: list[dict[str, Any]], optimizer: str) -> None:
    """The mean logit gap at the reference ratio against ln t."""
    highest = 1.0
    for i, cell in enumerate(cell for cell in cells if ":" not in cell["rung"] or i_first(cell)):
        at = int(np.abs(np.log(np.array(cell["ratios"]) / REFERENCE)).argmin())
        t, gap = np.array(cell["step"][1:]) / cell["t0"], np.array(cell["gap"][at][1:])
        style = ("-", "--", ":")[i // len(SERIES) % 3]
        ax.plot(t, gap, style, color=SERIES[i % len(SERIES)], lw=1, label=cell["rung"])
        highest = max(highest, float(np.nanmax(np.where(np.isfinite(gap), gap, 0))) if len(gap) else 1.0)
    t = np.geomspace(3, max(10.0, *(cell["step"][-1] / cell["t0"] for cell in cells)) if cells else 100.0, 50)
    top = min(1.1 * highest, 8)
    guides = {
        "ln ln t": (np.log(np.log(t)), 0.95),
        "2 ln ln t": (2 * np.log(np.log(t)), 0.95),
        "ln t": (np.log(t), 0.8),
    }
    for name, (guide, share) in guides.items():  # labels at a share of the height, so that steep ones stay apart
        ax.plot(t, guide - guide[0], color="0.6", lw=0.8)
        seen = int(np.flatnonzero(guide - guide[0] <= share * top)[-1])
        side = "right" if name == "2 ln ln t" else "left"
        ax.annotate(f" {name} ", (t[seen], guide[seen] - guide[0]), fontsize=6.5, color="0.4", ha=side)
    ax.set(xscale="log", xlabel="t/t₀", ylabel="logit gap", title=optimizer, ylim=(None, top))
    if cells:
        ax.legend(ncols=3, fontsize=5.5)


def i_first(cell: dict[str, Any]) -> bool:
    """Whether a cell is of the first choice of its rung: one curve a rung is enough."""
    from scansnap.dial.rungs import find, label

    rung, _ = find(cell["rung"])
    return bool(label(rung, next(iter(rung.choices))) == cell["rung"])
