"""What failure, warning and false alarm mean, and which alerts are on by default: fixed before any run was made.

**Runs.** Each model, optimiser and seed has a ladder of learning rates, with query and key weights at the same rate or
at a multiple of it. The reference of a run is the run of the same seed with the lowest final loss among those whose
rate and multiplier are at most its own. So a run that is slow because its rate is low has not failed, and a run at a
higher rate is compared with the best rate of the ladder. From the final loss on validation text:

    diverged    it is not finite, or the training loss ends above where it began
    collapsed   finite, and at least ``FAILED`` nats above the reference: the silent failure
    healthy     at most ``HEALTHY`` nats above the reference
    between     the rest, which counts as neither

Nothing about attention enters. The failure is *visible* from the first step on from which the training loss, a mean
over ``WINDOW`` steps, stays ``FAILED`` nats above that of the reference, or is not finite. Lead is the number of steps
from the alarm to that step; negative after it. Nobody who trains has the reference: the lead is against hindsight.
Where the reference has diverged too, the failure is visible from the first step on from which the loss stays above its
first value. (This sentence was added after the runs, in which it concerns the leads of Llama with SGD and no verdict.)

**Warnings.** A rule gives a score at some steps and warns once, at the first step at which the score is above its
threshold. Alerts of the probe have scores where the probe measures by its default schedule, baselines at every step.

**Calibration**, the same for all: the threshold is ``MARGIN`` times the largest score in a healthy run of the
calibration seeds, rounded up to the next of 1, 1.5, 2, 3, 5 and 7 times a power of ten. ``FROZEN`` has the results; the
study computes them again and says if they differ. Other seeds, and another architecture, are used for nothing else.

**False alarms** are warnings in healthy runs, per 1,000 steps until the warning or the end. Their interval is that of
a Poisson count.

**Earlier.** For each failed run of a kind: the step of a baseline's warning less that of the alert's, where a warning
that never comes counts as the last step. An alert is earlier if the 95% t interval of the mean over runs is above 0.

**On by default** is an alert that, for one kind of failure, is earlier than every baseline on the held-out seeds and
on the held-out architecture, with at most ``MOST_FALSE`` false alarms per 1,000 healthy steps on each.

**Expected** before the runs. (1) Divergence gives hardly any notice, and the gradient norm is the first to say so.
(2) Silent collapse shows in the largest logit and in entropy, and in neither baseline. (3) Without a margin a threshold
on the largest logit has false alarms where query and key rates are a multiple of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.paper.shared.run_cache import Record
from scansnap.probe.alerts import ENTROPY, MAX_LOGIT

HEALTHY, FAILED = 0.1, 0.3  # nats above the reference
WINDOW = 10  # steps of a mean of the training loss
MARGIN = 1.25
ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
MOST_FALSE = 0.2  # per 1,000 healthy steps
LAST = 20  # training losses whose mean is compared with the first one
OUTCOMES = ("healthy", "between", "collapsed", "diverged")
KINDS = ("collapsed", "diverged")

Cell = tuple[float, float]  # rate and multiplier


class Scores(NamedTuple):
    """The score of a rule: the larger, the worse; infinite where something is not finite."""

    steps: np.ndarray
    values: FloatArray


def _largest_logit(record: Record) -> Scores:
    """Over all heads."""
    return _of_probe(record, record["max_logit"].max((1, 2)))


def _low_entropy(record: Record) -> Scores:
    """1 over the relative entropy that half of the heads are at or below."""
    entropy = np.sort(record["entropy_rel"].reshape(len(record["steps"]), -1), axis=1)
    with np.errstate(divide="ignore"):
        return _of_probe(record, 1 / entropy[:, (entropy.shape[1] - 1) // 2])


def _not_finite(record: Record) -> Scores:
    """1 where attention, output or the batch's loss is not finite."""
    return Scores(record["steps"], record["nonfinite"].astype(np.float64))


def _of_probe(record: Record, values: FloatArray) -> Scores:
    return Scores(record["steps"], np.where(record["nonfinite"] | ~np.isfinite(values), np.inf, values))


def _loss_spike(record: Record) -> Scores:
    """The loss less the median of the 20 steps before, from step 5 on."""
    return _per_step(_before(record["loss"], 20, lambda loss, earlier: loss - np.median(earlier)))


def _loss_rise(record: Record) -> Scores:
    """The mean loss over ``WINDOW`` steps less its smallest value so far."""
    mean = smooth(record["loss"])
    return _per_step(mean - np.minimum.accumulate(np.where(np.isfinite(mean), mean, np.inf)))


def _gradient_norm(record: Record) -> Scores:
    return _per_step(record["grad_norm"])


