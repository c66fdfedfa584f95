"""The table of the probe study, and its statements, each judged over training seeds.

A case is a model with an optimiser, unless a statement says otherwise; a seed's number is a mean over its heads. The
table has one row for each number or head; ``kind`` says which:

loss   on the validation text at a step (``value``)
scan   of a layer at a step: how far attention has turned to distinct words, mean over heads
head   one head of one training: its scan, when it moved fastest, whether it snapped, what it follows in the end
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
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.studies.probe.training import DEEP, IN_THE_END, OF_HEADS, WORDS
from scansnap.paper.studies.words.findings import NO_RANKS
from scansnap.probe.schema import AGAINST

MOST = 0.5  # more than half
YZ = {"idf": 0.37, "pmi": 0.28, "cooccurrence": -0.28}  # of the study on words, WikiText-2, 20,000 steps
NAMES = {"idf": "IDF", "pmi": "PMI", "cooccurrence": "co-occurrence"}
BEYOND = "Beyond the paper"


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """From the rows of :mod:`~scansnap.paper.studies.probe.findings`."""
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
    """Shares of heads whose interval decides, against those with a shuffled vocabulary."""
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
    parts, rows = [], []
    for name, words in (("t_fastest_ln", "fastest"), ("t_half", "half of the way")):
        ranks = (
            deep.groupby(["optimizer", "seed"], sort=False)[["layer", name, "scan_index"]]
            .apply(_by_depth)
            .unstack("seed")
        )
        rows.append(ranks.to_numpy())
        parts += [f"{words}, {optimizer}: {number(row)}" for optimizer, row in ranks.iterrows()]
    return Finding.compared(
        f"Deeper layers follow later ({DEEP})", "Section 7, beyond the paper",
        compare(np.concatenate(rows), margin=NO_RANKS), "rises", "times",
        f"Rank correlation of layer and time over heads, {'; '.join(parts)} ({over}; less than {NO_RANKS:g} is none).",
    )  # fmt: skip


def follows(heads: pd.DataFrame, name: str, over: str) -> Finding:
    """The sign that the YZ model's attention has, and at least a weak correlation.

    Random weights correlate with something, too: what they do by themselves stands beside it.
    """
    ranks, start = over_heads(heads, name), over_heads(heads, f"{name}_start")
    sign = math.copysign(1, YZ[name])
    verb = "follows" if sign > 0 else "avoids raw"
    return Finding.compared(
        f"Attention {verb} {NAMES[name]} as the YZ model's does", "The authors' slides",
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
    numbers = [percent(row, signed=False) if share else number(row) for row in family.to_numpy()]
    return "; ".join(f"{_case(case)}: {text}" for case, text in zip(family.index, numbers, strict=True))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _time(step: float) -> str:
    """A step, or which side of the record it is on."""
    return "not yet" if math.isinf(step) else f"{step:.0f}" if step else "the first"


def _case(case: Iterable[str]) -> str:
    return " with ".join(case)


HALF = 0.5  # of the way attention has moved in the end


def table_of(records: dict[tuple[str, str, int], Record]) -> pd.DataFrame:
    """All rows of all trainings."""
    parts: list[pd.DataFrame] = []
    for (model, optimizer, seed), record in records.items():
        whose = {"model": model, "optimizer": optimizer, "seed": seed}
        parts += [part.assign(**whose) for part in (losses(record), scans(record), heads(record))]
    table = pd.concat(parts, ignore_index=True)
    first = ["kind", "model", "optimizer", "seed"]
    return table[[*first, *(name for name in table if name not in first)]]


def losses(record: Record) -> pd.DataFrame:
    return pd.DataFrame({"kind": "loss", "step": record["steps"], "value": record["loss"]})


def scans(record: Record) -> pd.DataFrame:
    """Scan index over time, by layer."""
    by_layer = record["scan_index_curve"].mean(-1)  # (S, L)
    steps, layers = np.meshgrid(record["steps"], np.arange(by_layer.shape[1]), indexing="ij")
    return pd.DataFrame({"kind": "scan", "step": steps.ravel(), "layer": layers.ravel(), "value": by_layer.ravel()})


def heads(record: Record) -> pd.DataFrame:
    """One row for each head."""
    n_layers, n_heads = record["scan_index"].shape
    layer, head = np.meshgrid(np.arange(n_layers), np.arange(n_heads), indexing="ij")
    columns = {name: record[name] for name in (*IN_THE_END, *OF_HEADS, *WORDS, "control", "control_scans")}
    for i, name in enumerate(AGAINST):
        columns |= {f"{name}_start": record["rank_corr_curve"][0, ..., i], name: record["rank_corr_curve"][-1, ..., i]}
    columns |= {"sink_start": record["sink_share_curve"][0], "sink_end": record["sink_share_curve"][-1]}
    table = pd.DataFrame({"kind": "head", "layer": layer.ravel(), "head": head.ravel()})
    table = table.assign(**{name: values.ravel() for name, values in columns.items()})
    moved = record["moved_from_start_curve"].reshape(len(record["steps"]), -1).T  # (heads, S)
    t_half = [halfway(record["steps"], path) for path in moved]
    learned = [share_learned(record["steps"], record["loss"], t) for t in table.t_fastest_ln]
    return table.assign(t_half=t_half, learned=learned)


def halfway(steps: np.ndarray, moved: np.ndarray) -> float:
    """The first step from which attention is half as far from its start as in the end, and stays so."""
    if not np.isfinite(moved[-1]) or moved[-1] <= 0:
        return math.nan
    near = np.flatnonzero(~(moved >= HALF * moved[-1]))
    return float(steps[near[-1] + 1]) if len(near) else float(steps[0])


def share_learned(steps: np.ndarray, loss: np.ndarray, t: float) -> float:
    """Of the way the loss falls in all, what it had fallen at time t; between measurements by ln t."""
    if not math.isfinite(t) or t < 1:
        return math.nan
    known = np.asarray(steps) > 0
    current = np.interp(math.log(t), np.log(steps[known]), loss[known])
    return float((loss[0] - current) / (loss[0] - loss.min())) if loss.min() < loss[0] else math.nan


def heads_of(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of heads. ``scans`` and so on are 1 where that is decided, else 0, NaN where training failed."""
    heads = table[table.kind == "head"]
    fine = heads.verdict != "failed"
    decided = {name: (heads[name] == 1).astype(float).where(fine) for name in ("scans", "snaps", "control_scans")}
    return heads.assign(**decided)


def over_heads(heads: pd.DataFrame, column: str, by: Iterable[str] = ("model", "optimizer")) -> pd.DataFrame:
    """Mean over heads: a row for each case, in their order, a column for each seed; NaN where a head has no number."""
    mean = heads.groupby([*by, "seed"], sort=False)[column].agg(lambda values: values.mean(skipna=False))
    return mean.unstack("seed")
