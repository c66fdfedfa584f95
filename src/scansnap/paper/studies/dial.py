"""The ablation study: which of the paper's statements survive between the YZ model and a transformer.

Every component is trained at the same effective rates, alone in the YZ model, with all components before it, and left
out of the full model, with SGD and with AdamW; a control has shuffled next tokens. It takes hours, so that
``reproduce`` makes it only by its name.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scansnap.dial.components import COMPONENTS, find_component, label
from scansnap.dial.observables import OBSERVABLES, REFERENCE, UNFIT
from scansnap.dial.study import FULL, QUICK, AblationStudy, run_dial
from scansnap.dynamics.device import pick_device
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.plots.style import SERIES, separated, styled
from scansnap.progress import Progress
from scansnap.storage.versions import decisive_versions

TITLE = "From the YZ model to a transformer"
CAPTION = (
    f"Which statements of the paper hold with every component, at an effective η_Y/η_Z of {REFERENCE:g}: in each cell "
    "SGD is on the left and AdamW on the right. Three modes: the component alone, all components up to it, the full "
    "model without it. "
    "Below: how far logits of distinct tokens rise above those of common ones, with guides. Numbers: the tables."
)
NO_COMPARISON = "no comparison"  # no rates, diverged, or rates not matched
COLOURS = {"holds": "#8ccfae", "fails": "#f0a58c", "undecided": "#f7e08c", NO_COMPARISON: "#cdbfe0",
           "not applicable": "#f2f2f2"}  # fmt: skip
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?", NO_COMPARISON: "!", "not applicable": "–"}
NOT_HELD = ("fails", *UNFIT, "not applicable")
STRIPS = {"single": "single", "cumulative": "all components up to it", "leave_one_out": "full model without it"}
SHORT = {"distinct_gap": "distinct gain", "distinct_rise": "distinct rise", "common_fall": "common fall",
         "scan_order_tenth": "order, 10% loss", "scan_order_end": "order, end", "late_movement": "late movement",
         "t_snap": "snap time",
         "ratio_effect": "ratio effect"}  # fmt: skip
CURVES = {"yz": "YZ", "norm:none": "no norm", "every-position": "every position", "residual": "residual",
          "separate": "W_Q W_K", "mlp:gelu": "MLP"}  # fmt: skip
FULL_MODEL, FULL_NAME = ("layers", "cumulative"), "full model"


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The whole table; finished cells of a stopped command are taken over, if they are of the same versions."""
    jobs = max(1, (os.cpu_count() or 1) if pick_device(effort.device).type == "cpu" else 8)
    out = None if effort.cache_folder is None else effort.cache_folder / "-".join(decisive_versions().values())
    study = run_dial(quick=effort.quick, out=out, device=effort.device, jobs=jobs, progress=progress)
    return computed(study)


