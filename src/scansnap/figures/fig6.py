"""Figure 6: sparsity of attention against the learning rates, on Syn-Medium of four sizes."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.figures import paired
from scansnap.figures.figure import Computed, Effort, Finding, Progress
from scansnap.figures.medium_runs import ETA_Z, size_name, sweep
from scansnap.figures.style import SERIES, styled

TITLE = "Entropy of attention on distinct tokens against η_Y/η_Z"
CAPTION = (
    "Entropy of attention over a class's distinct tokens after 100 steps, mean over classes (mean ± standard deviation "
    "over seeds). A larger η_Z makes attention sparser; past η_Y/η_Z = 2 (dotted) a larger "
    "η_Y makes it denser again."
)
MARKERS = "osD^"


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    made = sweep(effort, progress)
    table = made.entropy.copy()
    return Computed(table, made.settings, findings(table), made.note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the paper reads off the figure, counted."""
    return past_threshold(table), before_threshold(table), larger_eta_z(table)


def past_threshold(table: pd.DataFrame) -> Finding:
    by, along, low, high = ["n_query", "eta_z"], "ratio", 2.0, 10.0
    rise = paired.change(table, "entropy", by=by, along=along, low=low, high=high)
    rising = paired.rises(rise)
    least = rise.loc[rise["mean"].idxmin()]
    exceptions = f" Not beyond their error: {paired.where(~rising)}." if not rising.all() else ""
    detail = (
        f"Counted where the rise, paired by seed, exceeds {paired.ERRORS:g} standard errors; the mean rises in "
        f"{int((rise['mean'] > 0).sum())}. Mean over the curves "
        f"{paired.overall(table, 'entropy', along=along, low=low, high=high)} nats, least "
        f"{paired.said(*least)}.{exceptions}"
    )
    says = "With η_Z fixed, entropy rises with η_Y/η_Z from 2 to 10"
    return Finding(says, "Figure 6, Section 8", int(rising.sum()), len(rise), "curves", detail)


def before_threshold(table: pd.DataFrame) -> Finding:
    by, along, low, high = ["n_query", "eta_z"], "ratio", 1.0, 2.0
    rise = paired.change(table, "entropy", by=by, along=along, low=low, high=high)
    flat = rise["mean"] <= paired.ERRORS * rise["error"]  # false where it is not a number
    exceptions = f" It rises already at {paired.where(~flat)}." if not flat.all() else ""
    detail = (
        f"Counted where there is no rise beyond {paired.ERRORS:g} standard errors; in {int(paired.falls(rise).sum())} "
        f"entropy falls by more than that. Mean change over the curves "
        f"{paired.overall(table, 'entropy', along=along, low=low, high=high)} nats.{exceptions}"
    )
    says = "The rise begins only near η_Y/η_Z = 2: from 1 to 2 entropy does not rise"
    return Finding(says, "Section 8", int(flat.sum()), len(rise), "curves", detail)


def larger_eta_z(table: pd.DataFrame) -> Finding:
    by, along = ["n_query", "ratio"], "eta_z"
    steps = paired.neighbours(table, "entropy", by=by, along=along)
    low, high = min(table[along]), max(table[along])
    detail = (
        f"A step is from one η_Z to the next larger one at the same size and ratio, counted where the fall, paired by "
        f"seed, exceeds {paired.ERRORS:g} standard errors. From η_Z = {low:g} to {high:g}: "
        f"{paired.overall(table, 'entropy', along=along, low=low, high=high)} nats."
    )
    says = "At the same η_Y/η_Z, entropy falls as η_Z grows"
    return Finding(says, "Figure 6, Section 8", int(paired.falls(steps).sum()), len(steps), "steps", detail)


def draw(computed: Computed) -> Figure:
    table = computed.table
    sizes = table[["n_query", "n_next"]].drop_duplicates().itertuples(index=False)
    with styled(7.0, 2.35) as figure:
        panels = figure.subplots(1, table["n_query"].nunique(), sharex=True, squeeze=False)[0]
        for ax, (n_query, n_next) in zip(panels, sizes, strict=True):
            here = table[table["n_query"] == n_query]
            ax.axvline(2, color="0.6", linestyle=":", linewidth=0.9)
            for i, eta_z in enumerate(ETA_Z):
                # side by side, so that error bars do not hide each other
                by_ratio = here[here["eta_z"] == eta_z].groupby("ratio")["entropy"]
                mean, spread = by_ratio.mean(), by_ratio.std(ddof=1)
                x = mean.index + 0.12 * (i - 1.5)
                ax.errorbar(x, mean, spread, color=SERIES[i], marker=MARKERS[i], markersize=3, capsize=2,
                            elinewidth=0.9, linewidth=1.2, label=rf"$\eta_Z$ = {eta_z:g}")  # fmt: skip
            ax.set_title(size_name(n_query, n_next), fontsize=8.5)
            ax.set(xlabel=r"$\eta_Y/\eta_Z$", xticks=[1, 2, 5, 10])
        panels[0].set_ylabel("entropy of $c_n$ (nats)")
        lines, labels = panels[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper center", ncols=len(labels))
    return figure
