"""What was seen, as rows of one table that the findings and the panels are read from; ``kind`` says what a row is.

loss   on the validation text at a step (``value``)
scan   of a layer at a step: how far attention has turned to distinct words, mean over heads
head   one head of one training: its scan, when it moved fastest, whether it snapped, what it follows in the end
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from scansnap.paper.shared.run_cache import Record
from scansnap.paper.studies.probe.measured import IN_THE_END, OF_HEADS, WORDS
from scansnap.probe.schema import AGAINST

HALF = 0.5  # of the way attention has moved in the end


def table_of(records: dict[tuple[str, str, int], Record]) -> pd.DataFrame:
    """All rows of all trainings."""
    parts: list[pd.DataFrame] = []
    for (model, optimizer, seed), record in records.items():
        whose = {"model": model, "optimizer": optimizer, "seed": seed}
        parts += [part.assign(**whose) for part in (losses(record), scans(record), heads(record))]
    found = pd.concat(parts, ignore_index=True)
    first = ["kind", "model", "optimizer", "seed"]
    return found[[*first, *(name for name in found if name not in first)]]


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
    found = pd.DataFrame({"kind": "head", "layer": layer.ravel(), "head": head.ravel()})
    found = found.assign(**{name: values.ravel() for name, values in columns.items()})
    moved = record["moved_from_start_curve"].reshape(len(record["steps"]), -1).T  # (heads, S)
    t_half = [halfway(record["steps"], path) for path in moved]
    learned = [share_learned(record["steps"], record["loss"], t) for t in found.t_fastest_ln]
    return found.assign(t_half=t_half, learned=learned)


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
    now = np.interp(math.log(t), np.log(steps[known]), loss[known])
    return float((loss[0] - now) / (loss[0] - loss.min())) if loss.min() < loss[0] else math.nan


def heads_of(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of heads. ``scans`` and so on are 1 where that is decided, else 0, NaN where training failed."""
    found = table[table.kind == "head"]
    fine = found.verdict != "failed"
    decided = {name: (found[name] == 1).astype(float).where(fine) for name in ("scans", "snaps", "control_scans")}
    return found.assign(**decided)


def over_heads(found: pd.DataFrame, column: str, by: Iterable[str] = ("model", "optimizer")) -> pd.DataFrame:
    """Mean over heads: a row for each case, in their order, a column for each seed; NaN where a head has no number."""
    mean = found.groupby([*by, "seed"], sort=False)[column].agg(lambda values: values.mean(skipna=False))
    return mean.unstack("seed")
