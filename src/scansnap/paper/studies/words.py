"""Scan and snap on words: what a YZ model's attention turns to while it learns text, and what the flow predicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.comparison import compare
from scansnap.measure.ranks import overlap, rank_correlation
from scansnap.measure.word_attention import MEASURES, snap_step
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.studies import word_panels
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.over_seeds import how, number
from scansnap.paper.studies.text_runs import LENGTH, seeds_said
from scansnap.paper.studies.word_panels import NAMES, TOP_K
from scansnap.paper.studies.word_runs import LEAST, MARKS, NEXT, WordRun, counted, word_run
from scansnap.paper.style import styled
from scansnap.progress import Progress

TITLE = "Scan and snap on words"
CAPTION = (
    "1-layer YZ models while they learn text; means over seeds with their 95% intervals, thin lines: seeds. (a) "
    "Attention to words by distinctness: tenths of the vocabulary by the entropy of the next word given the word, "
    "colours from common to distinct. (b) Rank correlation of what a word gets each time it occurs with statistics of "
    "the text, mean over queries. (c) How far attention has moved, its entropy, and the snapping time: when the mean "
    "speed since the start is greatest. (d) For the query in the middle of all, the words that the population flow of "
    "the text's sequence classes predicts, and those attended to after training (first seed)."
)

FLOW_QUERIES, FLOW_NEXT, FLOW_TOP = 20, 2, 1_000
# η_Y t up to which the flow is followed. On WikiText-2 the words it ranks then and at three times that agree to a rank
# correlation of 0.91 and in 89% of the top ten; the time it takes to integrate grows in proportion.
FLOW_LONGEST = 3_000.0
FREQUENT = 50  # words of a query's contexts for a second look
FROZEN = 0.5  # the last third of the run moves a query's attention at most this share of what the first third did
NO_RANKS = 0.1  # a rank correlation, or a difference of two, that is smaller counts as none: 1% of the variance


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Training runs of several seeds and one flow."""
    run = word_run(effort, progress)
    rates = run.chosen["YZ"].rates
    predicted, described = prediction(run)
    table = pd.concat([gains(run), curves(run), by_query(run), predicted], ignore_index=True)
    queries = len(run.text.words.queries)
    settings = {**run.setting.describe(), **rates, "queries": queries, "next_per_query": NEXT, "least_count": LEAST,
                "transformer_steps": run.transformer_steps, "snap_step": [_number(s) for s in snaps(table)],
                "rates": {name: one.describe() for name, one in run.chosen.items()}, **described}  # fmt: skip
    parts = (run.setting.note, f"η_Y = {rates['eta_y']:g}, η_Z = {rates['eta_z']:g}",
             seeds_said(run.setting.size.seeds), edges(run.chosen))  # fmt: skip
    return Computed(table, settings, findings(table), "; ".join(filter(None, parts)))


def gains(run: WordRun) -> pd.DataFrame:
    """Attention to the deciles relative to uniform attention over the validation text, and to the mean of all."""
    rows = []
    for model, records in (("YZ", run.yz), ("transformer", run.transformer)):
        for seed, record in zip(run.setting.seeds, records, strict=True):
            steps = record["steps"].tolist() if "steps" in record else [0, run.transformer_steps]
            for step, gain in zip(steps, record["gain"], strict=True):
                there = gain[:MARKS][np.isfinite(gain[:MARKS])]
                words = there.mean() if len(there) else math.nan
                rows += [{"kind": "gain", "model": model, "seed": seed, "step": step, "group": group, "value": value,
                          "among_words": value / words} for group, value in enumerate(gain)]  # fmt: skip
    return pd.DataFrame(rows)


def curves(run: WordRun) -> pd.DataFrame:
    """Correlations, distance moved (means over queries) and entropy at each step, for each seed."""
    rows = []
    for seed, record in zip(run.setting.seeds, run.yz, strict=True):
        for i, step in enumerate(record["steps"].tolist()):
            found = {("correlation", name): record["correlation"][i, j] for j, name in enumerate(MEASURES)}
            found |= {(kind, ""): record[kind][i] for kind in ("moved", "left", "entropy")}
            rows += [{"kind": kind, "measure": name, "seed": seed, "step": step, "value": value}
                     for (kind, name), value in found.items()]  # fmt: skip
    return pd.DataFrame(rows)


