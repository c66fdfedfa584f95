"""Scan and snap on words: what a YZ model's attention turns to while it learns text, and what the flow predicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.dynamics.flow import flow
from scansnap.figures import word_panels
from scansnap.figures.figure import Computed, Effort, Finding, Progress
from scansnap.figures.paired import ERRORS, said
from scansnap.figures.style import styled
from scansnap.figures.text_runs import LENGTH
from scansnap.figures.word_panels import NAMES, TOP_K
from scansnap.figures.word_runs import LEAST, MARKS, NEXT, WordRun, counted, word_run
from scansnap.measure.word_attention import (
    MEASURES,
    distance,
    mean_error,
    overlap,
    rank_correlation,
    snap_step,
)

TITLE = "Scan and snap on words"
CAPTION = (
    "A 1-layer YZ model while it learns text. (a) Attention to words by distinctness: tenths of the vocabulary by the "
    "entropy of the next word given the word, colours from common to distinct. (b) Rank correlation of what a word "
    "gets each time it occurs with statistics of the text, mean over queries. (c) How far attention has moved, its "
    "entropy, and the snapping time: when the mean speed since the start is greatest. (d) For the query in the middle "
    "of all, the words that the population flow of the text's sequence classes predicts, and those attended to after "
    "training."
)

FLOW_QUERIES, FLOW_NEXT, FLOW_TOP = 20, 2, 1_000
# η_Y t up to which the flow is followed. On WikiText-2 the words it ranks then and at three times that agree to a rank
# correlation of 0.91 and in 89% of the top ten; the time it takes to integrate grows in proportion.
FLOW_LONGEST = 3_000.0
FREQUENT = 50  # words of a query's contexts for a second look
FROZEN = 0.5  # the last third of the run moves a query's attention at most this share of what the first third did


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """One training run and one flow; one seed."""
    run = word_run(effort, progress)
    predicted, described = prediction(run)
    table = pd.concat([gains(run), curves(run), by_query(run), predicted], ignore_index=True)
    snap = table[(table.kind == "moved") & (table.step > 0)]
    settings = {**run.setting.describe(), "seeds": [0], "eta_y": run.eta_y, "eta_z": run.eta_z,
                "queries": len(run.words.queries), "next_per_query": NEXT, "least_count": LEAST,
                "snap_step": _number(snap_step(snap.step.to_numpy(), snap.value.to_numpy())), **described}  # fmt: skip
    note = f"{run.setting.note}; η_Y = {run.eta_y:g}, η_Z = {run.eta_z:g}; {len(run.words.queries)} queries, 1 seed"
    return Computed(table, settings, findings(table), note)


def gains(run: WordRun) -> pd.DataFrame:
    """Attention to the deciles relative to uniform attention over the validation text, mean and error over pieces."""
    rows = []
    for model, steps, values in (("YZ", run.steps, run.gain), ("transformer", (0, math.inf), run.transformer_gain)):
        for step, gain in zip(steps, values, strict=True):
            words = np.nanmean(gain[:, :MARKS], 1, keepdims=True)
            for group in range(MARKS + 1):
                mean, error = mean_error(gain[:, group])
                share = mean_error(gain[:, group] / words[:, 0])
                rows.append({"kind": "gain", "model": model, "step": step, "group": group, "value": mean,
                             "error": error, "among_words": share[0], "among_error": share[1]})  # fmt: skip
    return pd.DataFrame(rows)


def curves(run: WordRun) -> pd.DataFrame:
    """Correlations, distance moved (mean and error over queries) and entropy (over pieces) at each step."""
    c = run.words.attention(run.z.astype(np.float64))  # (S, Q, top)
    measures = {name: run.words.measure(name) for name in MEASURES}
    rows = []
    for i, step in enumerate(run.steps):
        z = np.where(run.words.used, run.z[i], np.nan)
        found = {("correlation", name): rank_correlation(z, values) for name, values in measures.items()}
        found |= {("moved", ""): distance(c[i], c[0]), ("left", ""): distance(c[i], c[-1])}
        found[("entropy", "")] = run.entropy[i]
        for (kind, name), values in found.items():
            mean, error = mean_error(values)
            rows.append({"kind": kind, "measure": name, "step": step, "value": mean, "error": error})
    return pd.DataFrame(rows)


def by_query(run: WordRun) -> pd.DataFrame:
    """For each query the correlations at the end, and how far attention moved in the first and last third."""
    c = run.words.attention(run.z.astype(np.float64))
    last = run.steps[-1]
    third, two = (int(np.searchsorted(run.steps, s)) for s in (last // 3, 2 * last // 3))
    z = np.where(run.words.used, run.z[-1], np.nan)
    found = {("end", name): rank_correlation(z, run.words.measure(name)) for name in MEASURES}
    found |= {("third", "first"): distance(c[third], c[0]), ("third", "last"): distance(c[-1], c[two])}
    names = [run.setting.corpus.words[q] for q in run.words.queries]
    return pd.concat([pd.DataFrame({"kind": kind, "measure": name, "query": names, "value": values})
                      for (kind, name), values in found.items()], ignore_index=True)  # fmt: skip


def prediction(run: WordRun) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Logits of the flow of the corpus's own classes against the trained ones, word by word.

    The flow counts samples of its classes; of a training step's positions a share p are such samples, so its time is
    p times the steps, at the same rates.
    """
    corpus, words = run.setting.corpus, run.words
    top = min(FLOW_TOP, corpus.vocab_size)
    frequent_first = [corpus.words[q] for q in words.queries[:FLOW_QUERIES]]
    pairs = counted(corpus, frequent_first, next_per_query=FLOW_NEXT, top=top, window=LENGTH - 1)
    share = float(pairs.pair_counts.sum() / len(corpus.train))
    t = min(run.steps[-1] * share, FLOW_LONGEST / run.eta_y)
    z = flow(pairs.classes(), run.eta_y, run.eta_z, [t], rtol=1e-5, variables=["z"]).z
    at = np.searchsorted(words.queries, z["query"].values)
    seen = words.used[at, :top] & (z.values[0] != 0)
    predicted, trained = (np.where(seen, v, np.nan) for v in (z.values[0], run.z[-1][at, :top]))
    counts = np.where(seen, words.counts[at, :top], np.nan)
    rho, rho_frequent = rank_correlation(predicted, trained), rank_correlation(*_frequent(counts, predicted, trained))
    shared, chance = overlap(predicted, trained, TOP_K)
    frequent, _ = overlap(counts, trained, TOP_K)
    names = [corpus.words[q] for q in z["query"].values]
    row, column = np.nonzero(seen)
    points = pd.DataFrame({"kind": "word", "query": np.array(names)[row], "word": np.array(corpus.words[:top])[column],
                           "predicted": predicted[row, column], "value": trained[row, column]})  # fmt: skip
    whole = pd.DataFrame({"kind": "prediction", "query": names, "value": rho, "value_frequent": rho_frequent,
                          "error": 1 / np.sqrt(np.maximum(seen.sum(1) - 1, 1)), "overlap": shared,
                          "chance": chance, "frequent": frequent})  # fmt: skip
    return pd.concat([whole, points], ignore_index=True), {"flow_t": t, "flow_share": share, "flow_queries": len(names),
                                                           "flow_next": FLOW_NEXT, "flow_top": top}  # fmt: skip


