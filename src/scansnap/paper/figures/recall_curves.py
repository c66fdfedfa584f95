"""What Figures 11 and 12 share: recall of distinct tokens over a threshold, in a panel for each size and rate."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.measure.comparison import Statement, compare
from scansnap.paper.figure import Computed, Finding
from scansnap.paper.figures import paired
from scansnap.paper.figures.medium_runs import KEYS, size_name
from scansnap.paper.style import SERIES, styled

SYMBOL = {"ratio": r"$\eta_Y/\eta_Z$", "eta_z": r"$\eta_Z$"}


def descents(table: pd.DataFrame, value: str = "recall") -> pd.DataFrame:
    """How much recall falls from the lowest to the highest threshold, for each run."""
    ends = table.groupby("n_query")["threshold"].transform
    low, high = table[table["threshold"] == ends("min")], table[table["threshold"] == ends("max")]
    both = low.merge(high, on=list(KEYS), suffixes=("_low", "_high"), validate="one_to_one")
    return both[list(KEYS)].assign(descent=both[f"{value}_low"] - both[f"{value}_high"])


def flatter(table: pd.DataFrame, *, along: str, sparser: str, reference: str) -> tuple[Finding, Finding]:
    """Is the descent smaller where attention should be sparser: at the "smaller" or the "larger" ``along``?

    First between its extreme values, panel by panel, then between neighbouring ones.
    """
    by = ["n_query", "eta_z" if along == "ratio" else "ratio"]
    smaller = sparser == "smaller"
    statement: Statement = "rises" if smaller else "falls"
    low, high, rate = min(table[along]), max(table[along]), paired.WORDS[along]
    fall = descents(table)
    family = paired.differences(fall, "descent", by=by, along=along, low=low, high=high)
    ends = compare(family)
    steps = compare(paired.neighbours(fall, "descent", by=by, along=along))
    other = compare(
        paired.differences(descents(table, "recall_c"), "descent", by=by, along=along, low=low, high=high)
    ).count(statement)
    says = f"Recall falls more slowly with the threshold at a {sparser} {rate}"
    detail = (
        f"The change of the fall from {rate} = {low:g} to {high:g}, paired t tests over {ends.seeds} seeds, Holm over "
        f"the panels. Mean over the panels {paired.overall(fall, 'descent', along=along, low=low, high=high)}. With "
        f"c_n in place of the softmax of z: {other.agree} of {other.of}, {other.undecided} undecided. "
        f"{paired.exceptions(family, ends, statement)}"
    )
    first = Finding.compared(says, reference, ends, statement, "panels", detail.strip())
    against = steps.count("falls" if smaller else "rises").agree
    detail = f"A step is from one {rate} to the next in a panel; {against} go the other way."
    says = f"Recall falls more slowly at each single step to a {sparser} {rate}"
    return first, Finding.compared(says, reference, steps, statement, "steps", detail)


def draw(computed: Computed, *, along: str, across: str) -> Figure:
    """Rows are sizes, columns the values of ``across``, lines those of ``along``; the band is the standard error."""
    table = computed.table
    sizes = list(table[["n_query", "n_next"]].drop_duplicates().itertuples(index=False))
    columns = sorted(table[across].unique())
    with styled(7.0, 1.55 * len(sizes) + 0.7) as figure:
        panels = figure.subplots(len(sizes), len(columns), sharex="row", sharey="row", squeeze=False)
        for row, (n_query, n_next) in zip(panels, sizes, strict=True):
            for ax, value in zip(row, columns, strict=True):
                here = table[(table["n_query"] == n_query) & (table[across] == value)]
                ax.axvline(1000 / (10 + 10 * n_next), color="0.6", linestyle=":", linewidth=0.9)
                for i, line in enumerate(sorted(here[along].unique())):
                    curve = here[here[along] == line].groupby("threshold")["recall"]
                    mean, error = curve.mean(), curve.sem()
                    x = 1000 * mean.index
                    ax.plot(x, mean, color=SERIES[i], linewidth=1.3, label=f"{SYMBOL[along]} = {line:g}")
                    ax.fill_between(x, mean - error, mean + error, color=SERIES[i], alpha=0.2, linewidth=0)
                ax.tick_params(labelsize=7.5)
                ax.locator_params(axis="x", nbins=4)
            row[0].set_ylabel(f"{size_name(n_query, n_next)}\nrecall", fontsize=8.5)
        for ax, value in zip(panels[0], columns, strict=True):
            ax.set_title(f"{SYMBOL[across]} = {value:g}")
        for ax in panels[-1]:
            ax.set_xlabel("threshold · 1000")
        lines, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper center", ncols=len(labels))
    return figure