def by_query(run: WordRun) -> pd.DataFrame:
    """For each query the correlations at the end, and how far attention moved in the first and last third."""
    names = [run.setting.corpus.words[q] for q in run.text.words.queries]
    tables = []
    for seed, record in zip(run.setting.seeds, run.yz, strict=True):
        found = {("end", name): record["end"][j] for j, name in enumerate(MEASURES)}
        found |= {("third", name): record["thirds"][j] for j, name in enumerate(("first", "last"))}
        tables += [pd.DataFrame({"kind": kind, "measure": name, "seed": seed, "query": names, "value": values})
                   for (kind, name), values in found.items()]  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def prediction(run: WordRun) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Logits of the flow of the corpus's own classes against the trained ones of each seed, word by word.

    The flow counts samples of its classes; of a training step's positions a share p are such samples, so its time is
    p times the steps, at the same rates. The points of single words are those of the first seed.
    """
    corpus, words, rates = run.setting.corpus, run.text.words, run.chosen["YZ"].rates
    top = min(FLOW_TOP, corpus.vocab_size)
    frequent_first = [corpus.words[q] for q in words.queries[:FLOW_QUERIES]]
    pairs = counted(corpus, frequent_first, next_per_query=FLOW_NEXT, top=top, window=LENGTH - 1)
    share = float(pairs.pair_counts.sum() / len(corpus.train))
    t = min(run.setting.size.steps * share, FLOW_LONGEST / rates["eta_y"])
    z = flow(SequenceClasses(**pairs.table()), rates["eta_y"], rates["eta_z"], [t], rtol=1e-5, variables=["z"]).z
    at = np.searchsorted(words.queries, z["query"].values)
    seen = words.used[at, :top] & (z.values[0] != 0)
    predicted, counts = (np.where(seen, v, np.nan) for v in (z.values[0], words.counts[at, :top]))
    names = np.array([corpus.words[q] for q in z["query"].values])
    row, column = np.nonzero(seen)
    tables = []
    for seed, record in zip(run.setting.seeds, run.yz, strict=True):
        trained = np.where(seen, record["z"][at, :top], np.nan)
        shared, chance = overlap(predicted, trained, TOP_K)
        frequent, _ = overlap(counts, trained, TOP_K)
        tables.append(pd.DataFrame({
            "kind": "prediction", "seed": seed, "query": names, "value": rank_correlation(predicted, trained),
            "value_frequent": rank_correlation(*_frequent(counts, predicted, trained)), "overlap": shared,
            "chance": chance, "frequent": frequent,
        }))  # fmt: skip
        if seed == run.setting.seeds[0]:
            points = {"query": names[row], "word": np.array(corpus.words[:top])[column],
                      "predicted": predicted[row, column], "value": trained[row, column]}  # fmt: skip
            tables.append(pd.DataFrame({"kind": "word", "seed": seed, **points}))
    return pd.concat(tables, ignore_index=True), {"flow_t": t, "flow_share": share, "flow_queries": len(names),
                                                  "flow_next": FLOW_NEXT, "flow_top": top}  # fmt: skip


def _frequent(counts: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """The values at the most frequent words of each row; NaN elsewhere."""
    place = np.argsort(np.argsort(-np.nan_to_num(counts, nan=-1.0), axis=1, kind="stable"), axis=1)
    return [np.where(place < FREQUENT, v, np.nan) for v in values]


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Each judged over seeds; a seed's number is a mean over its queries."""
    of = dict(iter(table.groupby("kind")))
    over = how(of["gain"].seed.nunique())
    return (*attention_turns(of, over), *attention_settles(of, over), *flow_predicts(of, over))


