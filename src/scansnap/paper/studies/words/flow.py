"""What the population flow of a few of the text's sequence classes predicts, against what each run learned.

It is what was there before a model that listens (:mod:`~scansnap.paper.studies.words.listening`), and stays beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.ranks import overlap, rank_correlation
from scansnap.paper.studies.words.listening import TOP_K
from scansnap.paper.studies.words.runs import WordRuns
from scansnap.paper.studies.words.text import contexts_of

FLOW_QUERIES, FLOW_NEXT, FLOW_TOP = 20, 2, 1_000
# η_Y t up to which the flow is followed. On WikiText-2 the words it ranks then and at three times that agree to a rank
# correlation of 0.91 and in 89% of the top ten; the time it takes to integrate grows in proportion.
FLOW_LONGEST = 3_000.0
FREQUENT = 50  # words of a query's contexts for a second look


def prediction(runs: WordRuns) -> tuple[pd.DataFrame, dict[str, Any]]:
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
    seen = words.used[at, :top] & (z.values[0] != 0)  # (Q, top)
    predicted, counts = (np.where(seen, v, np.nan) for v in (z.values[0], words.counts[at, :top]))
    names = np.array([corpus.words[q] for q in z["query"].values])
    tables = []
    for seed, record in zip(runs.setting.seeds, runs.yz, strict=True):
        trained = np.where(seen, record["z"][at, :top], np.nan)
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
    place = rankdata(-np.nan_to_num(counts, nan=-1.0), method="ordinal", axis=1)  # from 1
    return [np.where(place <= FREQUENT, v, np.nan) for v in values]
