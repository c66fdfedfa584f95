"""Where the linear response of the flow is right, where it says so itself, and where the paper's B_n is."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort
from scansnap.paper.studies.validity import panels
from scansnap.paper.studies.validity.findings import FEW, findings
from scansnap.paper.studies.validity.measured import MOMENTS
from scansnap.paper.studies.validity.settings import AXES, ETA_Y, FULL, GENERAL, OVERLAP, QUICK
from scansnap.paper.studies.validity.sweep import swept
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "Where the linear response holds"
CAPTION = (
    "Error of the linear response's z against the exact flow, largest over tokens relative to the largest |z|, at t₀, "
    "10 t₀ and 100 t₀. Blue below a tenth, red above (black line; thin: 1%); dashed: where its own estimate passes a "
    "tenth. Hatched: Theorem 4's B_n is within a tenth of the flow's until then, its C₀ taken from the earliest times. "
    "Dots: every assumption of the paper is met. Right: until when the response trusts itself."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Both maps; a row is a setting at a time."""
    table = by_moment(swept(effort, progress))
    return Computed(table, described(effort), findings(table), noted(effort))


def by_moment(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the maps, one for each of MOMENTS."""
    rows = rows[rows.part != GENERAL]
    kept = ["part", "ratio", "vocab_size", "n_classes", "overlap", "assumptions_met", "trusted_until"]
    names = ("error", "estimate", "paper")
    parts = [
        rows[kept].assign(moment=moment, **{name: rows[f"{name}_{moment}"] for name in names}) for moment in MOMENTS
    ]
    return pd.concat(parts, ignore_index=True)


def described(effort: Effort) -> dict[str, Any]:
    """The settings, for the manifest."""
    size = QUICK if effort.quick else FULL
    return {"eta_y": ETA_Y, "overlap": list(OVERLAP), "axes": {name: list(span) for name, span in AXES.items()},
            "points": {**size.across, "overlap": size.up}, "moments": list(MOMENTS), "trust": FEW}  # fmt: skip


def noted(effort: Effort) -> str:
    size = QUICK if effort.quick else FULL
    return f"quick: maps of {' and '.join(f'{n} × {size.up}' for n in size.across.values())}" if effort.quick else ""


def draw(computed: Computed) -> Figure:
    """A row for each map, a column for each time, and how long it is trusted."""
    table = computed.table
    with styled(11.0, 5.6) as figure:
        grid = figure.subplots(len(AXES), len(MOMENTS) + 1, sharey=True, sharex="row")
        for name, axes in zip(AXES, grid, strict=True):
            part = table[table.part == name]
            for ax, moment in zip(axes, MOMENTS, strict=False):
                error = panels.error(ax, part[part.moment == moment], name)
                ax.set_title("t₀" if moment == 1 else f"{moment} t₀")
            trusted = panels.trusted(axes[-1], part[part.moment == MOMENTS[0]], name)
            axes[0].set_ylabel("overlap at the start")
        panels.bars(figure, grid, error, trusted)
        panels.key(figure)
    return figure
