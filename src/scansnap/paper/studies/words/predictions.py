"""Predictions of the words that attention turns to, compared with what each training learned.

**Uniform attention.** For each seed one run with uniform attention in which Z is updated but not used
(:mod:`scansnap.text.prediction`), and trainings on the same batches: at the chosen rates, with a slower Z, and a *twin*
at the chosen rates with η_Y a little larger. The predicted Z is proportional to η_Z, so one run predicts both ratios.
Large rates make training chaotic: no prediction can be closer to a training than its twin is. The text is
read in order, from another start with each seed. Only words that stand before a query at least ``LEAST`` times in the
text are compared, from the step at which they were first seen there.

**Population flow** of a few of the text's sequence classes: an earlier, weaker prediction, kept for comparison.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from scansnap.checks.arrays import FloatArray
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.ranks import overlap, rank_correlation, slope
from scansnap.paper.figure import Effort
from scansnap.paper.shared.run_cache import cached_run
from scansnap.paper.shared.text_runs import BATCH, LENGTH, TextSetting, trained
from scansnap.paper.studies.words.runs import LEAST, Text, WordRuns, contexts_of, logits
from scansnap.progress import Progress, share
from scansnap.text.prediction import count_before
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

SLOW = 300.0  # η_Y/η_Z of the second training, in which attention has little effect on itself
TWIN = 1e-5  # by which a twin's η_Y is larger, relatively
TOP_K = 10  # words most attended to
SEEDS = 3
STEPS = (10, 30, 100, 300, 1_000, 3_000, 9_000)  # at which a training is compared with its prediction
SHORTER = 2  # the trainings end at this fraction of the study's steps, or before


def predict_by_uniform_attention(runs: WordRuns, effort: Effort, progress: Progress | None = None) -> pd.DataFrame:
    """Rows "uniform" and "twin" (ratio, step, query) and, of the first seed at the last step, "word" (also word).

    value is the rank correlation of the predicted (or the twin's) with the trained logits, slope what the trained ones
    are of those; overlap, of the ``TOP_K`` largest, also of the most frequent words (frequent) and by chance.
    """
    setting, words, chosen = runs.setting, runs.text.words, runs.chosen["YZ"].rates
    steps = [step for step in STEPS if step <= setting.size.steps // SHORTER]
    slower = {**chosen, "eta_z": chosen["eta_y"] / SLOW}
    every = [
        (slower, True),
        (slower, False),
        (chosen, False),
        ({**chosen, "eta_y": chosen["eta_y"] * (1 + TWIN)}, False),
    ]
    seeds = min(SEEDS, setting.size.seeds)
    names = np.array([setting.corpus.words[q] for q in words.queries])
    marks = [setting.corpus.vocabulary.unk, setting.corpus.vocabulary.eos]
    counts = count_before(setting.corpus.train, words.queries, setting.corpus.vocab_size, LENGTH)[:, : runs.text.top]
    counts[:, marks] = 0
    often = np.where(counts >= LEAST, counts, np.nan)
    tables = []
    for seed in range(seeds):
        shifted = _shift_text(setting, steps[-1], seed)
        uniform, slow, fast, twin = (
            cached_run(effort.cache_folder,
                 {"figure": "words", "uniform_attention": uniform_attention, **rates, **shifted.key()},
                 partial(_run, runs.text, shifted, steps, rates, uniform_attention,
                         share(progress, len(every) * seed + i, len(every) * seeds)))["z"]
            for i, (rates, uniform_attention) in enumerate(every)
        )  # fmt: skip
        scaled = uniform * np.float32(chosen["eta_z"] / slower["eta_z"])
        for kind, rates, a, b in (("uniform", slower, uniform, slow), ("uniform", chosen, scaled, fast),
                                  ("twin", chosen, twin, fast)):  # fmt: skip
            columns = {"kind": kind, "seed": seed, "ratio": rates["eta_y"] / rates["eta_z"], "query": names}
            tables += [pd.DataFrame({**columns, "step": step, **_compared(x, y, often)})
                       for step, x, y in zip(steps, a, b, strict=True)]  # fmt: skip
            if seed == 0 and kind == "uniform":
                named = _first_words(setting, names, a[-1], b[-1], often)
                tables.append(named.assign(seed=seed, ratio=columns["ratio"], step=steps[-1]))
    return pd.concat(tables, ignore_index=True)


def _shift_text(setting: TextSetting, steps: int, seed: int) -> TextSetting:
    """The setting with its text rotated by part of a column of windows, so that batches differ."""
    turned = np.roll(setting.corpus.train, -seed * (len(setting.corpus.train) // (BATCH * SEEDS)))
    return replace(setting, corpus=replace(setting.corpus, train=turned), size=replace(setting.size, steps=steps))


def _run(
    text: Text,
    setting: TextSetting,
    steps: list[int],
    rates: dict[str, Any],
    uniform_attention: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    """z (S, Q, top) at the steps; NaN from where a training failed."""
    model = YZTransformer(
        YZSettings(setting.corpus.vocab_size, **rates), setting.device, uniform_attention=uniform_attention
    )
    done = trained(model, setting, seed=None, measure=lambda current, _: {"z": logits(text, current)}, snapshots=steps,
                   progress=progress)  # fmt: skip
    nothing = np.full((len(text.words.queries), text.top), np.nan, dtype=np.float32)
    return {"z": np.stack([done.measured[step]["z"] if step in done.measured else nothing for step in steps])}


def _compared(predicted: FloatArray, z: FloatArray, often: FloatArray) -> dict[str, FloatArray]:
    """By query, over the words that are frequent enough; a logit is exactly 0 until its word occurs."""
    used = np.isfinite(often) & (predicted != 0)
    predicted, z, often = (np.where(used, values, np.nan) for values in (predicted, z, often))
    shared, chance = overlap(predicted, z, TOP_K)
    return {"value": rank_correlation(predicted, z), "slope": slope(predicted, z), "overlap": shared,
            "chance": chance, "frequent": overlap(often, z, TOP_K)[0]}  # fmt: skip


def _first_words(
    setting: TextSetting, names: np.ndarray, predicted: FloatArray, z: FloatArray, often: FloatArray
) -> pd.DataFrame:
    """The words that are among the first of either, for each query."""
    tables = []
    for query, *values, k in zip(names, predicted, z, often, strict=True):
        used = np.flatnonzero(np.isfinite(k) & (values[0] != 0))
        at = sorted({i for row in values for i in used[np.argsort(-row[used], kind="stable")[:TOP_K]].tolist()})
        tables.append(pd.DataFrame({"kind": "word", "query": query, "word": [setting.corpus.words[i] for i in at],
                                    "predicted": values[0][at], "value": values[1][at]}))  # fmt: skip
    return pd.concat(tables, ignore_index=True)


FLOW_QUERIES, FLOW_NEXT, FLOW_TOP = 20, 2, 1_000
# η_Y t up to which the flow is followed. On WikiText-2 the words it ranks then and at three times that agree to a rank
# correlation of 0.91 and in 89% of the top ten; the time it takes to integrate grows in proportion.
FLOW_LONGEST = 3_000.0
FREQUENT = 50  # words of a query's contexts for the second correlation


def predict_by_flow(runs: WordRuns) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows of kind "prediction" (a query), and the flow's settings.

    The flow counts samples of its classes; of a training step's positions a share p are such samples, so its time is
    p times the steps, at the same rates.
    """
    corpus, words, rates = runs.setting.corpus, runs.text.words, runs.chosen["YZ"].rates
    top = min(FLOW_TOP, corpus.vocab_size)
    frequent_first = [corpus.words[q] for q in words.queries[:FLOW_QUERIES]]
    pairs = contexts_of(frequent_first, corpus, next_per_query=FLOW_NEXT, top=top)
    share = float(pairs.pair_counts.sum() / len(corpus.train))
    t = min(runs.setting.size.steps * share, FLOW_LONGEST / rates["eta_y"])
    z = flow(SequenceClasses(**pairs.table()), rates["eta_y"], rates["eta_z"], [t], rtol=1e-5, variables=["z"]).z

    at = np.searchsorted(words.queries, z["query"].values)
    used = words.used[at, :top] & (z.values[0] != 0)  # (Q, top)
    predicted, counts = (np.where(used, v, np.nan) for v in (z.values[0], words.counts[at, :top]))
    names = np.array([corpus.words[q] for q in z["query"].values])
    tables = []
    for seed, record in zip(runs.setting.seeds, runs.yz, strict=True):
        trained = np.where(used, record["z"][at, :top], np.nan)
        shared, chance = overlap(predicted, trained, TOP_K)
        frequent, _ = overlap(counts, trained, TOP_K)
        tables.append(pd.DataFrame({
            "kind": "prediction", "seed": seed, "query": names, "value": rank_correlation(predicted, trained),
            "value_frequent": rank_correlation(*_frequent(counts, predicted, trained)), "overlap": shared,
            "chance": chance, "frequent": frequent,
        }))  # fmt: skip
    described = {"flow_t": t, "flow_share": share, "flow_queries": len(names), "flow_next": FLOW_NEXT, "flow_top": top}
    return pd.concat(tables, ignore_index=True), described


def _frequent(counts: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """The values at the most frequent words of each row; NaN elsewhere."""
    rank = rankdata(-np.nan_to_num(counts, nan=-1.0), method="ordinal", axis=1)  # from 1
    return [np.where(rank <= FREQUENT, v, np.nan) for v in values]