def _gradient_spike(record: Record) -> Scores:
    """The gradient norm over the median of the 50 steps before, from step 5 on."""
    return _per_step(_before(record["grad_norm"], 50, lambda norm, earlier: norm / np.median(earlier)))


def _per_step(values: FloatArray) -> Scores:
    return Scores(np.arange(len(values)), np.where(np.isfinite(values), values, np.inf))


def _before(values: FloatArray, n: int, compare: Callable[[float, FloatArray], float]) -> FloatArray:
    """Each value against at most n before it; 0 for the first five."""
    result = np.zeros(len(values))
    for i in range(5, len(values)):
        if np.isfinite(values[i - 1]):
            result[i] = compare(values[i], values[max(0, i - n) : i])
    return np.where(np.isfinite(values), result, np.inf)


ALERTS: dict[str, Callable[[Record], Scores]] = {
    "max_logit": _largest_logit,
    "entropy_collapse": _low_entropy,
    "nonfinite": _not_finite,
}
BASELINES: dict[str, Callable[[Record], Scores]] = {
    "loss_spike": _loss_spike,
    "loss_rise": _loss_rise,
    "gradient_norm": _gradient_norm,
    "gradient_spike": _gradient_spike,
}
RULES = {**ALERTS, **BASELINES}
UNCALIBRATED = {"nonfinite": 0.5}
FROZEN = {"max_logit": MAX_LOGIT, "entropy_collapse": 1 / ENTROPY, **UNCALIBRATED, "loss_spike": 1.0,
          "loss_rise": 0.3, "gradient_norm": 15.0, "gradient_spike": 20.0}  # fmt: skip


def smooth(values: FloatArray) -> FloatArray:
    """Mean over the last ``WINDOW`` values, fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - WINDOW, 0)
    return (total[end] - total[start]) / (end - start)


def warning(scores: Scores, threshold: float) -> float:
    """The first step above the threshold; ∞ if there is none."""
    above = np.flatnonzero(scores.values > threshold)
    return float(scores.steps[above[0]]) if len(above) else math.inf


def threshold_of(largest: float) -> float:
    """``MARGIN`` times the largest healthy score, rounded up."""
    wanted = MARGIN * largest
    if not (math.isfinite(wanted) and wanted > 0):
        return math.inf  # no healthy run, or one with an infinite score: never warns
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(round(factor * power, 12) for factor in (*ROUND, 10.0) if factor * power >= wanted * (1 - 1e-12))


def calibrate(healthy: Iterable[Record]) -> dict[str, float]:
    """The threshold of every rule."""
    records = list(healthy)
    largest = {name: max((float(rule(record).values.max()) for record in records), default=math.nan)
               for name, rule in RULES.items()}  # fmt: skip
    return {name: UNCALIBRATED.get(name, threshold_of(value)) for name, value in largest.items()}


class Outcome(NamedTuple):
    """How a run ended."""

    kind: str  # of OUTCOMES
    excess: float  # nats above the reference, ∞ if not finite
    visible: float  # the step from which the failure is visible; NaN unless it failed


def outcomes(ladder: Mapping[Cell, Record]) -> dict[Cell, Outcome]:
    """Of all runs of one model, optimiser and seed."""
    return {cell: _outcome(record, _reference(ladder, cell)) for cell, record in ladder.items()}


def _reference(ladder: Mapping[Cell, Record], cell: Cell) -> Record:
    lower = [record for (rate, multiplier), record in ladder.items() if rate <= cell[0] and multiplier <= cell[1]]
    return min(lower, key=lambda record: float(record["final"]))


def _outcome(record: Record, reference: Record) -> Outcome:
    excess = float(record["final"] - reference["final"]) if np.isfinite(record["final"]) else math.inf
    if has_diverged(record):
        return Outcome("diverged", excess, visible_from(record, reference))
    if excess >= FAILED:
        return Outcome("collapsed", excess, visible_from(record, reference))
    return Outcome("healthy" if excess <= HEALTHY else "between", excess, math.nan)


def has_diverged(record: Record) -> bool:
    """Whether the loss is not finite in the end, or above its first value."""
    ended = np.mean(record["loss"][-LAST:])
    return not (np.isfinite(record["final"]) and ended <= record["loss"][0])


def visible_from(record: Record, reference: Record) -> float:
    """The step from which the loss stays above that of the reference, or above its first value if that diverged too."""
    loss = smooth(record["loss"])
    limit = np.full(len(loss), record["loss"][0])
    if not has_diverged(reference):
        limit = smooth(reference["loss"])[: len(loss)] + FAILED
    fine = np.flatnonzero(loss <= limit)  # false for NaN
    return float(fine[-1] + 1) if len(fine) else 0.0
