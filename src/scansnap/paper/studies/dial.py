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
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scansnap.dial.observables import OBSERVABLES, REFERENCE, UNFIT
from scansnap.dial.rungs import RUNGS, find, label
from scansnap.dial.study import FULL, QUICK, Dial, dial
from scansnap.dynamics.device import pick_device
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress
from scansnap.storage.versions import decisive_versions

TITLE = "From the YZ model to a transformer"
CAPTION = (
    f"What of the paper's picture holds on every rung, at an effective η_Y/η_Z of {REFERENCE:g}: in each cell SGD is "
    "on the left and AdamW on the right. Three ways: the rung alone, all rungs up to it, the full model without it. "
    "Below: how far logits of distinct tokens rise above those of common ones, with guides. Numbers: the tables."
)
NO_COMPARISON = "no comparison"  # no rates, diverged, or another clock than was asked for
COLOURS = {"holds": "#8ccfae", "fails": "#f0a58c", "undecided": "#f7e08c", NO_COMPARISON: "#cdbfe0",
           "not applicable": "#f2f2f2"}  # fmt: skip
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?", NO_COMPARISON: "!", "not applicable": "–"}
NOT_HELD = ("fails", *UNFIT, "not applicable")
STRIPS = {"alone": "alone", "cumulative": "all rungs up to it", "without": "full model without it"}
SHORT = {"distinct_gap": "distinct gain", "distinct_rise": "distinct rise", "common_fall": "common fall",
         "scan_order_tenth": "order, 10% loss", "scan_order_end": "order, end", "frozen": "frozen", "snap": "snap time",
         "ratio_effect": "ratio effect"}  # fmt: skip
CURVES = {"yz": "YZ", "norm:none": "no norm", "every-position": "every position", "residual": "residual",
          "separate": "W_Q W_K", "mlp:gelu": "MLP"}  # fmt: skip
FULL_MODEL, FULL_NAME = ("layers", "cumulative"), "full model"


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The whole table; finished cells of a stopped command are taken over, if they are of the same versions."""
    jobs = max(1, (os.cpu_count() or 1) if pick_device(effort.device).type == "cpu" else 8)
    out = None if effort.kept is None else effort.kept / "-".join(decisive_versions().values())
    found = dial(quick=effort.quick, out=out, device=effort.device, jobs=jobs, progress=progress)
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
    bounded = [one for one in OBSERVABLES if one.bounded]
    for one in bounded:
        rows = judged[judged.observable == one.name]
        if len(rows):
            agree, open_ = int((rows.verdict == "holds").sum()), int((rows.verdict == "undecided").sum())
            counted.append(Finding(f"{one.says} {_bounds(one.least, one.most)}", "the dial", agree, len(rows), "cells",
                                   undecided=open_))  # fmt: skip
    control = table[(table.way == "control") & table.observable.isin([one.name for one in bounded])]
    if len(control):
        nothing, open_ = (int(control.verdict.isin(words).sum()) for words in (NOT_HELD, ["undecided"]))
        counted.append(Finding("nothing holds where next tokens are shuffled", "control", nothing, len(control),
                               "cells", undecided=open_))  # fmt: skip
    return tuple(counted)


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"between {least:g} and {most:g}"
    return f"at least {least:g}" if least is not None else f"at most {most:g}"


def draw(computed: Computed) -> Figure:
    """Strips of verdicts, one for each way, over two panels of curves."""
    table, cells = computed.table, computed.extra["cells"]
    ways = [way for way in STRIPS if (table.way == way).any()] or ["control"]
    rows = _rows(table[table.way.isin(ways)])
    tall = 0.27 * len(rows) + 2.0
    with styled(max(9.0, 2.2 + 3.4 * len(ways)), tall + 3.3) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=(tall, 3.3))
        strips = parts[0].subplots(1, len(ways), sharey=True, squeeze=False)[0]
        for ax, way in zip(strips, ways, strict=True):
            _strip(ax, table[table.way == way], rows, STRIPS.get(way, way))
        _key(parts[0])
        shown = [cell for cell in cells if cell["way"] == "alone" or (cell["rung"], cell["way"]) == FULL_MODEL]
        for ax, optimizer in zip(parts[1].subplots(1, 2), ("sgd", "adamw"), strict=True):
            _gaps(ax, [cell for cell in shown if cell["optimizer"] == optimizer], NAMES[optimizer])
    return figure


NAMES = {"sgd": "SGD", "adamw": "AdamW", "momentum": "momentum", "adam": "Adam", "sign": "sign", "muon": "Muon"}


def _rows(table: pd.DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """Rungs with the optimisers of a row: SGD and AdamW share one, others have their own; one choice of a rung."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    pair = ("sgd", "adamw")
    first = {rung: i_first({"rung": rung}) for rung in table.rung.unique()}
    has_first = {rung.split(":")[0] for rung, is_first in first.items() if is_first}
    for rung, optimizer in zip(table.rung, table.optimizer, strict=True):
        extra = not first[rung] and rung.split(":")[0] in has_first  # other choices are in the tables
        full = rung == "optimizer" and optimizer in pair  # the full model, which has its row
        if not extra and not full:
            found[rung, pair if optimizer in pair else (optimizer,)] = None
    known = list(RUNGS)
    return sorted(found, key=lambda row: known.index(row[0].split(":")[0]))