def computed(study: AblationStudy) -> Computed:
    """The table and its findings, from an ablation study."""
    preset = QUICK if study.quick else FULL
    settings = {"seeds": study.cells[0]["seeds"], "ratios": study.cells[0]["ratios"], "eta_y": preset.eta_y,
                "loss_step": preset.loss_step, "context": preset.context, "end": preset.end,
                "cells": len(study.cells)}  # fmt: skip
    matching = ", ".join(sorted({cell["matching"] for cell in study.cells}))
    quick = f"; quick: T = {preset.context}, to {preset.end} t₀" if study.quick else ""
    note = f"{settings['seeds']} seeds; {matching} matching{quick}"
    return Computed(study.table, settings, findings(study.table), note, {"cells": list(study.cells)})


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Each statement counted over the cells, and the control: nothing may hold in it."""
    counted = []
    judged = table[table["mode"] != "control"]
    bounded = [observable for observable in OBSERVABLES if observable.bounded]
    for observable in bounded:
        rows = judged[judged.observable == observable.name]
        if len(rows):
            agree, open_ = int((rows.verdict == "holds").sum()), int((rows.verdict == "undecided").sum())
            counted.append(Finding(f"{observable.title} {_bounds(observable.least, observable.most)}", "ablation study",
                                   agree, len(rows), "cells", undecided=open_))  # fmt: skip
    control = table[(table["mode"] == "control") & table.observable.isin([observable.name for observable in bounded])]
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
    """Strips of verdicts, one for each mode, above two panels of curves."""
    table, cells = computed.table, computed.extra["cells"]
    modes = [mode for mode in STRIPS if (table["mode"] == mode).any()] or ["control"]
    rows = _rows(table[table["mode"].isin(modes)])
    tall = 0.27 * len(rows) + 2.0
    with styled(max(9.0, 2.2 + 3.4 * len(modes)), tall + 3.3) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=(tall, 3.3))
        strips = parts[0].subplots(1, len(modes), sharey=True, squeeze=False)[0]
        for ax, mode in zip(strips, modes, strict=True):
            _strip(ax, table[table["mode"] == mode], rows, STRIPS.get(mode, mode))
        _key(parts[0])
        shown = [cell for cell in cells if cell["mode"] == "single" or (cell["component"], cell["mode"]) == FULL_MODEL]
        for ax, optimizer in zip(parts[1].subplots(1, 2), ("sgd", "adamw"), strict=True):
            _gaps(ax, [cell for cell in shown if cell["optimizer"] == optimizer], NAMES[optimizer])
    return figure


NAMES = {"sgd": "SGD", "adamw": "AdamW", "momentum": "momentum", "adam": "Adam", "sign": "sign", "muon": "Muon"}


def _rows(table: pd.DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """Rows: a component, its first choice only, and its optimisers; SGD and AdamW share a row."""
    rows: dict[tuple[str, tuple[str, ...]], None] = {}
    pair = ("sgd", "adamw")
    first = {component: is_first_choice({"component": component}) for component in table.component.unique()}
    has_first = {component.split(":")[0] for component, is_first in first.items() if is_first}
    for component, optimizer in zip(table.component, table.optimizer, strict=True):
        extra = not first[component] and component.split(":")[0] in has_first  # other choices are in the tables
        full = component == "optimizer" and optimizer in pair  # the full model, which has its row
        if not extra and not full:
            rows[component, pair if optimizer in pair else (optimizer,)] = None
    known = list(COMPONENTS)
    return sorted(rows, key=lambda row: known.index(row[0].split(":")[0]))


def _strip(ax: Axes, table: pd.DataFrame, rows: list[tuple[str, tuple[str, ...]]], title: str) -> None:
    """Cells of two halves, coloured and signed by verdict."""
    verdicts = {(row.component, row.optimizer, row.observable): row.verdict for row in table.itertuples()}
    for i, (component, optimizers) in enumerate(rows):
        wide = 0.94 / len(optimizers)
        for j, name in enumerate(SHORT):
            for k, optimizer in enumerate(optimizers):
                word = verdicts.get((component, optimizer, name))
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
    names = [component if len(optimizers) > 1 else NAMES[optimizers[0]] for component, optimizers in rows]
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
        if len(gap) and np.isfinite(gap).all() and is_first_choice(cell):
            name = FULL_NAME if (cell["component"], cell["mode"]) == FULL_MODEL else CURVES.get(cell["component"], "")
            name = name or (cell["component"] if len(cells) <= len(SERIES) else "")
            curves[cell["component"], cell["mode"]] = (t, gap, name)
    named = [curve for curve in curves.values() if curve[2]]
    top = min(1.15 * max([1.0, *(float(gap.max()) for _, gap, _ in named)]), 6.0)
    end = max([10.0, *(float(t[-1]) for t, _, _ in curves.values())])
    _guides(ax, end, top)
    ends: list[tuple[float, str, str]] = []
    order = [*CURVES.values(), FULL_NAME]
    for t, gap, name in curves.values():
        position = order.index(name) if name in order else len(ends)
        colour = SERIES[position % len(SERIES)] if name else "0.82"
        ax.plot(t, gap, color=colour, lw=1.8 if name else 0.8, zorder=3 if name else 1)
        if name:
            ends.append((min(float(gap[-1]), top), name, colour))
    low = min([0.0, *(float(gap.min()) for _, gap, _ in named)])
    ax.set(xscale="log", xlabel="t/t₀", ylabel="logit gap, distinct − common", xlim=(0.1, end), ylim=(1.05 * low, top))
    ax.set_title(title, fontsize=11)
    places = separated(sorted(y for y, _, _ in ends), 0.075 * (top - low))
    for (_, name, colour), y in zip(sorted(ends), places, strict=True):
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


def is_first_choice(cell: dict[str, Any]) -> bool:
    """Whether a cell has the first choice of its component."""
    component, _ = find_component(cell["component"])
    return bool(label(component, next(iter(component.choices))) == cell["component"])
