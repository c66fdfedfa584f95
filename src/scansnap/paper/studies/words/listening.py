"""What a model that never attends predicts, against what each training learned: word by word, step by step.

For each seed one run with uniform attention, Z listening (:mod:`scansnap.text.prediction`), and two trainings on the
same batches: at the chosen rates, and with a slower Z. Z that listens is proportional to η_Z, so that one run predicts
for both. Compared are the words that stood before a query at least ``LEAST`` times *until then*: what was not seen has
logit 0 in both, and would agree for nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.corpus.windows import Windows
from scansnap.measure.ranks import overlap, rank_correlation, slope
from scansnap.paper.figure import Effort
from scansnap.paper.shared.kept_runs import kept
from scansnap.paper.shared.text_runs import BATCH, LENGTH, TextSetting, trained
from scansnap.paper.studies.words.runs import WordRuns, compared_steps, logits
from scansnap.paper.studies.words.text import LEAST, Text
from scansnap.progress import Progress, share
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

SLOW = 300.0  # η_Y/η_Z of the second training: attention that hardly acts back on itself
TOP_K = 10  # words most attended to
CELLS = 2**24  # pairs of a query and a word before it that are counted at a time


def listening(runs: WordRuns, effort: Effort, progress: Progress | None = None) -> pd.DataFrame:
    """Rows of kind "heard" (ratio, step, query) and, of the first seed after the last step, "word" (also word).

    value is the rank correlation of the predicted with the trained logits, slope what the trained ones are of the
    predicted; overlap, of the ``TOP_K`` largest, also of the most frequent words (frequent) and by chance.
    """
    setting, rates, words = runs.setting, runs.chosen["YZ"].rates, runs.text.words
    steps = compared_steps(setting.size.steps)
    short = replace(setting, size=replace(setting.size, steps=steps[-1]))
    names = np.array([setting.corpus.words[q] for q in words.queries])
    slower: dict[str, Any] = {"eta_y": rates["eta_y"], "eta_z": rates["eta_y"] / SLOW}
    tables = []
    for i, (seed, fast) in enumerate(zip(setting.seeds, runs.yz, strict=True)):
        part = share(progress, i, len(setting.seeds))

        def run(listens: bool, seed: int = seed, part: Progress | None = part) -> dict[str, Any]:
            made = YZTransformer(
                YZSettings(setting.corpus.vocab_size, seed=seed, **slower), setting.device, listening=listens
            )
            return {"z": _followed(runs.text, made, short, seed, share(part, int(not listens), 2))}

        heard, slow = (
            kept(effort.kept, {"figure": "words", "listening": listens, "seed": seed, **slower, **short.key()},
                 partial(run, listens)) for listens in (True, False)
        )  # fmt: skip
        seen = seen_before(setting.corpus.train, words.queries, steps, seed=seed, top=runs.text.top)
        seen[..., [setting.corpus.vocabulary.unk, setting.corpus.vocabulary.eos]] = 0
        for eta_z, z in ((slower["eta_z"], slow["z"]), (rates["eta_z"], fast["z_at"])):
            predicted = heard["z"] * np.float32(eta_z / slower["eta_z"])
            told = [_compared(*at) for at in zip(predicted, z, seen, strict=True)]
            ratio = rates["eta_y"] / eta_z
            named = {"kind": "heard", "ratio": ratio, "seed": seed, "query": names}
            tables += [pd.DataFrame({**named, "step": step, **one}) for step, one in zip(steps, told, strict=True)]
            if i == 0:
                points = _named(setting, names, predicted[-1], z[-1], seen[-1])
                tables.append(points.assign(ratio=ratio, seed=seed, step=steps[-1]))
    return pd.concat(tables, ignore_index=True)


def _followed(text: Text, model: Any, setting: TextSetting, seed: int, progress: Progress | None) -> FloatArray:
    """Z (S, Q, top) at the compared steps; NaN from where a training failed."""
    steps = compared_steps(setting.size.steps)
    done = trained(model, setting, seed=seed, measure=lambda now, _: {"z": logits(text, now)}, snapshots=steps,
                   progress=progress)  # fmt: skip
    nothing = np.full((len(text.words.queries), text.top), np.nan, dtype=np.float32)
    return np.stack([done.measured[step]["z"] if step in done.measured else nothing for step in steps])


def seen_before(tokens: np.ndarray, queries: IntArray, steps: list[int], *, seed: int, top: int) -> IntArray:
    """(S, Q, top) how often each word stood before each query in the windows of the first steps of a training."""
    windows = Windows(tokens, BATCH, LENGTH)
    row = np.full(int(tokens.max()) + 1, -1)
    row[queries] = np.arange(len(queries))
    found, total, done = [], np.zeros(len(queries) * top, dtype=np.int64), 0
    for step in steps:
        while done < step:
            epoch, at = divmod(done, len(windows))
            order = windows.order(seed, epoch)
            some = min(step - done, len(windows) - at, max(1, CELLS // (BATCH * LENGTH**2)))
            for length, x in _stacked(windows, order[at : at + some]):
                for back in range(1, length):
                    query, key = row[x[:, back:]], x[:, :-back]
                    pair = (query >= 0) & (key < top)
                    total += np.bincount(query[pair] * top + key[pair], minlength=len(total))
            done += some
        found.append(total.reshape(len(queries), top).copy())
    return np.stack(found)


def _stacked(windows: Windows, numbers: list[int]) -> list[tuple[int, np.ndarray]]:
    """The inputs of some windows, those of one length in one array (N, T): the last of a text may be shorter."""
    inputs = [windows[number][0].numpy() for number in numbers]
    lengths = sorted({x.shape[1] for x in inputs})
    return [(length, np.concatenate([x for x in inputs if x.shape[1] == length])) for length in lengths]


def _compared(predicted: FloatArray, z: FloatArray, counts: IntArray) -> dict[str, FloatArray]:
    """By query."""
    used = counts >= LEAST
    predicted, z, often = (np.where(used, values, np.nan) for values in (predicted, z, counts))
    shared, chance = overlap(predicted, z, TOP_K)
    return {"value": rank_correlation(predicted, z), "slope": slope(predicted, z), "overlap": shared,
            "chance": chance, "frequent": overlap(often, z, TOP_K)[0]}  # fmt: skip


def _named(
    setting: TextSetting, names: np.ndarray, predicted: FloatArray, z: FloatArray, counts: IntArray
) -> pd.DataFrame:
    """The words that are among the first of either, for each query."""
    tables = []
    for query, *values, often in zip(names, predicted, z, counts, strict=True):
        used = np.flatnonzero(often >= LEAST)
        first = {i for one in values for i in used[np.argsort(-one[used], kind="stable")[:TOP_K]].tolist()}
        at = sorted(first)
        tables.append(pd.DataFrame({"kind": "word", "query": query, "word": [setting.corpus.words[i] for i in at],
                                    "predicted": values[0][at], "value": values[1][at]}))  # fmt: skip
    return pd.concat(tables, ignore_index=True)
