"""The 640 Syn-Medium runs of Figures 6, 11 and 12, trained once for all three; the benchmarks time the same runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import softmax

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.measure import recall
from scansnap.paper.figure import Effort
from scansnap.progress import Progress, share
from scansnap.runs import Runs, grid


@dataclass(frozen=True)
class Experiment:
    """Sizes × η_Z × η_Y/η_Z × seeds, every run trained alike, by SGD on mini-batch means (Section 8, Appendix G)."""

    n_queries: tuple[int, ...]  # a size of Syn-Medium each
    eta_z: tuple[float, ...]
    ratio: tuple[float, ...]  # η_Y/η_Z
    seeds: int
    steps: int = 100
    momentum: float = 0.9
    init: str = "uniform"

    def runs(self, seeds: int) -> Runs:
        """Runs of one size, with ``seeds`` seeds."""
        return grid(eta_z=self.eta_z, ratio=self.ratio, seed=range(seeds))

    def train(self, classes: SequenceClasses, runs: Runs, **options: Any) -> xr.Dataset:
        """One size; the state after the last step. ``options`` are those of simulate that leave the numbers alone."""
        return simulate(classes, runs, steps=self.steps, momentum=self.momentum, init=self.init, record=[self.steps],
                        **options)  # fmt: skip


SYN_MEDIUM = Experiment(
    n_queries=(1, 3, 5, 10), eta_z=(0.5, 1.0, 2.0, 3.0), ratio=(1.0, 2.0, 5.0, 10.0), seeds=10
)  # 640 runs


QUICK_SEEDS = 3
THRESHOLDS = tuple(np.round(np.linspace(0.85, 1.15, 13), 3).tolist())  # times 1/(number of context tokens)
KEYS = ("n_query", "n_next", "eta_z", "ratio", "seed")


@dataclass(frozen=True)
class MediumRuns:
    """The numbers that the figures need from the runs, without the attention itself."""

    entropy: pd.DataFrame  # KEYS, entropy: one row for each run
    recall: pd.DataFrame  # KEYS, threshold, recall, recall_c: one row for each run and threshold
    settings: dict[str, Any]
    note: str


def medium_runs(effort: Effort, progress: Progress | None = None) -> MediumRuns:
    """All runs, computed once for the figures of an effort."""
    return effort.compute_once("syn-medium", lambda: train(effort, progress))


def train(effort: Effort, progress: Progress | None) -> MediumRuns:
    experiment = SYN_MEDIUM
    seeds = QUICK_SEEDS if effort.quick else experiment.seeds
    runs = experiment.runs(seeds)
    entropies, recalls = [], []
    described: dict[str, Any] = {}
    for i, n_queries in enumerate(experiment.n_queries):
        classes = SequenceClasses.syn_medium(n_queries)
        data = experiment.train(classes, runs, variables=["attention", "entropy", "z"], device=effort.device,
                                progress=share(progress, i, len(experiment.n_queries)))  # fmt: skip
        entropies.append(entropy_table(data, classes, runs))
        recalls.append(recall_table(data, classes, runs))
        described = json.loads(data.attrs["settings"])
    settings = {
        "classes": "syn-medium", "n_queries": list(experiment.n_queries), "eta_z": list(experiment.eta_z),
        "ratio": list(experiment.ratio), "seeds": list(range(seeds)), "momentum": experiment.momentum, **described,
    }  # fmt: skip
    note = f"quick: {seeds} of {experiment.seeds} seeds" if effort.quick else ""
    return MediumRuns(pd.concat(entropies, ignore_index=True), pd.concat(recalls, ignore_index=True), settings, note)


def entropy_table(data: xr.Dataset, classes: SequenceClasses, runs: Runs) -> pd.DataFrame:
    """Entropy over the distinct tokens at the last step, mean over classes, for each run."""
    entropy = data.entropy.isel(step=-1).mean("seq_class").values.astype(np.float64)
    return _keys(classes, runs).assign(entropy=np.where(data.failed_step < 0, entropy, np.nan))


def recall_table(data: xr.Dataset, classes: SequenceClasses, runs: Runs) -> pd.DataFrame:
    """Recall of each class's distinct tokens over the thresholds, mean over classes, for each run.

    ``recall`` takes softmax(z_m) over all context tokens as the attention of query m (Appendix G speaks of the
    softmax value for every query). ``recall_c`` takes c_n ∝ P(l|n) e^z instead: then most of a class's distinct tokens
    are far from the threshold whatever was learned, and the curves of 10/20 would be flat at 1, which the paper's are
    not.
    """
    tokens = np.unique(np.concatenate([classes.support(n)[0] for n in range(classes.n_classes)]))
    z = data.z.isel(step=-1).values.astype(np.float64)  # (run, query, token)
    by_query = np.zeros_like(z)
    by_query[..., tokens] = softmax(z[..., tokens], axis=-1)
    by_class = by_query[:, np.searchsorted(classes.queries, classes.query)]  # (run, seq_class, token)
    c = data.attention.isel(step=-1).values
    fine = data.failed_step.values < 0
    tables = []
    for times in THRESHOLDS:
        threshold = times / len(tokens)
        measured = {
            name: np.where(fine, recall(attention, classes, threshold).mean(-1), np.nan)
            for name, attention in (("recall", by_class), ("recall_c", c))
        }
        tables.append(_keys(classes, runs).assign(threshold=threshold, **measured))
    return pd.concat(tables, ignore_index=True)


def size_name(n_query: int, n_next: int) -> str:
    """A size in words, short enough for a panel's title."""
    return f"{n_query} {'query' if n_query == 1 else 'queries'}, {n_next} next"


def _keys(classes: SequenceClasses, runs: Runs) -> pd.DataFrame:
    columns = {"n_query": len(classes.queries), "n_next": classes.n_classes, "eta_z": runs.eta_z, "ratio": runs.ratio,
               "seed": runs.seed}  # fmt: skip
    return pd.DataFrame(columns, index=range(len(runs)))
