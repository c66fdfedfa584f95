"""What is measured in every cell, with the functions that measure YZ runs, and the thresholds it is tested against.

A cell is read as a trajectory in the form of ``simulate``, with each head as a run of its own. An observable is one
number for each seed, at the ratio of `REFERENCE` (the ratio effect: over all ratios), averaged over heads or
classes. Whether a number is beyond its threshold is decided for a whole table (`scansnap.dial.verdicts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from scansnap.classes import SequenceClasses
from scansnap.measure.attention import distinct_mask, effective_support, top_mass
from scansnap.measure.comparison import compare
from scansnap.measure.fates import fates
from scansnap.measure.ranks import rank_correlation
from scansnap.measure.snap import log_odds, snap_time

REFERENCE = 10.0  # η_Y/η_Z
GAP = 0.05  # of logits: 5% in odds, the least that counts as a gain of distinct over common tokens
GATE = "distinct_gap"  # observables of scanning are meaningless where this one fails
LEAST = 3  # distinct tokens of a class; fewer have no order
# Instead of a verdict, the first that is true: no rates were found, a run became non-finite or ended above its initial
# loss, effective rates differ from the wanted ones. None of them is a comparison.
UNFIT = ("no rates", "diverged", "rates not matched")
UNJUDGED = (*UNFIT, "not applicable")  # set by the cell itself; all other verdicts are those of a table
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Trajectory:
    """The runs of a cell: times in t₀, whether each run stayed finite, and whether the rates of each ratio match."""

    data: xr.Dataset  # run (ratio-major, then seed, then head), step, seq_class, token, query
    classes: SequenceClasses
    ratios: tuple[float, ...]
    seeds: int
    heads: int
    t0: float  # in steps
    diverged: np.ndarray  # (ratios, seeds)
    trains: np.ndarray  # (ratios,) whether there are rates
    met: np.ndarray  # (ratios,) whether effective rates are the wanted ones

    def grid(self, values: np.ndarray) -> np.ndarray:
        """(run, …) as (ratios, seeds, …): heads averaged."""
        return values.reshape(len(self.ratios), self.seeds, self.heads, *values.shape[1:]).mean(2)

    def at_ratio(self, values: np.ndarray) -> np.ndarray:
        """(run, …) as (seeds, …) at the reference ratio."""
        return self.grid(values)[self.reference]

    def unfit(self) -> str:
        """Why these runs are no comparison, or an empty string."""
        reasons = (~self.trains, self.diverged, ~self.met)
        return next((word for word, holds in zip(UNFIT, reasons, strict=True) if holds.any()), "")

    def at(self, t: float) -> int:
        """The record nearest to a time in t₀."""
        return int(np.abs(self.data.step.values - t * self.t0).argmin())

    @property
    def reference(self) -> int:
        """Index of the reference ratio, or of the nearest."""
        return int(np.abs(np.log(np.array(self.ratios) / REFERENCE)).argmin())

    @property
    def at_reference(self) -> Trajectory:
        """The runs at the reference ratio alone."""
        rows = np.arange(self.data.sizes["run"]).reshape(len(self.ratios), -1)[self.reference]
        here = slice(self.reference, self.reference + 1)
        return replace(self, data=self.data.isel(run=rows), ratios=self.ratios[here], diverged=self.diverged[here],
                       trains=self.trains[here], met=self.met[here])  # fmt: skip

    @property
    def tenth(self) -> int:
        """The first record at which the mean loss at the reference ratio is a tenth of the start, or the last."""
        below = np.flatnonzero(self._low)
        return int(below[0]) if len(below) else len(self._low) - 1

    @property
    def _low(self) -> np.ndarray:
        loss = self.at_ratio(self.data.loss.values).mean(0)
        return np.asarray(loss <= 0.1 * loss[0])

    @cached_property
    def fates(self) -> xr.Dataset:
        return fates(self.data, self.classes)

    @cached_property
    def log_odds(self) -> np.ndarray:
        """Log-odds of attention on distinct against common tokens, mean over classes: (run, step)."""
        return np.asarray(log_odds(self.data, self.classes).mean("seq_class").values)

    @cached_property
    def z_change(self) -> np.ndarray:
        """z − z(0) of the classes' queries: (run, step, seq_class, token)."""
        z, rows = self.data.z.values, np.searchsorted(self.data["query"].values, self.classes.query)
        return np.asarray((z - z[:, :1])[:, :, rows])

    def has(self, what: str) -> bool:
        """Whether there are comparable tokens (distinct), a record at a tenth of the loss (tenth), a first token (bos).

        Without them observables that need them are not defined.
        """
        if what == "distinct":
            return bool(comparable(self.classes))
        return bool(self._low.any()) if what == "tenth" else what in self.data.attrs


