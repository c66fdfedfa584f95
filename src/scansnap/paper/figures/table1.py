"""Table 1: the notation, from the code's own list of symbols, each looked up where the list says it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.symbols import SYMBOLS
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "Notation"
CAPTION = (
    "The paper's quantities and the one name each has in code, files and on the command line; behind a colon what the "
    "code keeps in its place."
)

_COLUMNS = {"symbol": 0.0, "shape": 0.22, "name": 0.295, "meaning": 0.455}  # left edges, of the width


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Every row is checked against the code."""
    table = pd.DataFrame(
        {**asdict(symbol), "code_name": symbol.code_name, "found": symbol.exists(), "named": symbol.named}
        for symbol in SYMBOLS
    )
    return Computed(table, {"symbols": len(table)}, findings(table))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """By definition: the list is ours; it can only be wrong about our own code."""
    others = table[~table.named]
    kept = ", ".join(f"{row.symbol} as {row.code_name}" for row in others.itertuples())
    return (
        Finding("Every quantity is in the code where the list says", "Table 1", int(table.found.sum()), len(table),
                "symbols", kind="by definition"),
        Finding("Every quantity has its own name there", "Table 1", int(table.named.sum()), len(table), "symbols",
                f"Kept otherwise: {kept}." if kept else "", kind="by definition"),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """The table, one line a symbol."""
    rows = computed.table
    told = [name if name == code else f"{name}: {code}" for name, code in zip(rows.name, rows.code_name, strict=True)]
    rows = rows.assign(name=told)
    with styled(7.8, 0.235 * (len(rows) + 1.2)) as figure:
        ax = figure.subplots()
        ax.set(xlim=(0, 1), ylim=(len(rows), -1))
        ax.axis("off")
        for column, x in _COLUMNS.items():
            ax.text(x, -0.5, column, fontweight="bold", va="center")
            mono: dict[str, Any] = {"family": "monospace", "fontsize": 8} if column == "name" else {}
            for i, text in enumerate(rows[column]):
                ax.text(x, i + 0.5, text, va="center", **mono)
        ax.axhline(0, color="black", linewidth=0.8)
        for i in range(5, len(rows), 5):
            ax.axhline(i, color="0.85", linewidth=0.5)
    return figure
