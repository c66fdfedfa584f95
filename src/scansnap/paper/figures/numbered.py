"""The paper's 31 numbered statements, the appendix included, with their verdicts (``scansnap verify --paper``)."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.figure import Figure

from scansnap.claims.claim import KINDS, Kind
from scansnap.claims.paper_statements import SETTINGS
from scansnap.claims.statements import IN_PART, PaperRow, check_paper, count
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "All numbered statements"
CAPTION = (
    "The paper's 18 lemmas, 5 theorems, 2 corollaries, 4 remarks and 2 assumptions, the appendix included, each judged "
    "on built-in settings that meet every assumption of the paper. Where one fails, what is true instead."
)

_COLOURS = {"holds": "#009E73", IN_PART: "#E69F00", "fails": "#D55E00"}
_COLUMNS = {"statement": 0.0, "verdict": 0.125, "what it says": 0.225}  # left edges, of the width
_WIDE = 118  # characters of the last column


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """A row for each statement."""
    rows = check_paper(progress)
    table = pd.DataFrame(
        {"statement": row.statement.name, "says": row.statement.says, "kind": row.statement.kind,
         "verdict": row.verdict, "settings": ", ".join(row.statement.settings),
         "fails": ", ".join(dict.fromkeys(part.claim for part in row.fails)), "instead": row.statement.instead,
         "control": row.statement.control}
        for row in rows
    )  # fmt: skip
    settings = {"settings": {name: setting.words for name, setting in SETTINGS.items()}, "count": count(rows)}
    return Computed(table, settings, tuple(_finding(row) for row in rows))


def _finding(row: PaperRow) -> Finding:
    """Counted over the statement's claims, each judged on all of its settings; steps of proofs do not count."""
    status: dict[str, set[str]] = {}
    for part in row.parts:
        if part.kind != "proof step":
            status.setdefault(part.claim, set()).add(part.status)
    applies = [statuses for statuses in status.values() if statuses != {"not applicable"}]
    holds = sum("holds" in statuses and not statuses & {"fails", "undecided"} for statuses in applies)
    open_ = sum("undecided" in statuses and "fails" not in statuses for statuses in applies)
    failed = ", ".join(dict.fromkeys(part.claim for part in row.fails))
    own = row.statement
    detail = [f"Fails: {failed}."] if failed else []
    detail += [own.instead] if own.instead else []
    kind: Kind = next((kind for kind in KINDS if kind == own.kind), "by definition")
    return Finding(own.says.rstrip("."), own.name, holds, len(applies), "claims",
                   " ".join([*detail, f"It fails with: {own.control}."]), open_,
                   kind)  # fmt: skip


def draw(computed: Computed) -> Figure:
    """The table, one statement a row."""
    rows = computed.table
    texts = [textwrap.wrap(row.says + (f" Instead: {row.instead}" if row.fails and row.instead else ""), _WIDE)
             for row in rows.itertuples()]  # fmt: skip
    lines = [1 + len(text) for text in texts]
    with styled(8.6, 0.105 * (sum(lines) + 4)) as figure:
        ax = figure.subplots()
        ax.set(xlim=(0, 1), ylim=(sum(lines) + 1, -2))
        ax.axis("off")
        for column, x in _COLUMNS.items():
            ax.text(x, -1, column, fontweight="bold", va="center", fontsize=7.5)
        y = 0.5
        for row, text, height in zip(rows.itertuples(), texts, lines, strict=True):
            ax.text(_COLUMNS["statement"], y, row.statement, va="top", fontsize=7)
            ax.text(_COLUMNS["verdict"], y, row.verdict, va="top", fontsize=7, color=_COLOURS.get(row.verdict, "0.3"))
            ax.text(_COLUMNS["what it says"], y, "\n".join(text), va="top", fontsize=7, linespacing=1.1)
            y += height
            ax.axhline(y - 0.35, color="0.9", linewidth=0.4)
    return figure
