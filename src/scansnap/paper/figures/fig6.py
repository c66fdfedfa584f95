"""Figure 6: sparsity of attention against the learning rates, on Syn-Medium of four sizes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.comparison import Comparison, compare, plus_minus
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.medium_runs import QUICK_SEEDS, SYN_MEDIUM, entropy_table, medium_runs, size_name
from scansnap.paper.shared.over_seeds import exceptions, mean_and_half, overall, paired, paired_steps
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress, report_share, share

TITLE = "Entropy of attention on distinct tokens against η_Y/η_Z"
CAPTION = (
    "Entropy of attention over a class's distinct tokens after 100 steps, mean over classes and seeds (thick bars: "
    "standard deviation of the mean; thin bars beside them: of the seeds). A larger η_Z makes attention sparser; a "
    "larger η_Y makes it denser past a ratio that the paper puts at 2 (dotted). Right: the ratio of least entropy "
    "against the number of classes, with 95% intervals over seeds; dashed: by the heavy-ball equation."
)
MARKERS = "osD^"
PAPER = 2.0  # the ratio of least entropy in the paper
NEAR = 0.1  # a ratio of least entropy this close to the paper's, relative, counts as the paper's
RATIOS = tuple(np.geomspace(0.4, 6.0, 14).round(4).tolist())  # on which the least entropy is searched
AROUND = 0.4  # in ln ratio: how far from the lowest point the parabola through a curve reaches
FREE = ["n_query", "n_next", "eta_z"]  # of a curve


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The paper's 640 runs, and for the right panel runs on a finer grid of ratios and the heavy-ball equation."""
    runs = medium_runs(effort, share(progress, 0, 2))
    least = effort.compute_once("least-entropy", lambda: least_entropy(effort, share(progress, 1, 2))).copy()
    table = runs.entropy.copy()
    columns = [*mean_and_half(least.drop(columns="equation")), least["equation"].to_numpy()]
    named = pd.DataFrame(dict(zip(("sgd", "half_width", "equation"), columns, strict=True)), least.index).reset_index()
    numbers = [{name: x if np.isfinite(x) else None for name, x in row.items()} for row in named.to_dict("records")]
    settings = runs.settings | {"least_entropy": numbers, "least_entropy_ratios": list(RATIOS)}
    return Computed(table, settings, (*findings(table), *least_findings(least)), runs.note, {"least": least})


def least_entropy(effort: Effort, progress: Progress | None = None) -> pd.DataFrame:
    """The ratio η_Y/η_Z of least entropy of each curve: a column for each seed, and ``equation``.

    The columns of seeds are jackknife pseudo-values, so that their mean and t interval are those of the minimum of the
    mean curve: the minimum of a single seed need not exist.
    """
    seeds = QUICK_SEEDS if effort.quick else SYN_MEDIUM.seeds
    experiment, rows = replace(SYN_MEDIUM, ratio=RATIOS), {}
    for i, n_queries in enumerate(experiment.n_queries):
        classes = SequenceClasses.syn_medium(n_queries)
        runs = experiment.runs(seeds)
        data = experiment.train(classes, runs, variables=["entropy"], device=effort.device)
        table = entropy_table(data, classes, runs)
        for eta_z, curves in table.groupby("eta_z"):
            curve = curves.pivot(index="ratio", columns="seed", values="entropy").to_numpy()
            whole = lowest(curve.mean(1))
            left_out = [lowest(np.delete(curve, seed, axis=1).mean(1)) for seed in range(seeds)]
            pseudo = [seeds * whole - (seeds - 1) * part for part in left_out] if seeds > 1 else [whole]
            skip = effort.quick and min(experiment.eta_z) < eta_z < max(experiment.eta_z)
            equation = math.nan if skip else equation_lowest(classes, float(eta_z))
            rows[n_queries, classes.n_classes, eta_z] = [*pseudo, equation]
        report_share(progress, (i + 1) / len(experiment.n_queries))
    index = pd.MultiIndex.from_tuples(rows, names=FREE)
    return pd.DataFrame(list(rows.values()), index, [*range(seeds), "equation"])


def lowest(curve: np.ndarray) -> float:
    """The ratio of least entropy, from a parabola in the logarithm of the ratio; NaN where a curve has none inside."""
    x = np.log(RATIOS)
    at = int(np.argmin(curve))
    if not np.isfinite(curve).all() or at in (0, len(x) - 1):
        return math.nan
    near = np.abs(x - x[at]) <= AROUND
    bend, slope, _ = np.polyfit(x[near] - x[at], curve[near], 2)
    return float(np.exp(x[at] - slope / (2 * bend))) if bend > 0 else math.nan


