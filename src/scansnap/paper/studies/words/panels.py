"""The six panels of the figure on words, each drawn from its rows of the table."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from scansnap.measure.word_attention import MEASURES
from scansnap.paper.shared.over_seeds import band, mean_and_half
from scansnap.paper.studies.words.findings import snap
from scansnap.paper.studies.words.listening import TOP_K
from scansnap.paper.studies.words.text import MARKS, NAMES
from scansnap.plots.style import SERIES


def deciles(ax: Any, table: pd.DataFrame) -> None:
    part = table[(table.kind == "gain") & (table.model == "YZ") & (table.step > 0)]
    colours = matplotlib.colormaps["viridis_r"](np.linspace(0.05, 1, MARKS))
    labels = {0.0: "most common", float(MARKS - 1): "most distinct", float(MARKS): "<unk>, <eos>"}
    ends = []
    for group, curve in part.groupby("group"):
        wide = curve.pivot(index="step", columns="seed", values="value")
        mean, half = mean_and_half(wide)
        marks = group == MARKS
        colour = "0.5" if marks else colours[int(group)]
        ax.plot(wide.index, mean, color=colour, linestyle=":" if marks else "-", zorder=2 if marks else 3)
        if group in labels:  # an interval for each of eleven curves would hide them
            ax.fill_between(wide.index, mean - half, mean + half, color=colour, alpha=0.25, linewidth=0)
            if np.isfinite(mean[-1]):
                ends.append((mean[-1], labels[group], group))
    ax.axhline(1, color="0.8", linewidth=0.8, zorder=0)
    low, high = ax.get_ylim()
    spots = _apart([value for value, _, _ in sorted(ends)], 0.06 * (high - low))
    for spot, (_, label, group) in zip(spots, sorted(ends), strict=True):
        ax.annotate(label, (1.01, spot), xycoords=("axes fraction", "data"), fontsize=7.5, va="center",
                    color="0.4" if group == MARKS else colours[int(group)] if group else "0.25")  # fmt: skip
    ax.set(ylabel="attention / uniform attention", title="a  Attention by distinctness")


def correlations(ax: Any, table: pd.DataFrame) -> None:
    part = table[(table.kind == "correlation") & (table.step > 0)]
    for name, colour in zip(MEASURES, SERIES, strict=False):
        wide = part[part.measure == name].pivot(index="step", columns="seed", values="value")
        band(ax, wide.index, wide, colour=colour, label=NAMES[name])
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.legend(ncols=2)
    ax.margins(y=0.18)
    ax.set(ylabel="rank correlation with attention", title="b  What attention follows")


def movement(ax: Any, table: pd.DataFrame) -> None:
    moved, entropy = (table[(table.kind == kind) & (table.step > 0)].pivot(index="step", columns="seed", values="value")
                      for kind in ("moved", "entropy"))  # fmt: skip
    band(ax, moved.index, moved, colour=SERIES[0])
    ax.set_ylim(bottom=0)
    ax.set_ylabel("moved (total variation)", color=SERIES[0])
    other = ax.twinx()
    other.spines["right"].set_visible(True)
    band(other, entropy.index, entropy, colour=SERIES[1])
    other.set_ylim(0, 1.12 * entropy.to_numpy()[np.isfinite(entropy)].max(initial=0.1))
    other.set_ylabel("entropy (nats)", color=SERIES[1])
    when = snap(table)
    for one, style in ((when.t, ":"), (when.ln, "--")):
        if one.found:
            ax.axvline(one.time, color="0.4", linestyle=style, linewidth=1)
            ax.axvspan(one.low, one.high, color="0.4", alpha=0.12, linewidth=0)
    ax.text(0.03, 0.62, f"in t (··): {when.t.said()}\nin ln t (--): {when.ln.said()}", transform=ax.transAxes,
            fontsize=7.5, color="0.35", va="center")  # fmt: skip
    ax.set_title("c  How far attention has moved")


def foretold(ax: Any, table: pd.DataFrame) -> None:
    """Rank correlation of predicted and trained logits and, dashed, the slope between them."""
    _curves(ax, table, "value", 1.0)
    heard = table[table.kind == "heard"]
    for ratio, colour in zip(_ratios(heard), SERIES, strict=False):
        slopes = heard[heard.ratio == ratio].groupby(["step", "seed"])["slope"].mean().unstack()
        ax.plot(slopes.index, slopes.mean(axis=1), color=colour, linestyle="--", linewidth=1)
    ax.plot([], [], color="0.4", linestyle="--", linewidth=1, label="slope")
    ax.legend(loc="lower left")
    ax.set(ylim=(0, 1.1), ylabel="rank correlation; slope", title="d  Predicted and trained logits")


def shared(ax: Any, table: pd.DataFrame) -> None:
    """Of the words most attended to: how many are predicted, how many are the most frequent, and by chance."""
    _curves(ax, table, "overlap", TOP_K, labels=False)
    heard = table[table.kind == "heard"]
    frequent, chance = (heard.groupby("step")[name].mean() * TOP_K for name in ("frequent", "chance"))
    for name, curve, style in (("the most frequent", frequent, ":"), ("chance", chance, "-.")):
        ax.plot(curve.index, curve, color="0.35", linestyle=style, linewidth=1.2)
        ax.annotate(name, (curve.index[0], curve.iloc[0]), xytext=(2, 4), textcoords="offset points", fontsize=7.5,
                    color="0.35")  # fmt: skip
    ax.set(ylim=(0, 1.06 * TOP_K), ylabel=f"of the {TOP_K} most attended to", title="e  Words named in advance")


def _curves(ax: Any, table: pd.DataFrame, name: str, scale: float, labels: bool = True) -> None:
    """A prediction for each ratio, what a training shares with its twin, and the flow where its training ended."""
    heard, twin = (table[table.kind == kind] for kind in ("heard", "twin"))
    shown = [(heard[heard.ratio == ratio], colour, rf"$\eta_Y/\eta_Z$ = {ratio:g}")
             for ratio, colour in zip(_ratios(heard), SERIES, strict=False)]  # fmt: skip
    for part, colour, label in [(twin, "0.55", rf"training's twin, $\eta_Y/\eta_Z$ = {twin.ratio.max():g}"), *shown]:
        wide = part.groupby(["step", "seed"])[name].mean().unstack() * scale
        band(ax, wide.index, wide, colour=colour, label=label if labels else None, marker="o", markersize=3)
    mean = table[table.kind == "prediction"].groupby("seed")[name].mean().mean() * scale
    diamond: dict[str, Any] = {"label": "flow of a few classes"} if labels else {}
    ax.plot([table.step.max()], [mean], "D", color=SERIES[2], markersize=5, clip_on=False, **diamond)


def _ratios(heard: pd.DataFrame) -> list[float]:
    """The slower attention first."""
    return sorted(heard.ratio.unique(), reverse=True)


def predicted(ax: Any, table: pd.DataFrame) -> None:
    """Two columns of words, those of both joined: for the query in the middle, neither the best nor the worst."""
    table = table[table.kind.isin(["heard", "word"]) & (table.seed == table.seed.min())]
    ratio = table.ratio.min()
    table = table[table.ratio == ratio]
    told = table[(table.kind == "heard") & (table.step == table.step.max()) & table.overlap.notna()]
    told = told.sort_values(["overlap", "value"])
    spoken = told[told["query"].str.isalpha() & (told["query"].str.len() > 2)]
    told = spoken if len(spoken) else told
    ax.axis("off")
    if not len(told):
        ax.text(0.5, 0.5, "no query has enough words", ha="center", va="center", transform=ax.transAxes, color="0.4")
        return
    chosen = told.iloc[len(told) // 2]
    points = table[(table.kind == "word") & (table["query"] == chosen["query"])]
    columns = [points.sort_values(by, ascending=False).word.tolist()[:TOP_K] for by in ("predicted", "value")]
    both = [word for word in columns[0] if word in columns[1]]  # in order, so that a figure has the same bytes again
    for x, align, words in zip((0.36, 0.64), ("right", "left"), columns, strict=True):
        for i, word in enumerate(words):
            colour = SERIES[0] if word in both else "0.55"
            ax.text(x, -i, word, ha=align, va="center", fontsize=9, color=colour, parse_math=False)  # "$" is a word
    for word in both:
        ax.plot([0.385, 0.615], [-columns[0].index(word), -columns[1].index(word)], color=SERIES[0], alpha=0.6)
    ax.text(0.36, 0.95, "predicted", ha="right", fontsize=8, color="0.35", style="italic")
    ax.text(0.64, 0.95, "learned", ha="left", fontsize=8, color="0.35", style="italic")
    ax.text(
        0.5,
        -TOP_K - 0.2,
        rf"{len(both)} of {TOP_K} shared; $\eta_Y/\eta_Z$ = {ratio:g}",
        ha="center",
        fontsize=8,
        color="0.35",
    )
    ax.set(xlim=(0, 1), ylim=(-TOP_K - 0.5, 1.5))
    ax.set_title(f"f  Words “{chosen['query']}” attends to most", parse_math=False)


def _apart(values: list[float], gap: float) -> list[float]:
    """Ascending places for labels near ascending values, at least a gap apart."""
    spots = list(values)
    for i in range(1, len(spots)):
        spots[i] = max(spots[i], spots[i - 1] + gap)
    shift = (sum(spots) - sum(values)) / max(len(spots), 1)
    return [spot - shift for spot in spots]