def attention_turns(of: dict[str, pd.DataFrame], over: str) -> tuple[Finding, ...]:
    """To which words: by distinctness, and by the statistics of the text."""
    gain = of["gain"][of["gain"].group < MARKS]
    ends = gain.groupby("model", sort=False).step.transform("max")
    wide = [gain[gain.step == at].pivot(index=["model", "group"], columns="seed", values="among_words").sort_index()
            for at in (0, ends)]  # fmt: skip
    change = wide[1] - wide[0]  # (models × tenths, seeds)
    sign = np.where(change.index.get_level_values("group") < MARKS // 2, -1, 1)
    extremes = "; ".join(f"{model}: most common tenth {number(change.loc[(model, 0)])}, most distinct "
                         f"{number(change.loc[(model, MARKS - 1)])}" for model in gain.model.unique())  # fmt: skip

    end = of["end"].pivot(index=["query", "seed"], columns="measure", values="value").groupby("seed").mean()
    margins = np.stack([(end[name] - end["cooccurrence"]).to_numpy() for name in ("pmi", "idf")])  # (2, seeds)
    each = ", ".join(f"{NAMES[name]} {number(end[name])}" for name in ("pmi", "idf", "cooccurrence"))
    return (
        Finding.compared("Common words lose attention and distinct words gain", "Theorem 2",
                         compare(sign[:, None] * change.to_numpy()), "rises", "tenths of the vocabulary",
                         f"Change of attention relative to the mean of all tenths, {extremes} ({over})."),
        Finding.compared("Attention follows PMI and IDF rather than raw co-occurrence", "The authors' slides",
                         compare(margins, margin=NO_RANKS), "rises", "measures", "Rank correlation with what an "
                         f"occurrence gets, mean over queries: {each} ({over}; less than {NO_RANKS:g} apart is none)."),
    )  # fmt: skip


def attention_settles(of: dict[str, pd.DataFrame], over: str) -> tuple[Finding, ...]:
    """Sparse, and slower in the end."""
    entropy = of["entropy"].pivot(index="step", columns="seed", values="value").sort_index()
    fell = (entropy.iloc[-1] - entropy.iloc[0]).to_numpy()
    thirds = of["third"].pivot(index=["query", "seed"], columns="measure", values="value")
    slower = thirds["last"] <= FROZEN * thirds["first"]
    moved = thirds.groupby("seed").agg(lambda column: column.mean(skipna=False))
    slowed = (moved["last"] - FROZEN * moved["first"]).to_numpy()
    when = ", ".join(f"{step:.0f}" if math.isfinite(step) else "none" for step in snaps(of["moved"]))
    near = ", ".join(f"{settled(part):.0f}" for _, part in of["left"].groupby("seed"))
    return (
        Finding.compared("Attention becomes sparse", "Section 8", compare(fell), "falls", "texts",
                         f"Change of entropy from {entropy.iloc[0].mean():.2f} nats: {number(fell)} ({over})."),
        Finding.compared("Attention freezes although the rates stay", "Section 6", compare(slowed), "falls", "texts",
                         f"Counted where the last third moves attention less than {FROZEN:g} of what the first does; "
                         f"mean total variation over queries {number(moved['first'], signed=False)}, then "
                         f"{number(moved['last'], signed=False)} ({over}); so in {slower.mean():.0%} of queries and "
                         f"seeds. Snapping time, where the mean speed since the start is greatest: step {when}; within "
                         f"a tenth of the way of its end from step {near} of {entropy.index[-1]:.0f}."),
    )  # fmt: skip


def flow_predicts(of: dict[str, pd.DataFrame], over: str) -> tuple[Finding, ...]:
    """Which words a query attends to."""
    told = of["prediction"]
    mean = told.groupby("seed")[["value", "value_frequent", "overlap", "chance", "frequent"]].mean()
    more = (mean["overlap"] - mean["frequent"]).to_numpy()
    queries = told["query"].nunique()
    return (
        Finding.compared("The words the flow ranks first are those attended to", "Theorem 2, beyond the paper",
                         compare(mean["value"], margin=NO_RANKS), "rises", "texts",
                         f"Rank correlation, mean over {queries} queries: {number(mean['value'])}, and over the "
                         f"{FREQUENT} most frequent in their contexts {number(mean['value_frequent'])} ({over}; "
                         f"below {NO_RANKS:g} it is none)."),
        Finding.compared(f"Of the {TOP_K} words most attended to the flow knows more than frequency does",
                         "Beyond the paper", compare(more), "rises", "texts",
                         f"Predicted {mean['overlap'].mean():.0%}, among the {TOP_K} most frequent of its contexts "
                         f"{mean['frequent'].mean():.0%}, by chance {mean['chance'].mean():.0%}; difference "
                         f"{number(more)} ({over})."),
    )  # fmt: skip


def snaps(table: pd.DataFrame) -> list[float]:
    """The snapping time of each seed."""
    path = table[table.kind == "moved"].sort_values("step")
    return [snap_step(part.step.to_numpy(), part.value.to_numpy()) for _, part in path.groupby("seed")]


def settled(left: pd.DataFrame) -> float:
    """The first step from which the mean distance to the last attention stays below a tenth of the first such."""
    left = left.sort_values("step")
    far = np.flatnonzero(left.value.to_numpy() > 0.1 * left.value.iloc[0])
    return float(left.step.to_numpy()[min(far[-1] + 1, len(left) - 1)]) if len(far) else float(left.step.iloc[0])


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None


def draw(computed: Computed) -> Figure:
    """Four panels: deciles, correlations, movement, prediction."""
    table = computed.table
    with styled(8.2, 6.2) as figure:
        (a, b), (c, d) = figure.subplots(2, 2)
        word_panels.deciles(a, table)
        word_panels.correlations(b, table)
        word_panels.movement(c, table)
        word_panels.predicted(d, table)
        for ax in (a, b, c):
            ax.set(xscale="log", xlabel="training step", xlim=(0.8, 1.3 * table.step.max()))
    return figure