def equation_lowest(classes: SequenceClasses, eta_z: float) -> float:
    """The same of the heavy-ball equation: infinite sequences, expected gradients, zero start."""

    def entropy(x: float) -> float:
        data = flow(classes, math.exp(x) * eta_z, eta_z, [float(SYN_MEDIUM.steps)], momentum=SYN_MEDIUM.momentum,
                    rtol=1e-4, variables="entropy")  # fmt: skip
        return float(data["entropy"].mean())

    bounds = math.log(RATIOS[0]), math.log(RATIOS[-1])
    return math.exp(minimize_scalar(entropy, bounds=bounds, method="bounded", options={"xatol": 0.02}).x)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the paper reads off the figure, counted."""
    return past_threshold(table), before_threshold(table), larger_eta_z(table)


def least_findings(least: pd.DataFrame) -> tuple[Finding, ...]:
    """Whether the least entropy is at a ratio of 2, and what it depends on."""
    sgd, equation = least.drop(columns="equation"), least["equation"]
    off = compare(sgd / PAPER - 1, margin=NEAR)
    by_size = sgd.groupby("n_next")
    means = "; ".join(f"K = {n}: {part.to_numpy().mean(1).min():.2f} to {part.to_numpy().mean(1).max():.2f}"
                      for n, part in by_size)  # fmt: skip
    wide = sgd.droplevel("n_query").unstack("n_next").stack(level=0, future_stack=True)  # (η_Z, seed) × K
    growth = {f"K = {low} to {high}": (wide[high] - wide[low]).unstack() for low, high in pairwise(wide.columns)}
    line = equation.droplevel("n_query").unstack("n_next").diff(axis=1).stack().dropna()
    share = equation / sgd.mean(axis=1)
    return (
        Finding.compared("Entropy is least at η_Y/η_Z = 2", "Figure 6, Section 8", off, "level", "curves",
                         f"Counted to {NEAR:.0%}, tested over {off.seeds} seeds (jackknife), Holm over the "
                         f"curves; it is lower in {off.count('falls').agree}, higher in {off.count('rises').agree}. "
                         f"Ratios of least entropy: {means}."),
        Finding.compared("The ratio of least entropy grows with the number of classes", "ours",
                         compare(pd.concat(growth, names=["classes"])), "rises", "steps",
                         f"That of the heavy-ball equation, nothing fitted, grows in {int((line > 0).sum())} of "
                         f"{len(line)} steps and is {share.min():.2f} to {share.max():.2f} times that of SGD."),
    )  # fmt: skip


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
    change = compare(family)
    sizes = "; ".join(f"{n} {'query' if n == 1 else 'queries'}: {part.to_numpy().mean(1).min():+.3f} to "
                      f"{part.to_numpy().mean(1).max():+.3f}" for n, part in family.groupby("n_query"))  # fmt: skip
    detail = (
        f"It falls in {change.count('falls').agree} and rises in {change.count('rises').agree}. Changes in nats: "
        f"{sizes}; mean over the curves {overall(table, 'entropy', along=along, low=low, high=high)}. "
        f"{exceptions(family, change, 'does not rise')}"
    ).replace("-", "−")
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
    return plus_minus(float(comparison.mean[least]), float(comparison.half_width[least]))


def draw(computed: Computed) -> Figure:
    table = computed.table
    sizes = table[["n_query", "n_next"]].drop_duplicates().itertuples(index=False)
    with styled(9.0, 2.5) as figure:
        *panels, right = figure.subplots(1, table["n_query"].nunique() + 1, squeeze=False)[0]
        for ax, (n_query, n_next) in zip(panels, sizes, strict=True):
            panel = table[table["n_query"] == n_query]
            ax.axvline(PAPER, color="0.6", linestyle=":", linewidth=0.9)
            for i, eta_z in enumerate(sorted(table["eta_z"].unique())):
                # side by side, so that error bars do not hide each other
                by_ratio = panel[panel["eta_z"] == eta_z].groupby("ratio")["entropy"]
                mean, spread, of_mean = by_ratio.mean(), by_ratio.std(ddof=1), by_ratio.sem(ddof=1)
                x = mean.index + 0.12 * (i - 1.5)
                ax.errorbar(x, mean, of_mean, color=SERIES[i], marker=MARKERS[i], markersize=3, capsize=2,
                            elinewidth=1.4, linewidth=1.2, label=rf"$\eta_Z$ = {eta_z:g}")  # fmt: skip
                ax.errorbar(x + 0.05, mean, spread, color=SERIES[i], linestyle="none", elinewidth=0.8, alpha=0.8)
            ax.set_title(size_name(n_query, n_next), fontsize=8.5)
            ax.set(xlabel=r"$\eta_Y/\eta_Z$", xticks=[1, 2, 5, 10])
        panels[0].set_ylabel("entropy of $c_n$ (nats)")
        _draw_least(right, computed.extra["least"])
        lines, labels = panels[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper center", ncols=len(labels))
    return figure


def _draw_least(ax: Any, least: pd.DataFrame) -> None:
    """The ratio of least entropy against the number of classes."""
    ax.axhline(PAPER, color="0.6", linestyle=":", linewidth=0.9)
    for i, (_, part) in enumerate(least.groupby("eta_z")):
        part = part.droplevel(["n_query", "eta_z"]).sort_index()
        x = part.index * (1 + 0.04 * (i - 1.5))
        mean, half = mean_and_half(part.drop(columns="equation").to_numpy())
        ax.errorbar(x, mean, half, color=SERIES[i], marker=MARKERS[i], markersize=3, capsize=2, linestyle="none")
        ax.plot(part.index, part["equation"].to_numpy(), color=SERIES[i], linestyle="--", linewidth=1)
    sizes = sorted(least.index.unique("n_next"))
    ax.set(xscale="log", xlabel="classes $K$", ylabel=r"$\eta_Y/\eta_Z$", ylim=(0, None))
    ax.set_xticks(sizes, [str(n) for n in sizes], minor=False)
    ax.set_xticks([], minor=True)
    ax.set_title("ratio of least entropy", fontsize=8.5)