def _frequent(counts: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """The values at the most frequent words of each row; NaN elsewhere."""
    place = np.argsort(np.argsort(-np.nan_to_num(counts, nan=-1.0), axis=1, kind="stable"), axis=1)
    return [np.where(place < FREQUENT, v, np.nan) for v in values]


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Each counted over deciles, queries or pieces of text; beyond two standard errors."""
    of = dict(iter(table.groupby("kind")))
    gain = of["gain"][(of["gain"].group < MARKS)]
    ends = gain[gain.step == gain.groupby("model").step.transform("max")]
    sign = np.where(ends.group < MARKS // 2, -1, 1)
    as_said = sign * (ends.among_words - 1) > ERRORS * ends.among_error
    extremes = "; ".join(f"{model}: most common tenth {_said(part, 0)}, most distinct {_said(part, MARKS - 1)}"
                         for model, part in ends.groupby("model", sort=False))  # fmt: skip

    end = of["end"].pivot(index="query", columns="measure", values="value")
    follows, how = 0, []
    for name in ("pmi", "idf"):
        mean, error = mean_error((end[name] - end["cooccurrence"]).to_numpy())
        follows += int(mean > ERRORS * error)
        how.append(f"{NAMES[name]} {said(*mean_error(end[name].to_numpy()))}")
    how.append(f"raw co-occurrence {said(*mean_error(end['cooccurrence'].to_numpy()))}")

    entropy = of["entropy"].sort_values("step")
    first, last = entropy.iloc[0], entropy.iloc[-1]
    moved = of["third"].pivot(index="query", columns="measure", values="value")
    slower = moved["last"] <= FROZEN * moved["first"]
    path = of["moved"].sort_values("step")
    snap = snap_step(path.step.to_numpy(), path.value.to_numpy())
    when = (f"Snapping time: the mean speed since the start is greatest at step {snap:.0f}" if math.isfinite(snap)
            else "No snapping time: the mean speed since the start has no maximum inside the run")  # fmt: skip
    near = f"within a tenth of the way of its end from step {settled(of['left']):.0f} of {path.step.iloc[-1]:.0f}"

    told = of["prediction"]
    right = told.value > ERRORS * told.error
    top = told.dropna(subset="overlap")
    better = (top.overlap > top.frequent).sum()
    more = mean_error((top.overlap - top.frequent).to_numpy())
    return (
        Finding("Common words lose attention and distinct words gain", "Theorem 2", int(as_said.sum()), len(as_said),
                "tenths of the vocabulary", f"Attention relative to the mean of all tenths, {extremes}."),
        Finding("Attention follows PMI and IDF rather than raw co-occurrence", "The authors' slides", follows, 2,
                "measures", f"Rank correlation with what an occurrence gets, mean over queries: {', '.join(how)}."),
        Finding("Attention becomes sparse", "Section 8", int(last.value < first.value - ERRORS * last.error), 1,
                "models", f"Entropy {first.value:.2f} → {last.value:.2f} ± {last.error:.2f} nats."),
        Finding("Attention freezes although the rates stay", "Section 6", int(slower.sum()), len(slower), "queries",
                f"Counted where the last third moves attention at most {FROZEN:g} of what the first does; mean total "
                f"variation {said(*mean_error(moved['first'].to_numpy()), signed=False)}, then "
                f"{said(*mean_error(moved['last'].to_numpy()), signed=False)}. {when}; {near}."),
        Finding("The flow predicts which words a query attends to", "Theorem 2, beyond the paper", int(right.sum()),
                len(right), "queries", "Counted by rank correlation over all words, in the mean "
                f"{said(*mean_error(told.value.to_numpy()))}; over the {FREQUENT} most frequent in its contexts "
                f"{said(*mean_error(told.value_frequent.to_numpy()))}."),
        Finding(f"Of the {TOP_K} words most attended to the flow knows more than frequency does", "Beyond the paper",
                int(better), len(top), "queries", f"Predicted: {top.overlap.mean():.0%}; by chance "
                f"{top.chance.mean():.0%}; among the {TOP_K} most frequent words of the query's contexts: "
                f"{top.frequent.mean():.0%} (difference {said(*more)})."),
    )  # fmt: skip


def settled(left: pd.DataFrame) -> float:
    """The first step from which the mean distance to the last attention stays below a tenth of the first such."""
    left = left.sort_values("step")
    far = np.flatnonzero(left.value.to_numpy() > 0.1 * left.value.iloc[0])
    return float(left.step.to_numpy()[min(far[-1] + 1, len(left) - 1)]) if len(far) else float(left.step.iloc[0])


def _said(part: pd.DataFrame, group: int) -> str:
    row = part[part.group == group].iloc[0]
    return said(row.among_words, row.among_error, signed=False)


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
            ax.set(xscale="log", xlabel="training step")
    return figure
