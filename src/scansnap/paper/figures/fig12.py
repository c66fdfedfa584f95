"""Recall of distinct tokens over a threshold on attention, by η_Z."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.figures import recall_curves
from scansnap.paper.figures.medium_runs import THRESHOLDS, sweep
from scansnap.progress import Progress

TITLE = "Recall of distinct tokens against the threshold, by η_Z"
CAPTION = (
    "Share of a class's distinct tokens whose attention (softmax of z over all context tokens) exceeds a threshold "
    "around uniform attention (dotted); mean ± standard error over seeds. A larger "
    "η_Z gives a flatter curve: attention is sparser."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    made = sweep(effort, progress)
    table = made.recall.copy()
    return Computed(table, {**made.settings, "thresholds_over_uniform": list(THRESHOLDS)}, findings(table), made.note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the paper reads off the figure, counted."""
    return recall_curves.flatter(table, along="eta_z", sparser="larger", reference="Figure 12, Appendix G")


def draw(computed: Computed) -> Figure:
    return recall_curves.draw(computed, along="eta_z", across="ratio")
