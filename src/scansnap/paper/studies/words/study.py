"""What a YZ model's attention turns to while it learns text, and whether that can be predicted.

Does attention on words leave what is common for what is distinct (Theorem 2)? Does it follow PMI and IDF rather than
counts (the authors' slides), become sparse and freeze (Sections 6 and 8)? Does it turn to the words that a model with
uniform attention predicts?

The table has one row for each number; ``kind`` says which:

gain                         attention to a tenth of the vocabulary (``group``) at a step
correlation                  with a statistic of the text (``measure``) at a step, mean over queries
moved, left, fold, entropy   at a step
end, third                   of one query: correlations after training, and how far its attention moved in a third
uniform, twin, word          predictions of uniform attention, see :mod:`~scansnap.paper.studies.words.predictions`
prediction                   of the population flow, see the same module
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.measure.word_attention import MEASURES
from scansnap.paper.figure import Computed, Effort
from scansnap.paper.shared.over_seeds import band, mean_and_half
from scansnap.paper.shared.text_runs import describe_seeds
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.words.findings import findings, snap
from scansnap.paper.studies.words.predictions import TOP_K, predict_by_flow, predict_by_uniform_attention
from scansnap.paper.studies.words.runs import LEAST, MARKS, NAMES, NEXT, WordRuns, word_runs
from scansnap.plots.style import HEADLINE, SERIES, separated, styled
from scansnap.progress import Progress, share

TITLE = "Scan and snap on words"
CAPTION = (
    "1-layer YZ models while they learn text; means over seeds with their 95% intervals, thin lines: seeds. (a) "
    "Attention to words by distinctness: tenths of the vocabulary by the entropy of the next word given the word, "
    "colours from common to distinct. (b) Rank correlation of what a word gets each time it occurs with statistics of "
    "the text, mean over queries. (c) How far attention has moved, its entropy, and when it snapped, if it has: in t "
    "(mean speed since the start) and in ln t (speed over an e-fold). (d) Logits predicted by a model with uniform "
    "attention (its Z is not used) against those of training on the same batches: rank correlation over words seen at "
    "least 20 times before a query, and slope, means over queries; grey: what training shares with a twin, its η_Y "
    "larger by a 100,000th; diamond: the population flow of a few classes. (e) The same for the ten words most "
    "attended to: how many are named. (f) Both lists for the query in the middle of all (first seed, last step)."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Training runs of several seeds, their predictions and one flow, in one table: ``kind`` is the kind of a row."""
    runs = word_runs(effort, share(progress, 0, 2))
    predicted, described = predict_by_flow(runs)
    uniform = predict_by_uniform_attention(runs, effort, share(progress, 1, 2))
    table = pd.concat([gains(runs), curves(runs), by_query(runs), uniform, predicted], ignore_index=True)
    rates, when = runs.chosen["YZ"].rates, snap(table)
    settings = {**runs.setting.describe(), **rates, "queries": len(runs.text.words.queries), "next_per_query": NEXT,
                "least_count": LEAST, "transformer_steps": runs.transformer_steps,
                "snap": {scale: [snap.time, snap.low, snap.high] if snap.has_snapped else snap.reason
                         for scale, snap in (("t", when.t), ("ln t", when.ln))},
                "rates": {name: choice.describe() for name, choice in runs.chosen.items()}, **described}  # fmt: skip
    note = (runs.setting.note, f"η_Y = {rates['eta_y']:g}, η_Z = {rates['eta_z']:g}",
            describe_seeds(runs.setting.size.seeds), edges(runs.chosen))  # fmt: skip
    return Computed(table, settings, findings(table), "; ".join(filter(None, note)))


def draw(computed: Computed) -> Figure:
    """Six panels: deciles, correlations, movement; predicted logits, words named in advance, those of one query."""
    table = computed.table
    with styled(12.0, 6.2) as figure:
        (a, b, c), (d, e, f) = figure.subplots(2, 3)
        a.set_gid(HEADLINE)
        draw_deciles(a, table)
        draw_correlations(b, table)
        draw_movement(c, table)
        draw_logits(d, table)
        draw_named_words(e, table)
        draw_example_query(f, table)
        for ax, first in ((a, 0.8), (b, 0.8), (c, 0.8), (d, 8), (e, 8)):
            ax.set(xscale="log", xlabel="training step", xlim=(first, 1.3 * table.step.max()))
    return figure