@dataclass(frozen=True)
class Observable:
    """A number per seed and the interval in which the paper's picture holds; without bounds it is only measured."""

    name: str
    title: str
    measure: Callable[[Trajectory], np.ndarray]  # (seeds,)
    least: float | None = None
    most: float | None = None
    needs: tuple[str, ...] = ("distinct",)  # what a trajectory must have for it to be defined
    scans: bool = field(default=False, kw_only=True)  # has no meaning where attention does not go to distinct tokens

    @property
    def bounded(self) -> bool:
        """Whether it has a threshold, and so a verdict."""
        return self.least is not None or self.most is not None

    @property
    def bounds(self) -> str:
        """The interval as text."""
        if self.least is not None and self.most is not None:
            return f" in [{self.least:g}, {self.most:g}]"
        return f" ≥ {self.least:g}" if self.least is not None else f" ≤ {self.most:g}" if self.most is not None else ""

    def margins(self, values: np.ndarray) -> list[np.ndarray]:
        """How far each seed is inside each threshold, (seeds,): negative where it is outside."""
        above = [] if self.least is None else [values - self.least]
        return above + ([] if self.most is None else [self.most - values])

    def of(self, runs: Trajectory) -> dict[str, Any]:
        """Its row of a cell: a number for each seed, their mean and t interval, and why it has no verdict, if so."""
        unfit, defined = runs.unfit(), all(map(runs.has, self.needs))
        values = self.measure(runs) if defined else np.full(runs.seeds, np.nan)
        value, low, high = t_interval(values)
        return {"observable": self.name, "value": value, "low": low, "high": high,
                "verdict": unfit or ("" if defined else "not applicable"), "by_seed": values.tolist()}  # fmt: skip


