"""What a YZ model's attention turns to while it learns text, and whether that can be predicted.

Asked is whether, on words, attention leaves what is common for what is distinct (Theorem 2), follows PMI and IDF rather
than counts (the authors' slides), becomes sparse and freezes (Sections 6 and 8), and attends to the words that a model
which never attends predicts: Y is trained with uniform attention, and Z only listens.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort
from scansnap.paper.shared.text_runs import seeds_said
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.words import panels
from scansnap.paper.studies.words.findings import findings, snap
from scansnap.paper.studies.words.flow import prediction
from scansnap.paper.studies.words.listening import listening
from scansnap.paper.studies.words.runs import word_runs
from scansnap.paper.studies.words.table import by_query, curves, gains
from scansnap.paper.studies.words.text import LEAST, NEXT
from scansnap.plots.style import HEADLINE, styled
from scansnap.progress import Progress, share

TITLE = "Scan and snap on words"
CAPTION = (
    "1-layer YZ models while they learn text; means over seeds with their 95% intervals, thin lines: seeds. (a) "
    "Attention to words by distinctness: tenths of the vocabulary by the entropy of the next word given the word, "
    "colours from common to distinct. (b) Rank correlation of what a word gets each time it occurs with statistics of "
    "the text, mean over queries. (c) How far attention has moved, its entropy, and when it snapped, if it has: in t "
    "(mean speed since the start) and in ln t (speed over an e-fold). (d) Logits predicted by a model that never "
    "attends (Y trained with uniform attention, Z only listening) against those of training on the same batches: rank "
    "correlation over words seen at least 20 times before a query, and slope, means over queries; grey: what training "
    "shares with a twin, its η_Y larger by a 100,000th; diamond: the population flow of a few classes. (e) The same "
    "for the ten words most attended to: how many are named. (f) Both lists for the query in the middle of all (first "
    "seed, last step)."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Training runs of several seeds, their predictions and one flow, in one table: ``kind`` says what a row is."""
    runs = word_runs(effort, share(progress, 0, 2))
    predicted, described = prediction(runs)
    heard = listening(runs, effort, share(progress, 1, 2))
    table = pd.concat([gains(runs), curves(runs), by_query(runs), heard, predicted], ignore_index=True)
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
    """Six panels: deciles, correlations, movement; predicted logits, words named in advance, those of one query."""
    table = computed.table
    with styled(12.0, 6.2) as figure:
        (a, b, c), (d, e, f) = figure.subplots(2, 3)
        a.set_gid(HEADLINE)
        panels.deciles(a, table)
        panels.correlations(b, table)
        panels.movement(c, table)
        panels.foretold(d, table)
        panels.shared(e, table)
        panels.predicted(f, table)
        for ax, first in ((a, 0.8), (b, 0.8), (c, 0.8), (d, 8), (e, 8)):
            ax.set(xscale="log", xlabel="training step", xlim=(first, 1.3 * table.step.max()))
    return figure