def gains(runs: WordRuns) -> pd.DataFrame:
    """Attention to the deciles relative to uniform attention over the validation text, and to the mean of all."""
    rows = []
    for model, records in (("YZ", runs.yz), ("transformer", runs.transformer)):
        for seed, record in zip(runs.setting.seeds, records, strict=True):
            steps = record["steps"].tolist() if "steps" in record else [0, runs.transformer_steps]
            for step, gain in zip(steps, record["gain"], strict=True):
                known = gain[:MARKS][np.isfinite(gain[:MARKS])]
                words = known.mean() if len(known) else math.nan
                rows += [{"kind": "gain", "model": model, "seed": seed, "step": step, "group": group, "value": value,
                          "among_words": value / words} for group, value in enumerate(gain)]  # fmt: skip
    return pd.DataFrame(rows)


def curves(runs: WordRuns) -> pd.DataFrame:
    """Correlations, distance moved (means over queries) and entropy at each step, for each seed."""
    rows = []
    for seed, record in zip(runs.setting.seeds, runs.yz, strict=True):
        for i, step in enumerate(record["steps"].tolist()):
            values = {("correlation", name): record["correlation"][i, j] for j, name in enumerate(MEASURES)}
            values |= {(kind, ""): record[kind][i] for kind in ("moved", "left", "fold", "entropy")}
            rows += [{"kind": kind, "measure": name, "seed": seed, "step": step, "value": value}
                     for (kind, name), value in values.items()]  # fmt: skip
    return pd.DataFrame(rows)


def by_query(runs: WordRuns) -> pd.DataFrame:
    """For each query the correlations at the end, and how far attention moved in the first and last third."""
    names = [runs.setting.corpus.words[q] for q in runs.text.words.queries]
    tables = []
    for seed, record in zip(runs.setting.seeds, runs.yz, strict=True):
        rows = {("end", name): record["end"][j] for j, name in enumerate(MEASURES)}
        rows |= {("third", name): record["thirds"][j] for j, name in enumerate(("first", "last"))}
        tables += [pd.DataFrame({"kind": kind, "measure": name, "seed": seed, "query": names, "value": values})
                   for (kind, name), values in rows.items()]  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def draw_deciles(ax: Any, table: pd.DataFrame) -> None:
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
    spots = separated([value for value, _, _ in sorted(ends)], 0.06 * (high - low))
    for spot, (_, label, group) in zip(spots, sorted(ends), strict=True):
        ax.annotate(label, (1.01, spot), xycoords=("axes fraction", "data"), fontsize=7.5, va="center",
                    color="0.4" if group == MARKS else colours[int(group)] if group else "0.25")  # fmt: skip
    ax.set(ylabel="attention / uniform attention", title="a  Attention by distinctness")


def draw_correlations(ax: Any, table: pd.DataFrame) -> None:
    part = table[(table.kind == "correlation") & (table.step > 0)]
    for name, colour in zip(MEASURES, SERIES, strict=False):
        wide = part[part.measure == name].pivot(index="step", columns="seed", values="value")
        band(ax, wide.index, wide, colour=colour, label=NAMES[name])
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.legend(loc="best", ncols=2)
    ax.margins(y=0.18)
    ax.set(ylabel="rank correlation with attention", title="b  What attention follows")


def draw_movement(ax: Any, table: pd.DataFrame) -> None:
    moved, entropy = (table[(table.kind == kind) & (table.step > 0)].pivot(index="step", columns="seed", values="value")
                      for kind in ("moved", "entropy"))  # fmt: skip
    band(ax, moved.index, moved, colour=SERIES[0])
    ax.set_ylim(bottom=0)
    ax.set_ylabel("moved (total variation)", color=SERIES[0])
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    band(right, entropy.index, entropy, colour=SERIES[1])
    right.set_ylim(0, 1.12 * entropy.to_numpy()[np.isfinite(entropy)].max(initial=0.1))
    right.set_ylabel("entropy (nats)", color=SERIES[1])
    when = snap(table)
    for estimate, style in ((when.t, ":"), (when.ln, "--")):
        if estimate.has_snapped:
            ax.axvline(estimate.time, color="0.4", linestyle=style, linewidth=1)
            ax.axvspan(estimate.low, estimate.high, color="0.4", alpha=0.12, linewidth=0)
    ax.text(0.03, 0.62, f"in t (··): {when.t.describe()}\nin ln t (--): {when.ln.describe()}", transform=ax.transAxes,
            fontsize=7.5, color="0.35", va="center")  # fmt: skip
    ax.set_title("c  How far attention has moved")


def draw_logits(ax: Any, table: pd.DataFrame) -> None:
    """Rank correlation of predicted and trained logits and, dashed, the slope between them."""
    _curves(ax, table, "value", 1.0)
    uniform = table[table.kind == "uniform"]
    for ratio, colour in zip(_ratios(uniform), SERIES, strict=False):
        slopes = uniform[uniform.ratio == ratio].groupby(["step", "seed"])["slope"].mean().unstack()
        ax.plot(slopes.index, slopes.mean(axis=1), color=colour, linestyle="--", linewidth=1)
    ax.plot([], [], color="0.4", linestyle="--", linewidth=1, label="slope")
    ax.legend(loc="lower left")
    ax.set(ylim=(0, 1.1), ylabel="rank correlation; slope", title="d  Predicted and trained logits")


