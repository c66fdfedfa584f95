"""What is measured, as rows of one table that the findings and the panels are read from; ``kind`` says what a row is.

gain                   attention to a tenth of the vocabulary (``group``) at a step
correlation            with a statistic of the text (``measure``) at a step, mean over queries
moved, left, fold, entropy   at a step
end, third             of one query: correlations after training, and how far its attention moved in a third of the run
heard, twin, word      a prediction, see :mod:`~scansnap.paper.studies.words.listening`
prediction             of the flow, see :mod:`~scansnap.paper.studies.words.flow`
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from scansnap.measure.word_attention import MEASURES
from scansnap.paper.studies.words.runs import WordRuns
from scansnap.paper.studies.words.text import MARKS


def gains(runs: WordRuns) -> pd.DataFrame:
    """Attention to the deciles relative to uniform attention over the validation text, and to the mean of all."""
    rows = []
    for model, records in (("YZ", runs.yz), ("transformer", runs.transformer)):
        for seed, record in zip(runs.setting.seeds, records, strict=True):
            steps = record["steps"].tolist() if "steps" in record else [0, runs.transformer_steps]
            for step, gain in zip(steps, record["gain"], strict=True):
                there = gain[:MARKS][np.isfinite(gain[:MARKS])]
                words = there.mean() if len(there) else math.nan
                rows += [{"kind": "gain", "model": model, "seed": seed, "step": step, "group": group, "value": value,
                          "among_words": value / words} for group, value in enumerate(gain)]  # fmt: skip
    return pd.DataFrame(rows)


def curves(runs: WordRuns) -> pd.DataFrame:
    """Correlations, distance moved (means over queries) and entropy at each step, for each seed."""
    rows = []
    for seed, record in zip(runs.setting.seeds, runs.yz, strict=True):
        for i, step in enumerate(record["steps"].tolist()):
            found = {("correlation", name): record["correlation"][i, j] for j, name in enumerate(MEASURES)}
            found |= {(kind, ""): record[kind][i] for kind in ("moved", "left", "fold", "entropy")}
            rows += [{"kind": kind, "measure": name, "seed": seed, "step": step, "value": value}
                     for (kind, name), value in found.items()]  # fmt: skip
    return pd.DataFrame(rows)


def by_query(runs: WordRuns) -> pd.DataFrame:
    """For each query the correlations at the end, and how far attention moved in the first and last third."""
    names = [runs.setting.corpus.words[q] for q in runs.text.words.queries]
    tables = []
    for seed, record in zip(runs.setting.seeds, runs.yz, strict=True):
        found = {("end", name): record["end"][j] for j, name in enumerate(MEASURES)}
        found |= {("third", name): record["thirds"][j] for j, name in enumerate(("first", "last"))}
        tables += [pd.DataFrame({"kind": kind, "measure": name, "seed": seed, "query": names, "value": values})
                   for (kind, name), values in found.items()]  # fmt: skip
    return pd.concat(tables, ignore_index=True)
