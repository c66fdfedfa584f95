"""Figure 6: sparsity of attention against the learning rates, on Syn-Medium of four sizes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.measure.comparison import Comparison, compare, said
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.medium_runs import medium_runs, size_name
from scansnap.paper.shared.over_seeds import exceptions, overall, paired, paired_steps
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress

TITLE = "Entropy of attention on distinct tokens against η_Y/η_Z"
CAPTION = (
    "Entropy of attention over a class's distinct tokens after 100 steps, mean over classes (mean ± standard deviation "
    "over seeds). A larger η_Z makes attention sparser; past η_Y/η_Z = 2 (dotted) a larger "
    "η_Y makes it denser again."
)
MARKERS = "osD^"
# The largest change of entropy that still counts as none. e^H is the number of tokens attention is spread over; less
# than 5% of it, half a token of a class's ten distinct ones, is less than one token more or less in the picture. The
# rule takes the scale of the entropy and nothing from the runs.
NO_CHANGE = math.log(1.05)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    runs = medium_runs(effort, progress)
    table = runs.entropy.copy()
    return Computed(table, runs.settings, findings(table), runs.note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the paper reads off the figure, counted."""
    return past_threshold(table), before_threshold(table), larger_eta_z(table)


def past_threshold(table: pd.DataFrame) -> Finding:
    along, low, high = "ratio", 2.0, 10.0
    family = paired(table, "entropy", by=["n_query", "eta_z"], along=along, low=low, high=high)
    change = compare(family)
    detail = (
        f"Tested by paired t tests over {change.seeds} seeds, Holm over the curves; the mean rises in "
        f"{int((change.mean > 0).sum())}. Mean over the curves "
        f"{overall(table, 'entropy', along=along, low=low, high=high)} nats, least {_least(change)}. "
        f"{exceptions(family, change, 'rises')}"
    )
    says = "With η_Z fixed, entropy rises with η_Y/η_Z from 2 to 10"
    return Finding.compared(says, "Figure 6, Section 8", change, "rises", "curves", detail.strip(), headline=2)


def before_threshold(table: pd.DataFrame) -> Finding:
    along, low, high = "ratio", 1.0, 2.0
    family = paired(table, "entropy", by=["n_query", "eta_z"], along=along, low=low, high=high)
    change = compare(family, margin=NO_CHANGE)
    detail = (
        f"Counted where a rise of {NO_CHANGE:.3f} nats (5% more tokens attended to) or more can be excluded; it falls "
        f"by more than that in {change.count('falls').agree} and rises by more in {change.count('rises').agree}. Mean "
        f"change over the curves {overall(table, 'entropy', along=along, low=low, high=high)} nats. "
        f"{exceptions(family, change, 'does not rise')}"
    )
    says = "The rise begins only near η_Y/η_Z = 2: from 1 to 2 entropy does not rise"
    return Finding.compared(says, "Section 8", change, "does not rise", "curves", detail.strip())


def larger_eta_z(table: pd.DataFrame) -> Finding:
    along = "eta_z"
    change = compare(paired_steps(table, "entropy", by=["n_query", "ratio"], along=along))
    low, high = min(table[along]), max(table[along])
    detail = (
        f"A step is from one η_Z to the next larger one at the same size and ratio; paired t tests over {change.seeds} "
        f"seeds, Holm over the steps. From η_Z = {low:g} to {high:g}: "
        f"{overall(table, 'entropy', along=along, low=low, high=high)} nats."
    )
    says = "At the same η_Y/η_Z, entropy falls as η_Z grows"
    return Finding.compared(says, "Figure 6, Section 8", change, "falls", "steps", detail)


def _least(comparison: Comparison) -> str:
    if comparison.failed.all():
        return "unknown"
    least = int(np.nanargmin(comparison.mean))
    return said(float(comparison.mean[least]), float(comparison.half_width[least]))


def draw(computed: Computed) -> Figure:
    table = computed.table
    sizes = table[["n_query", "n_next"]].drop_duplicates().itertuples(index=False)
    with styled(7.0, 2.35) as figure:
        panels = figure.subplots(1, table["n_query"].nunique(), sharex=True, squeeze=False)[0]
        for ax, (n_query, n_next) in zip(panels, sizes, strict=True):
            panel = table[table["n_query"] == n_query]
            ax.axvline(2, color="0.6", linestyle=":", linewidth=0.9)
            for i, eta_z in enumerate(sorted(table["eta_z"].unique())):
                # side by side, so that error bars do not hide each other
                by_ratio = panel[panel["eta_z"] == eta_z].groupby("ratio")["entropy"]
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
