"""What is found: statements that can fail, each judged over training seeds. A seed's number is a mean over its heads.

A case is a model with an optimiser, unless it says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from scansnap.measure.comparison import compare
from scansnap.paper.figure import Finding
from scansnap.paper.shared.over_seeds import how, number, percent
from scansnap.paper.studies.probe.models import DEEP
from scansnap.paper.studies.probe.table import heads_of, over_heads
from scansnap.paper.studies.words.findings import NO_RANKS

MOST = 0.5  # more than half
YZ = {"idf": 0.37, "pmi": 0.28, "cooccurrence": -0.28}  # of the study on words, WikiText-2, 20,000 steps
NAMES = {"idf": "IDF", "pmi": "PMI", "cooccurrence": "co-occurrence"}
BEYOND = "Beyond the paper"


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """From the rows of :mod:`~scansnap.paper.studies.probe.table`."""
    heads = heads_of(table)
    over = how(heads.seed.nunique())
    return (
        turns_to_distinct(heads, over),
        more_than_by_chance(heads, over),
        control_is_quiet(heads),
        snaps(heads, over),
        fastest_late(heads, over),
        deeper_later(heads, over),
        *(follows(heads, name, over) for name in YZ),
        sinks(heads, over),
    )


def turns_to_distinct(heads: pd.DataFrame, over: str) -> Finding:
    """The sign of the mean scan index: heads may also turn to what is common."""
    index = over_heads(heads, "scan_index")
    return Finding.compared(
        "Attention leaves common for distinct words, in the mean over heads", "Theorem 2, beyond the paper",
        compare(index), "rises", "models",
        f"Scan index from the first to the last step: {_each(index)} ({over}).",
    )  # fmt: skip


def more_than_by_chance(heads: pd.DataFrame, over: str) -> Finding:
    """Shares of heads whose interval decides, against the same with words renamed at random."""
    scans, control = over_heads(heads, "scans"), over_heads(heads, "control_scans")
    return Finding.compared(
        "More heads scan than if words had another's distinctness", "Theorem 2, beyond the paper",
        compare(scans - control), "rises", "models",
        f"Heads that scan: {_each(scans, share=True)} ({over}); with distinctness permuted over the vocabulary "
        f"{percent(np.nanmean(control.to_numpy()), signed=False)} of all.",
    )  # fmt: skip


def control_is_quiet(heads: pd.DataFrame) -> Finding:
    """A case is a head of a training: with distinctness permuted over the vocabulary it must not scan."""
    known = heads[heads.control_scans.notna()]
    quiet = int((known.control_scans == 0).sum())
    mean = f"{known.control.mean():+.4f}".replace("-", "−")
    return Finding(
        "With distinctness permuted over the vocabulary no head scans", BEYOND, quiet, len(heads), "heads",
        f"Mean scan index {mean}, largest of a head {known.control.abs().max():.3f}; each training has its own "
        "permutation.",
    )  # fmt: skip


def snaps(heads: pd.DataFrame, over: str) -> Finding:
    """Whether most heads end up moving at less than half their greatest speed in ln t."""
    share, frozen = over_heads(heads, "snaps"), over_heads(heads[heads.frozenness_ln.notna()], "frozenness_ln")
    return Finding.compared(
        "Most heads snap although the learning rate stays", "Section 6, beyond the paper", compare(share - MOST),
        "rises", "models",
        f"Heads that snap: {_each(share, share=True)} ({over}). Frozenness in ln t, mean over heads that moved: "
        f"{_each(frozen.dropna())}.",
    )  # fmt: skip


def fastest_late(heads: pd.DataFrame, over: str) -> Finding:
    """What of the fall of the loss lies before t_fastest_ln, mean over heads with one inside; a seed may have none."""
    share = over_heads(heads[heads.learned.notna()], "learned").dropna()
    when = heads.groupby(["model", "optimizer"], sort=False).t_fastest_ln.median()
    steps = "; ".join(f"{_case(case)}: {_time(t)}" for case, t in when.items())
    says = "Attention moves fastest in ln t when most of the fall of the loss is over"
    if not len(share):
        return Finding(says, BEYOND, 0, 0, "models", "No model has a head with such a time in each seed.")
    return Finding.compared(
        says, BEYOND, compare(share - MOST), "rises", "models",
        f"Of the fall of the loss before: {_each(share, share=True)} ({over}). Median step of all heads: {steps}.",
    )  # fmt: skip


def deeper_later(heads: pd.DataFrame, over: str) -> Finding:
    """A case is an optimiser and a time: of the greatest speed in ln t, or of half of the way attention moves."""
    deep = heads[heads.model == DEEP]
    said, rows = [], []
    for name, words in (("t_fastest_ln", "fastest"), ("t_half", "half of the way")):
        ranks = (
            deep.groupby(["optimizer", "seed"], sort=False)[["layer", name, "scan_index"]]
            .apply(_by_depth)
            .unstack("seed")
        )
        rows.append(ranks.to_numpy())
        said += [f"{words}, {optimizer}: {number(row)}" for optimizer, row in ranks.iterrows()]
    return Finding.compared(
        f"Deeper layers follow later ({DEEP})", "Section 7, beyond the paper",
        compare(np.concatenate(rows), margin=NO_RANKS), "rises", "times",
        f"Rank correlation of layer and time over heads, {'; '.join(said)} ({over}; less than {NO_RANKS:g} is none).",
    )  # fmt: skip


def follows(heads: pd.DataFrame, name: str, over: str) -> Finding:
    """The sign that the YZ model's attention has, and at least a weak correlation.

    Random weights correlate with something, too: what they do by themselves stands beside it.
    """
    ranks, start = over_heads(heads, name), over_heads(heads, f"{name}_start")
    sign = math.copysign(1, YZ[name])
    way = "follows" if sign > 0 else "avoids raw"
    return Finding.compared(
        f"Attention {way} {NAMES[name]} as the YZ model's does", "The authors' slides",
        compare(sign * ranks, margin=NO_RANKS), "rises", "models",
        f"Rank correlation of a query's attention with its keys', mean over heads: {_each(ranks)} ({over}; less than "
        f"{NO_RANKS:g} is none). Before training: {_each(start)}. The YZ model's, by word: {_signed(YZ[name])}.",
    )  # fmt: skip


def sinks(heads: pd.DataFrame, over: str) -> Finding:
    """Change of the share of sequences in which a head's first key gets more than 0.3; in words by layer, too."""
    start, end = over_heads(heads, "sink_start"), over_heads(heads, "sink_end")
    by_layer = heads.groupby(["model", "optimizer", "layer"], sort=False).sink_end.mean().unstack("layer")
    layers = "; ".join(f"{_case(case)}: {' '.join(f'{x:.2f}' for x in row.dropna())}"
                       for case, row in by_layer.iterrows())  # fmt: skip
    return Finding.compared(
        "Sinks form: more sequences have one after training than before", BEYOND, compare(end - start), "rises",
        "models",
        f"Share of sequences and heads: {_each(end, share=True)} ({over}). By layer, from the first: {layers}.",
    )  # fmt: skip


def _by_depth(part: pd.DataFrame) -> float:
    """Rank correlation of layer and time over heads that have one; 0 where that leaves no order: nothing follows."""
    if part.scan_index.isna().any():
        return math.nan  # the training failed
    layer, time = part.iloc[:, :2].dropna().to_numpy().T
    return float(spearmanr(layer, time).statistic) if len(set(time)) > 1 and len(set(layer)) > 1 else 0.0


def _each(family: pd.DataFrame, share: bool = False) -> str:
    """Every case with its interval."""
    said = [percent(row, signed=False) if share else number(row) for row in family.to_numpy()]
    return "; ".join(f"{_case(case)}: {one}" for case, one in zip(family.index, said, strict=True))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _time(step: float) -> str:
    """A step, or which side of the record it is on."""
    return "not yet" if math.isinf(step) else f"{step:.0f}" if step else "the first"


def _case(case: Iterable[str]) -> str:
    return " with ".join(case)