def t_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over seeds and its 95% t interval; no interval (NaN) where a seed has no number or all seeds are equal."""
    comparison = compare(values)
    low, high = (float(x[0]) if np.isfinite(x[0]) else np.nan for x in (comparison.low, comparison.high))
    return float(comparison.mean[0]), low, high


def _share(runs: Trajectory, kind: str, rises: bool) -> np.ndarray:
    """Adam raises what is rare, distinct or not, and lowers what is frequent: without a gap that is no fate."""
    change = runs.fates.z_change.values[:, runs.fates.kind.values == kind]
    return runs.at_ratio(((change > 0) if rises else (change < 0)).mean(1))


def log_odds_rise(runs: Trajectory) -> np.ndarray:
    return runs.at_ratio(runs.log_odds[:, -1])


def distinct_gap(runs: Trajectory) -> np.ndarray:
    """Δz of distinct less that of equally frequent common tokens, mean over classes.

    At equal P(l|n), for frequency alone moves logits too: Adam takes attention from frequent tokens even where next
    tokens are shuffled, and the log-odds of distinct against common tokens, most of which are more frequent, rise.
    """
    gaps = []
    for n, common in comparable(runs.classes).items():
        p, own = runs.classes.p_context[n], runs.classes.distinct(n)
        own = own[np.argsort(p[own])]
        gaps.append([(np.interp(p[common], p[own], dz[own]) - dz[common]).mean() for dz in runs.z_change[:, -1, n]])
    return runs.at_ratio(np.mean(gaps, axis=0)) if gaps else np.full(runs.seeds, np.nan)


def gap_curve(runs: Trajectory) -> np.ndarray:
    """Mean Δz of distinct less that of all common tokens, at every record: (run, step)."""
    dz, classes = runs.z_change, runs.classes
    gaps = [dz[:, :, n, classes.distinct(n)].mean(-1) - dz[:, :, n, classes.common_of(n)].mean(-1)
            for n in comparable(classes)]  # fmt: skip
    return np.mean(gaps, axis=0) if gaps else np.full(dz.shape[:2], np.nan)


def comparable(classes: SequenceClasses) -> dict[int, np.ndarray]:
    """The common tokens of each class that are as frequent as some of its distinct ones; classes without are left out.

    In classes by construction that is all of them. In text common words may be more frequent than any distinct one.
    """
    matched = {}
    for n, p in enumerate(classes.p_context):
        own, common = classes.distinct(n), classes.common_of(n)
        if len(own) >= LEAST:
            alike = (p[common] <= p[own].max() * (1 + _ROUNDING)) & (p[common] >= p[own].min() * (1 - _ROUNDING))
            matched[n] = common[alike]
    return {n: common for n, common in matched.items() if len(common)}


def _mass(runs: Trajectory) -> np.ndarray:
    return runs.at_ratio((runs.data.attention.values[:, -1] * distinct_mask(runs.classes)).sum(-1).mean(-1))


def order(runs: Trajectory, record: int) -> np.ndarray:
    """Spearman(Δz, P) over the distinct tokens of each class, mean over classes; 0 where nothing moves."""
    correlations = []
    for n in range(runs.classes.n_classes):
        own = runs.classes.distinct(n)
        if len(own) >= LEAST:
            dz, p = runs.z_change[:, record, n, own], np.round(runs.classes.p_context[n, own], 12)
            correlations.append(rank_correlation(dz, np.broadcast_to(p, dz.shape)))
    return runs.at_ratio(np.nan_to_num(np.mean(correlations, axis=0), nan=0.0))


def _support(runs: Trajectory) -> np.ndarray:
    return runs.grid(effective_support(runs.data.attention).values[:, -1].mean(-1))


def _c_max(runs: Trajectory) -> np.ndarray:
    return runs.at_ratio(top_mass(runs.data.attention).values[:, -1].mean(-1))


def _sink(runs: Trajectory) -> np.ndarray:
    """Attention on a first token that is always the same; 1/(T − 1) before training."""
    return runs.at_ratio(runs.data.attention.values[:, -1, :, runs.data.attrs["bos"]].mean(-1))


def _late_movement(runs: Trajectory) -> np.ndarray:
    """Share of the movement of the log-odds that comes between 10 and 100 t₀; 1 where there was none."""
    odds = runs.at_ratio(runs.log_odds)
    late, end = odds[:, runs.at(10)], odds[:, runs.at(100)]
    with np.errstate(all="ignore"):
        return np.where(end > 0, np.minimum(np.abs(end - late) / np.abs(end), 1.0), 1.0)


def _late_speed(runs: Trajectory) -> np.ndarray:
    """dS/d ln t over the last decade."""
    odds, first, last = runs.at_ratio(runs.log_odds), runs.at(10), runs.at(100)
    return (odds[:, last] - odds[:, first]) / np.log(runs.data.step.values[last] / max(runs.data.step.values[first], 1))


def _t_snap(runs: Trajectory) -> np.ndarray:
    """t_snap/t₀, mean over heads; NaN where attention did not snap."""
    runs = runs.at_reference
    if not np.isfinite(runs.data.attention.values).all():
        return np.full(runs.seeds, np.nan)
    snap = snap_time(runs.data, runs.classes, pool=False, resamples=50)
    return snap.t_snap.values.reshape(runs.seeds, -1).mean(1) / runs.t0


def _ratio_effect(runs: Trajectory) -> np.ndarray:
    """dN_eff/d ln(η_Y/η_Z), least squares over the ratios: above 0, the faster decoder leaves attention denser."""
    if len(runs.ratios) < 2:
        return np.full(runs.seeds, np.nan)
    x = np.log(runs.ratios)
    return (x - x.mean()) @ _support(runs) / ((x - x.mean()) ** 2).sum()


OBSERVABLES: tuple[Observable, ...] = (
    Observable(GATE, "logits of distinct less those of equally frequent common tokens", distinct_gap, least=GAP),
    Observable("distinct_rise", "distinct tokens whose logit rises", lambda runs: _share(runs, "distinct", True),
               least=0.95, scans=True),
    Observable("common_fall", "common tokens whose logit falls", lambda runs: _share(runs, "common", False),
               least=0.95, scans=True),
    Observable("log_odds_rise", "log-odds of attention on distinct tokens", log_odds_rise),
    Observable("distinct_mass", "attention on distinct tokens at the end", _mass),
    Observable("scan_order_tenth", "Spearman(Δz, P) at 10% loss", lambda runs: order(runs, runs.tenth), least=0.8,
               needs=("distinct", "tenth")),
    Observable("scan_order_end", "Spearman(Δz, P) at the end", lambda runs: order(runs, -1), least=0.8),
    Observable("effective_tokens", "e^entropy of attention at the end", lambda runs: _support(runs)[runs.reference],
               needs=()),
    Observable("c_max", "largest attention at the end", _c_max, needs=()),
    Observable("sink", "attention on the first token (BOS) at the end", _sink, needs=("bos",)),
    Observable("late_movement", "share of the movement from 10 to 100 t₀", _late_movement, most=0.1, scans=True),
    Observable("late_speed", "dS/d ln t from 10 to 100 t₀", _late_speed),
    Observable("t_snap", "t_snap/t₀", _t_snap, least=0.5, most=2.0, scans=True),
    Observable("ratio_effect", "d N_eff/d ln(η_Y/η_Z)", _ratio_effect, least=0.0, scans=True),
)  # fmt: skip
RENAMED = {"frozen": "late_movement", "snap": "t_snap"}  # names in results of versions up to 0.2
