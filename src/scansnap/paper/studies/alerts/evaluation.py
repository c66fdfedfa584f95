"""The table of the study: a row for each run with the step of every rule's warning, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import chi2

from scansnap.measure.comparison import LEVEL, Comparison, compare
from scansnap.paper.studies.alerts.rules import (
    ALERTS,
    BASELINES,
    MOST_FALSE,
    RULES,
    calibrate,
    outcomes,
    smooth,
    warning,
)
from scansnap.paper.studies.alerts.runs import ARCHITECTURE, CALIBRATION, SEEDS, Ladder

TESTS = (SEEDS, ARCHITECTURE)
BOOTSTRAP = 2_000


def table_of(ladders: Iterable[Ladder], thresholds: dict[str, float]) -> pd.DataFrame:
    """A row for each run; the warnings of all rules are columns, NaN where a rule never warns."""
    rows = []
    for ladder in ladders:
        ended = outcomes(ladder.records)
        for (rate, multiplier), record in ladder.records.items():
            kind, excess, visible = ended[rate, multiplier]
            warned = {name: warning(rule(record), thresholds[name]) for name, rule in RULES.items()}
            columns = {name: step if math.isfinite(step) else math.nan for name, step in warned.items()}
            rows.append({"split": ladder.split, "model": ladder.model, "optimizer": ladder.optimizer, "rate": rate,
                         "multiplier": multiplier, "seed": ladder.seed, "outcome": kind, "excess": excess,
                         "final": float(record["final"]), "updates": len(record["loss"]), "visible": visible,
                         **columns})  # fmt: skip
    return pd.DataFrame(rows).assign(kind="run")


def curves_of(ladder: Ladder) -> pd.DataFrame:
    """Loss, largest logit and entropy of one ladder at the measured steps."""
    parts = []
    ended = outcomes(ladder.records)
    for (rate, multiplier), record in ladder.records.items():
        loss = np.append(smooth(record["loss"]), np.nan)  # before the first step there is none to average
        at = np.minimum(record["steps"], len(record["loss"]))
        entropy = record["entropy_rel"].reshape(len(at), -1)
        parts.append(pd.DataFrame({
            "step": record["steps"], "loss": loss[np.maximum(at, 1) - 1], "max_logit": _largest(record["max_logit"]),
            "entropy": np.quantile(entropy, 0.5, axis=1, method="lower"), "rate": rate, "multiplier": multiplier,
            "outcome": ended[rate, multiplier].kind, "optimizer": ladder.optimizer, "seed": ladder.seed,
            "split": ladder.split, "model": ladder.model, "kind": "curve"}))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _largest(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values).any((1, 2)), np.nanmax(np.nan_to_num(values, nan=-np.inf), axis=(1, 2)), np.nan)


def calibrated(ladders: Iterable[Ladder]) -> dict[str, float]:
    """Thresholds from the healthy runs of the calibration seeds."""
    healthy = []
    for ladder in ladders:
        if ladder.split == CALIBRATION:
            ended = outcomes(ladder.records)
            healthy += [record for cell, record in ladder.records.items() if ended[cell].kind == "healthy"]
    return calibrate(healthy)


class FalseAlarms(NamedTuple):
    """Warnings in healthy runs."""

    alarms: int
    steps: float  # until the warning or the end, over all healthy runs

    @property
    def rate(self) -> float:
        """Per 1,000 healthy steps."""
        return 1e3 * self.alarms / self.steps if self.steps else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the rate, of a Poisson count."""
        if not self.steps:
            return math.nan, math.nan
        low = chi2.ppf(LEVEL / 2, 2 * self.alarms) / 2 if self.alarms else 0.0
        return 1e3 * low / self.steps, 1e3 * chi2.isf(LEVEL / 2, 2 * self.alarms + 2) / 2 / self.steps


def false_alarms(runs: pd.DataFrame, rule: str) -> FalseAlarms:
    """Of one rule in a table of runs."""
    healthy = runs[runs.outcome == "healthy"]
    return FalseAlarms(int(healthy[rule].notna().sum()), float(healthy[rule].fillna(healthy.updates).sum()))


class Lead(NamedTuple):
    """What a rule does in failed runs."""

    runs: int
    warned: int
    before: int  # of them, before the failure was visible
    median: float  # lead of the runs with a warning, steps
    low: float  # 95% bootstrap interval over runs
    high: float


def lead(runs: pd.DataFrame, rule: str, kind: str) -> Lead:
    """Of one rule for one kind of failure."""
    failed = runs[runs.outcome == kind]
    leads = (failed.visible - failed[rule]).dropna().to_numpy()
    if not len(leads):
        return Lead(len(failed), 0, 0, math.nan, math.nan, math.nan)
    draws = np.random.default_rng(0).choice(leads, (BOOTSTRAP, len(leads)))
    low, high = np.quantile(np.median(draws, axis=1), (LEVEL / 2, 1 - LEVEL / 2))
    return Lead(len(failed), len(leads), int((leads > 0).sum()), float(np.median(leads)), float(low), float(high))


def steps_earlier(runs: pd.DataFrame, alert: str, baseline: str, kind: str, last: int) -> Comparison | None:
    """How many steps before the baseline the alert warns, run by run; None without two failed runs."""
    failed = runs[runs.outcome == kind]
    if len(failed) < 2:
        return None
    return compare((failed[baseline].fillna(last) - failed[alert].fillna(last)).to_numpy()[None])


def is_earlier(runs: pd.DataFrame, alert: str, baseline: str, kind: str, last: int) -> bool | None:
    """Whether the interval is above 0; None if it contains 0 or cannot be computed."""
    comparison = steps_earlier(runs, alert, baseline, kind, last)
    if comparison is None:
        return None
    low, high = float(comparison.low[0]), float(comparison.high[0])
    return True if low > 0 else False if high < 0 else None


def default_alerts(table: pd.DataFrame, last: int) -> dict[str, list[str]]:
    """The kinds of failure for which each alert passes the rule for being on by default."""
    tests = [table[(table.kind == "run") & (table.split == split)] for split in TESTS]
    return {
        alert: [
            kind for kind in ("collapsed", "diverged")
            if all(false_alarms(runs, alert).rate <= MOST_FALSE
                   and all(is_earlier(runs, alert, baseline, kind, last) for baseline in BASELINES) for runs in tests)
        ]
        for alert in ALERTS
    }  # fmt: skip
