"""What a model that never attends predicts, against what each training learned: word by word, step by step.

For each seed one run with uniform attention, Z listening (:mod:`scansnap.text.prediction`), and trainings on the same
batches: at the chosen rates, with a slower Z, and a *twin* at the chosen rates with η_Y a little larger. Z that listens
is proportional to η_Z, so that one run predicts for both ratios. Large rates make training chaotic: what the twin does
not share with its training, nothing that is computed beforehand can know. The text is read in order, from another place
with each seed.

Compared are the words that stand before a query at least ``LEAST`` times in the text, as soon as they were seen there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from scansnap.checks.arrays import FloatArray
from scansnap.measure.ranks import overlap, rank_correlation, slope
from scansnap.paper.figure import Effort
from scansnap.paper.shared.run_cache import cached_run
from scansnap.paper.shared.text_runs import BATCH, LENGTH, TextSetting, trained
from scansnap.paper.studies.words.runs import WordRuns, logits
from scansnap.paper.studies.words.text import LEAST, Text
from scansnap.progress import Progress, share
from scansnap.text.prediction import counted_before
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

SLOW = 300.0  # η_Y/η_Z of the second training: attention that hardly acts back on itself
TWIN = 1e-5  # by which a twin's η_Y is larger, relatively
TOP_K = 10  # words most attended to
SEEDS = 3
STEPS = (10, 30, 100, 300, 1_000, 3_000, 9_000)  # at which a training is held against its prediction
SHORTER = 2  # they end at one in so many of the study's own steps, or before


def listening(runs: WordRuns, effort: Effort, progress: Progress | None = None) -> pd.DataFrame:
    """Rows of kind "heard" and "twin" (ratio, step, query) and, of the first seed at the last step, "word" (also word).

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
    counts = counted_before(setting.corpus.train, words.queries, setting.corpus.vocab_size, LENGTH)[:, : runs.text.top]
    counts[:, marks] = 0
    often = np.where(counts >= LEAST, counts, np.nan)
    tables = []
    for seed in range(seeds):
        here = _from_another_place(setting, steps[-1], seed)
        heard, slow, fast, twin = (
            cached_run(effort.kept, {"figure": "words", "listens": listens, **rates, **here.key()},
                 partial(_run, runs.text, here, steps, rates, listens,
                         share(progress, len(every) * seed + i, len(every) * seeds)))["z"]
            for i, (rates, listens) in enumerate(every)
        )  # fmt: skip
        scaled = heard * np.float32(chosen["eta_z"] / slower["eta_z"])
        for kind, rates, a, b in (("heard", slower, heard, slow), ("heard", chosen, scaled, fast),
                                  ("twin", chosen, twin, fast)):  # fmt: skip
            said = {"kind": kind, "seed": seed, "ratio": rates["eta_y"] / rates["eta_z"], "query": names}
            tables += [pd.DataFrame({**said, "step": step, **_compared(x, y, often)})
                       for step, x, y in zip(steps, a, b, strict=True)]  # fmt: skip
            if seed == 0 and kind == "heard":
                named = _first_words(setting, names, a[-1], b[-1], often)
                tables.append(named.assign(seed=seed, ratio=said["ratio"], step=steps[-1]))
    return pd.concat(tables, ignore_index=True)


def _from_another_place(setting: TextSetting, steps: int, seed: int) -> TextSetting:
    """The setting with its text turned by a part of a column of windows, so that batches are others."""
    turned = np.roll(setting.corpus.train, -seed * (len(setting.corpus.train) // (BATCH * SEEDS)))
    return replace(setting, corpus=replace(setting.corpus, train=turned), size=replace(setting.size, steps=steps))


def _run(
    text: Text, setting: TextSetting, steps: list[int], rates: dict[str, Any], listens: bool, progress: Progress | None
) -> dict[str, Any]:
    """z (S, Q, top) at the steps; NaN from where a training failed."""
    model = YZTransformer(YZSettings(setting.corpus.vocab_size, **rates), setting.device, listening=listens)
    done = trained(model, setting, seed=None, measure=lambda now, _: {"z": logits(text, now)}, snapshots=steps,
                   progress=progress)  # fmt: skip
    nothing = np.full((len(text.words.queries), text.top), np.nan, dtype=np.float32)
    return {"z": np.stack([done.measured[step]["z"] if step in done.measured else nothing for step in steps])}


def _compared(predicted: FloatArray, z: FloatArray, often: FloatArray) -> dict[str, FloatArray]:
    """By query, over the words that are frequent enough; a logit of exactly 0 is of a word not seen yet."""
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
        at = sorted({i for one in values for i in used[np.argsort(-one[used], kind="stable")[:TOP_K]].tolist()})
        tables.append(pd.DataFrame({"kind": "word", "query": query, "word": [setting.corpus.words[i] for i in at],
                                    "predicted": values[0][at], "value": values[1][at]}))  # fmt: skip
    return pd.concat(tables, ignore_index=True)
