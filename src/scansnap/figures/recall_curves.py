"""What Figures 11 and 12 share: recall of distinct tokens over a threshold, in a panel for each size and rate."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.figures import paired
from scansnap.figures.figure import Computed, Finding
from scansnap.figures.medium_runs import KEYS, size_name
from scansnap.figures.style import SERIES, styled

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
    agrees = paired.rises if sparser == "smaller" else paired.falls
    low, high, rate = min(table[along]), max(table[along]), paired.WORDS[along]
    fall = descents(table)
    ends = paired.change(fall, "descent", by=by, along=along, low=low, high=high)
    steps = paired.neighbours(fall, "descent", by=by, along=along)
    other = paired.change(descents(table, "recall_c"), "descent", by=by, along=along, low=low, high=high)
    flatter_there = agrees(ends)
    exceptions = f" Not beyond its error: {paired.where(~flatter_there)}." if not flatter_there.all() else ""
    says = f"Recall falls more slowly with the threshold at a {sparser} {rate}"
    detail = (
        f"Counted where the change of the fall from {rate} = {low:g} to {high:g}, paired by seed, exceeds "
        f"{paired.ERRORS:g} standard errors. Mean over the panels "
        f"{paired.overall(fall, 'descent', along=along, low=low, high=high)}. With c_n in place of the softmax "
        f"of z: {int(agrees(other).sum())} of {len(other)}.{exceptions}"
    )
    first = Finding(says, reference, int(flatter_there.sum()), len(ends), "panels", detail)
    against = int((paired.falls if sparser == "smaller" else paired.rises)(steps).sum())
    detail = f"A step is from one {rate} to the next in a panel; {against} go the other way beyond their error."
    says = f"Recall falls more slowly at each single step to a {sparser} {rate}"
    return first, Finding(says, reference, int(agrees(steps).sum()), len(steps), "steps", detail)


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
