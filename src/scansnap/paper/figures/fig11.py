"""Figure 11, and the curves of Figure 12: recall of distinct tokens over a threshold on attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

from scansnap.measure.comparison import Statement, compare
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.medium_runs import KEYS, THRESHOLDS, medium_runs, size_name
from scansnap.paper.shared.over_seeds import WORDS, exceptions, overall, paired, paired_steps
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress

CURVES = (
    "Share of a class's distinct tokens whose attention (softmax of z over all context tokens) exceeds a threshold "
    "around uniform attention (dotted); mean ± standard error over seeds."
)
SYMBOL = {"ratio": r"$\eta_Y/\eta_Z$", "eta_z": r"$\eta_Z$"}


@dataclass(frozen=True)
class RecallCurves:
    """Curves by one of the rates, in panels by the other."""

    along: str  # the rate that distinguishes the curves of a panel
    across: str
    sparser: Literal["smaller", "larger"]  # where along it attention should be sparser
    reference: str

    def compute(self, effort: Effort, progress: Progress | None = None) -> Computed:
        runs = medium_runs(effort, progress)
        table = runs.recall.copy()
        settings = {**runs.settings, "thresholds_over_uniform": list(THRESHOLDS)}
        return Computed(table, settings, self.findings(table), runs.note)

    def findings(self, table: pd.DataFrame) -> tuple[Finding, Finding]:
        """Is the descent smaller where attention should be sparser?

        First between the extreme rates, panel by panel, then between neighbouring ones.
        """
        along, by = self.along, ["n_query", self.across]
        statement: Statement = "rises" if self.sparser == "smaller" else "falls"
        low, high, rate = min(table[along]), max(table[along]), WORDS[along]
        fall = descents(table)
        family = paired(fall, "descent", by=by, along=along, low=low, high=high)
        ends = compare(family)
        by_attention = compare(paired(descents(table, "recall_c"), "descent", by=by, along=along, low=low, high=high))
        counted = by_attention.count(statement)
        detail = (
            f"The change of the fall from {rate} = {low:g} to {high:g}, paired t tests over {ends.seeds} seeds, Holm "
            f"over the panels. Mean over the panels {overall(fall, 'descent', along=along, low=low, high=high)}. With "
            f"c_n in place of the softmax of z: {counted.agree} of {counted.of}, {counted.undecided} undecided. "
            f"{exceptions(family, ends, statement)}"
        )
        says = f"Recall falls more slowly with the threshold at a {self.sparser} {rate}"
        first = Finding.compared(says, self.reference, ends, statement, "panels", detail.strip())
        steps = compare(paired_steps(fall, "descent", by=by, along=along))
        against = steps.count("falls" if statement == "rises" else "rises").agree
        detail = f"A step is from one {rate} to the next in a panel; {against} go the other way."
        says = f"Recall falls more slowly at each single step to a {self.sparser} {rate}"
        return first, Finding.compared(says, self.reference, steps, statement, "steps", detail)

    def draw(self, computed: Computed) -> Figure:
        """Rows are sizes, columns the values of ``across``, lines those of ``along``; a band is the standard error."""
        table, along, across = computed.table, self.along, self.across
        sizes = list(table[["n_query", "n_next"]].drop_duplicates().itertuples(index=False))
        columns = sorted(table[across].unique())
        with styled(7.0, 1.55 * len(sizes) + 0.7) as figure:
            panels = figure.subplots(len(sizes), len(columns), sharex="row", sharey="row", squeeze=False)
            for row, (n_query, n_next) in zip(panels, sizes, strict=True):
                for ax, value in zip(row, columns, strict=True):
                    panel = table[(table["n_query"] == n_query) & (table[across] == value)]
                    ax.axvline(1000 / (10 + 10 * n_next), color="0.6", linestyle=":", linewidth=0.9)
                    for i, line in enumerate(sorted(panel[along].unique())):
                        curve = panel[panel[along] == line].groupby("threshold")["recall"]
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


def descents(table: pd.DataFrame, value: str = "recall") -> pd.DataFrame:
    """How much recall falls from the lowest to the highest threshold, for each run."""
    ends = table.groupby("n_query")["threshold"].transform
    low, high = table[table["threshold"] == ends("min")], table[table["threshold"] == ends("max")]
    at_ends = low.merge(high, on=list(KEYS), suffixes=("_low", "_high"), validate="one_to_one")
    return at_ends[list(KEYS)].assign(descent=at_ends[f"{value}_low"] - at_ends[f"{value}_high"])


TITLE = "Recall of distinct tokens against the threshold, by η_Y/η_Z"
CAPTION = f"{CURVES} A smaller η_Y/η_Z gives a flatter curve: attention is sparser."

_curves = RecallCurves("ratio", across="eta_z", sparser="smaller", reference="Figure 11, Appendix G")
compute, findings, draw = _curves.compute, _curves.findings, _curves.draw