def draw_named_words(ax: Any, table: pd.DataFrame) -> None:
    """Of the words most attended to: how many are predicted, how many are the most frequent, and by chance."""
    _curves(ax, table, "overlap", TOP_K, labels=False)
    uniform = table[table.kind == "uniform"]
    frequent, chance = (uniform.groupby("step")[name].mean() * TOP_K for name in ("frequent", "chance"))
    for name, curve, style in (("the most frequent", frequent, ":"), ("chance", chance, "-.")):
        ax.plot(curve.index, curve, color="0.35", linestyle=style, linewidth=1.2)
        ax.annotate(name, (curve.index[0], curve.iloc[0]), xytext=(2, 4), textcoords="offset points", fontsize=7.5,
                    color="0.35")  # fmt: skip
    ax.set(ylim=(0, 1.06 * TOP_K), ylabel=f"of the {TOP_K} most attended to", title="e  Words named in advance")


def _curves(ax: Any, table: pd.DataFrame, name: str, scale: float, labels: bool = True) -> None:
    """A prediction for each ratio, what a training shares with its twin, and the flow where its training ended."""
    uniform, twin = (table[table.kind == kind] for kind in ("uniform", "twin"))
    shown = [(uniform[uniform.ratio == ratio], colour, rf"$\eta_Y/\eta_Z$ = {ratio:g}")
             for ratio, colour in zip(_ratios(uniform), SERIES, strict=False)]  # fmt: skip
    for part, colour, label in [(twin, "0.55", rf"training's twin, $\eta_Y/\eta_Z$ = {twin.ratio.max():g}"), *shown]:
        wide = part.groupby(["step", "seed"])[name].mean().unstack() * scale
        band(ax, wide.index, wide, colour=colour, label=label if labels else None, marker="o", markersize=3)
    mean = table[table.kind == "prediction"].groupby("seed")[name].mean().mean() * scale
    diamond: dict[str, Any] = {"label": "flow of a few classes"} if labels else {}
    ax.plot([table.step.max()], [mean], "D", color=SERIES[2], markersize=5, clip_on=False, **diamond)


def _ratios(uniform: pd.DataFrame) -> list[float]:
    """The slower attention first."""
    return sorted(uniform.ratio.unique(), reverse=True)


def draw_example_query(ax: Any, table: pd.DataFrame) -> None:
    """Two columns of words, those of both joined: for the query in the middle, neither the best nor the worst."""
    table = table[table.kind.isin(["uniform", "word"]) & (table.seed == table.seed.min())]
    ratio = table.ratio.min()
    table = table[table.ratio == ratio]
    rows = table[(table.kind == "uniform") & (table.step == table.step.max()) & table.overlap.notna()]
    rows = rows.sort_values(["overlap", "value"])
    spoken = rows[rows["query"].str.isalpha() & (rows["query"].str.len() > 2)]
    rows = spoken if len(spoken) else rows
    ax.axis("off")
    if not len(rows):
        ax.text(0.5, 0.5, "no query has enough words", ha="center", va="center", transform=ax.transAxes, color="0.4")
        return
    chosen = rows.iloc[len(rows) // 2]
    points = table[(table.kind == "word") & (table["query"] == chosen["query"])]
    columns = [points.sort_values(by, ascending=False).word.tolist()[:TOP_K] for by in ("predicted", "value")]
    shared = [word for word in columns[0] if word in columns[1]]  # in order, so that a figure has the same bytes again
    for x, align, words in zip((0.36, 0.64), ("right", "left"), columns, strict=True):
        for i, word in enumerate(words):
            colour = SERIES[0] if word in shared else "0.55"
            ax.text(x, -i, word, ha=align, va="center", fontsize=9, color=colour, parse_math=False)  # "$" is a word
    for word in shared:
        ax.plot([0.385, 0.615], [-columns[0].index(word), -columns[1].index(word)], color=SERIES[0], alpha=0.6)
    ax.text(0.36, 0.95, "predicted", ha="right", fontsize=8, color="0.35", style="italic")
    ax.text(0.64, 0.95, "learned", ha="left", fontsize=8, color="0.35", style="italic")
    text = rf"{len(shared)} of {TOP_K} shared; $\eta_Y/\eta_Z$ = {ratio:g}"
    ax.text(0.5, -TOP_K - 0.2, text, ha="center", fontsize=8, color="0.35")
    ax.set(xlim=(0, 1), ylim=(-TOP_K - 0.5, 1.5))
    ax.set_title(f"f  Words “{chosen['query']}” attends to most", parse_math=False)
