"""What a YZ model's attention turns to while it learns text, and whether the population flow predicts it.

Asked is whether, on words, attention leaves what is common for what is distinct (Theorem 2), follows PMI and IDF rather
than counts (the authors' slides), becomes sparse and freezes (Sections 6 and 8), and attends to the words that the flow
of the text's own sequence classes ranks first.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort
from scansnap.paper.shared.text_runs import seeds_said
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.words import panels
from scansnap.paper.studies.words.findings import findings, snap
from scansnap.paper.studies.words.prediction import prediction
from scansnap.paper.studies.words.runs import word_runs
from scansnap.paper.studies.words.table import by_query, curves, gains
from scansnap.paper.studies.words.text import LEAST, NEXT
from scansnap.paper.style import styled
from scansnap.progress import Progress

TITLE = "Scan and snap on words"
CAPTION = (
    "1-layer YZ models while they learn text; means over seeds with their 95% intervals, thin lines: seeds. (a) "
    "Attention to words by distinctness: tenths of the vocabulary by the entropy of the next word given the word, "
    "colours from common to distinct. (b) Rank correlation of what a word gets each time it occurs with statistics of "
    "the text, mean over queries. (c) How far attention has moved, its entropy, and when it snapped, if it has: in t "
    "(mean speed since the start) and in ln t (speed over an e-fold). (d) For the query in the middle of all, the "
    "words that the population flow of the text's sequence classes predicts, and those attended to after training "
    "(first seed)."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Training runs of several seeds and one flow, in one table: ``kind`` says what a row is."""
    runs = word_runs(effort, progress)
    predicted, described = prediction(runs)
    table = pd.concat([gains(runs), curves(runs), by_query(runs), predicted], ignore_index=True)
    rates, when = runs.chosen["YZ"].rates, snap(table)
    settings = {**runs.setting.describe(), **rates, "queries": len(runs.text.words.queries), "next_per_query": NEXT,
                "least_count": LEAST, "transformer_steps": runs.transformer_steps,
                "snap": {clock: [one.time, one.low, one.high] if one.found else one.reason
                         for clock, one in (("t", when.t), ("ln t", when.ln))},
                "rates": {name: one.describe() for name, one in runs.chosen.items()}, **described}  # fmt: skip
    note = (runs.setting.note, f"η_Y = {rates['eta_y']:g}, η_Z = {rates['eta_z']:g}",
            seeds_said(runs.setting.size.seeds), edges(runs.chosen))  # fmt: skip
    return Computed(table, settings, findings(table), "; ".join(filter(None, note)))


def draw(computed: Computed) -> Figure:
    """Four panels: deciles, correlations, movement, prediction."""
    table = computed.table
    with styled(8.2, 6.2) as figure:
        (a, b), (c, d) = figure.subplots(2, 2)
        panels.deciles(a, table)
        panels.correlations(b, table)
        panels.movement(c, table)
        panels.predicted(d, table)
        for ax in (a, b, c):
            ax.set(xscale="log", xlabel="training step", xlim=(0.8, 1.3 * table.step.max()))
    return figure