def _strip(ax: Axes, table: pd.DataFrame, rows: list[tuple[str, tuple[str, ...]]], title: str) -> None:
    """Cells of two halves, coloured and signed by verdict."""
    verdicts = {(row.rung, row.optimizer, row.observable): row.verdict for row in table.itertuples()}
    for i, (rung, optimizers) in enumerate(rows):
        wide = 0.94 / len(optimizers)
        for j, name in enumerate(SHORT):
            for k, optimizer in enumerate(optimizers):
                word = verdicts.get((rung, optimizer, name))
                if word is None:
                    continue
                word = NO_COMPARISON if word in UNFIT else word
                left = j + 0.03 + k * wide
                ax.add_patch(Rectangle((left, i + 0.04), wide - 0.02, 0.92, color=COLOURS[word], lw=0))
                ax.text(left + wide / 2 - 0.01, i + 0.53, SIGNS[word], ha="center", va="center", fontsize=8.5,
                        color="0.15", family="DejaVu Sans")  # fmt: skip
    ax.set(xlim=(0, len(SHORT)), ylim=(len(rows), 0))
    ax.set_title(title, fontsize=11, pad=8)
    ax.xaxis.tick_top()
    ax.set_xticks(np.arange(len(SHORT)) + 0.3, SHORT.values(), rotation=50, ha="left", rotation_mode="anchor")
    names = [rung if len(optimizers) > 1 else NAMES[optimizers[0]] for rung, optimizers in rows]
    ax.set_yticks(np.arange(len(rows)) + 0.5, names)
    ax.tick_params(length=0, labelsize=9)
    ax.spines[:].set_visible(False)


def _key(figure: Any) -> None:
    """What colours and halves mean, in one line below the strips."""
    handles = [Rectangle((0, 0), 1, 1, color=colour, label=f"{SIGNS[word]} {word}") for word, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, handlelength=1.2,
                  title="left half SGD, right half AdamW", title_fontsize=9)  # fmt: skip


def _gaps(ax: Axes, cells: list[dict[str, Any]], title: str) -> None:
    """The mean logit gap at the reference ratio against ln t: a few curves by name, the others in grey."""
    curves = {}
    for cell in cells:
        at = int(np.abs(np.log(np.array(cell["ratios"]) / REFERENCE)).argmin())
        t, gap = np.array(cell["step"][1:]) / cell["t0"], np.array(cell["gap"][at][1:], dtype=float)
        if len(gap) and np.isfinite(gap).all() and i_first(cell):
            name = FULL_NAME if (cell["rung"], cell["way"]) == FULL_MODEL else CURVES.get(cell["rung"], "")
            curves[cell["rung"], cell["way"]] = (t, gap, name or (cell["rung"] if len(cells) <= len(SERIES) else ""))
    named = [curve for curve in curves.values() if curve[2]]
    top = min(1.15 * max([1.0, *(float(gap.max()) for _, gap, _ in named)]), 6.0)
    end = max([10.0, *(float(t[-1]) for t, _, _ in curves.values())])
    _guides(ax, end, top)
    ends: list[tuple[float, str, str]] = []
    order = [*CURVES.values(), FULL_NAME]
    for t, gap, name in curves.values():
        place = order.index(name) if name in order else len(ends)
        colour = SERIES[place % len(SERIES)] if name else "0.82"
        ax.plot(t, gap, color=colour, lw=1.8 if name else 0.8, zorder=3 if name else 1)
        if name:
            ends.append((min(float(gap[-1]), top), name, colour))
    low = min([0.0, *(float(gap.min()) for _, gap, _ in named)])
    ax.set(xscale="log", xlabel="t/t₀", ylabel="logit gap, distinct − common", xlim=(0.1, end), ylim=(1.05 * low, top))
    ax.set_title(title, fontsize=11)
    for (_, name, colour), y in zip(
        sorted(ends), _apart(sorted(y for y, _, _ in ends), 0.075 * (top - low)), strict=True
    ):
        ax.annotate(name, (1.02, y), xycoords=("axes fraction", "data"), color=colour, fontsize=9, va="center",
                    annotation_clip=False)  # fmt: skip


def _guides(ax: Axes, end: float, top: float) -> None:
    t = np.geomspace(3, end, 200)
    guides = (("ln ln t", np.log(np.log(t)), 0.93, "left"), ("2 ln ln t", 2 * np.log(np.log(t)), 0.78, "right"),
              ("ln t", np.log(t), 0.93, "left"))  # fmt: skip
    for name, curve, share, side in guides:  # labels at a share of the height, so that steep ones stay apart
        rise = curve - curve[0]
        ax.plot(t[rise <= top], rise[rise <= top], ":", color="0.45", lw=1, zorder=2)
        at = int(np.flatnonzero(rise <= share * top)[-1])
        ax.annotate(f" {name} ", (t[at], rise[at]), fontsize=8, color="0.3", zorder=4, va="bottom",
                    ha="right" if at == len(t) - 1 else side,
                    bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7})  # fmt: skip


def _apart(heights: list[float], least: float) -> list[float]:
    """Ascending heights moved as little as need be to be at least so far apart."""
    placed = list(heights)
    for _ in range(200):
        for i in range(len(placed) - 1):
            lack = least - (placed[i + 1] - placed[i])
            if lack > 1e-9:
                placed[i], placed[i + 1] = placed[i] - lack / 2, placed[i + 1] + lack / 2
    return placed


def i_first(cell: dict[str, Any]) -> bool:
    """Whether a cell is of the first choice of its rung: one row and one curve a rung are enough."""
    rung, _ = find(cell["rung"])
    return bool(label(rung, next(iter(rung.choices))) == cell["rung"])
