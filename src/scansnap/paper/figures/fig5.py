"""Figure 5: attention of one Syn-Small class over training with Adam, at three learning rates."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from scansnap.measure.comparison import compare, interval
from scansnap.measure.word_attention import distance
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared import small_runs
from scansnap.paper.shared.small_runs import STEPS, at
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "Attention over training with Adam, Syn-Small"
CAPTION = (
    "With Adam the learning rate decides which distinct tokens (blue) attention ends on: many, rarer ones slightly "
    "ahead, at 0.1, those of middling frequency at 0.5, the most frequent at 1. Common tokens (orange) lose attention "
    "at every rate."
)
RATES = (0.1, 0.5, 1.0)  # η_Y = η_Z
CLASS = 0  # the paper's n = 1


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    table, settings, note = small_runs.trained(effort, progress, eta_z=RATES, ratio=[1.0], optimizer="adam",
                                               momentum=0.0)  # fmt: skip
    table = table[(table["seq_class"] == CLASS) & (table["kind"] != small_runs.ABSENT)].reset_index(drop=True)
    return Computed(table, {**settings, "seq_class": CLASS}, findings(table), note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the paper reads off the figure, counted."""
    return different_subsets(table), beyond_the_most_frequent(table), suppressed(table)


def final_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Final attention over the distinct tokens, renormalised: rows (η_Z, seed), columns rank by frequency."""
    rows = at(small_runs.patterns(table, "distinct"), STEPS)
    rows.index = rows.index.droplevel(["eta_y", "seq_class"])
    return rows.div(rows.sum(axis=1, skipna=False), axis=0)


def different_subsets(table: pd.DataFrame) -> Finding:
    """Between rates, attention must differ by more than it does between seeds of either rate.

    A case is a pair of rates. A seed's value is the distance between its two distributions less the largest distance
    of either from another seed's at the same rate; these values share the other seeds, which the test leaves out of
    account.
    """
    final = final_shares(table)
    rates, seeds = (final.index.unique(level) for level in ("eta_z", "seed"))
    shares = dict(zip(final.index, final.to_numpy(), strict=True))
    lead, between, within = [], [], [0.0]
    for a, b in combinations(rates, 2):
        row = []
        for seed in seeds:
            apart = float(distance(shares[a, seed], shares[b, seed]))
            noise = [
                float(distance(shares[rate, seed], shares[rate, s])) for rate in (a, b) for s in seeds if s != seed
            ]
            row.append(apart - np.max([0.0, *noise]))  # NaN if any of them is
            between.append(apart)
            within += noise
        lead.append(row)
    detail = (
        "Tested is by how much the distributions over the distinct tokens at the two rates are further apart (total "
        "variation) than one seed's are from any other's at either rate: "
        f"{np.min(between):.2f} to {np.max(between):.2f} between rates, at most {np.max(within):.2f} between seeds."
    )
    says = "At different learning rates Adam attends to different subsets of the distinct tokens"
    return Finding.compared(says, "Figure 5, Section 8", compare(lead), "rises", "pairs of rates", detail, headline=7)


def beyond_the_most_frequent(table: pd.DataFrame) -> Finding:
    shares = final_shares(table)
    most_frequent = shares.columns.max()
    lead = shares.drop(columns=most_frequent).max(axis=1, skipna=False) - shares[most_frequent]
    parts = []
    for rate, group in shares.dropna().groupby(level="eta_z"):
        rho = np.array([spearmanr(row, shares.columns).statistic for row in group.to_numpy()])
        ranks = group.idxmax(axis=1).to_numpy() + 1.0
        parts.append(
            f"{interval(rho)} at η = {rate:g}, where the winner's rank is "
            f"{interval(ranks, signed=False)} of {len(shares.columns)}"
        )
    detail = (
        "Tested is the lead of the best other token over the most frequent one. Rank correlation of final attention "
        f"with frequency over the distinct tokens: {'; '.join(parts)}."
    )
    says = "Unlike with SGD, the most attended distinct token is not the most frequent one"
    return Finding.compared(says, "implied by Figure 5", compare(lead.unstack("seed")), "rises", "rates", detail)


def suppressed(table: pd.DataFrame) -> Finding:
    common = small_runs.common_attention(table)
    start, end = at(common, 0), at(common, STEPS)
    seeds = end.groupby(level="eta_z")
    shares = ", ".join(f"{interval(group.to_numpy(), signed=False)} (η = {rate:g})" for rate, group in seeds)
    detail = f"Their share of attention goes from {start.mean():.2f} to {shares}."
    comparison = compare((end - start).unstack("seed"))
    return Finding.compared(
        "Common tokens lose attention with Adam too", "Figure 5", comparison, "falls", "rates", detail
    )


def draw(computed: Computed) -> Figure:
    with styled(7.0, 2.9) as figure:
        titles = [rf"$\eta_Y$ = $\eta_Z$ = {rate:g}" for rate in RATES]
        small_runs.heat_maps(figure, computed.table, [[((rate, rate), CLASS) for rate in RATES]], titles)
    return figure
