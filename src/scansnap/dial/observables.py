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
from scansnap.measure.fates import context_pairs, fates
from scansnap.measure.ranks import rank_correlation
from scansnap.measure.snap import log_odds, snap_time

REFERENCE = 10.0  # η_Y/η_Z
GAP = 0.05  # of logits: 5% in odds, the least that counts as a gain of distinct over common tokens
GATE = "distinct_gap"  # the observable without which nothing that speaks of scanning counts
LEAST = 3  # distinct tokens of a class without which there is no order among them
# in the place of a verdict, the first that is true: there are no rates by the clock at all, a run went to infinity or
# ended above its start, effective rates are not those that were asked for; none of them is a comparison
UNFIT = ("no rates", "diverged", "rates not matched")
UNJUDGED = (*UNFIT, "not applicable")  # words that a cell has for itself; the others are verdicts of a table
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

    def unfit(self) -> str:
        """Why these runs are no comparison, or an empty string."""
        reasons = (~self.trains, self.diverged, ~self.met)
        return next((word for word, holds in zip(UNFIT, reasons, strict=True) if holds.any()), "")

    def at(self, t: float) -> int:
        """The record nearest to a time in t₀."""
        return int(np.abs(self.data.step.values - t * self.t0).argmin())

    @property
    def reference(self) -> int:
        """Which ratio the observables are of: the reference, or the nearest there is."""
        return int(np.abs(np.log(np.array(self.ratios) / REFERENCE)).argmin())

    @property
    def at_reference(self) -> Trajectory:
        """The runs at the reference ratio alone."""
        at = self.reference
        rows = np.arange(self.data.sizes["run"]).reshape(len(self.ratios), -1)[at]
        here = slice(at, at + 1)
        return replace(self, data=self.data.isel(run=rows), ratios=self.ratios[here], diverged=self.diverged[here],
                       trains=self.trains[here], met=self.met[here])  # fmt: skip

    @property
    def tenth(self) -> int:
        """The first record at which the mean loss at the reference ratio is a tenth of the start, or the last."""
        below = np.flatnonzero(self._low)
        return int(below[0]) if len(below) else len(self._low) - 1

    @property
    def _low(self) -> np.ndarray:
        loss = self.grid(self.data.loss.values)[self.reference].mean(0)
        return np.asarray(loss <= 0.1 * loss[0])

    @cached_property
    def fates(self) -> xr.Dataset:
        return fates(self.data, self.classes)

    def has(self, what: str) -> bool:
        """Whether an observable is defined.

        distinct  distinct and common tokens that can be compared · tenth  a record at which the loss is at a tenth ·
        bos  a first token that is always the same
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

    def of(self, trajectory: Trajectory) -> dict[str, Any]:
        """Its row of a cell: a number for each seed, their mean and t interval, and why it has no verdict, if so."""
        unfit, defined = trajectory.unfit(), all(map(trajectory.has, self.needs))
        values = self.measure(trajectory) if defined else np.full(trajectory.seeds, np.nan)
        value, low, high = t_interval(values)
        return {"observable": self.name, "value": value, "low": low, "high": high,
                "verdict": unfit or ("" if defined else "not applicable"), "by_seed": values.tolist()}  # fmt: skip


def t_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over seeds and its 95% t interval; no interval (NaN) where a seed has no number or all seeds are equal."""
    comparison = compare(values)
    low, high = (float(x[0]) if np.isfinite(x[0]) else np.nan for x in (comparison.low, comparison.high))
    return float(comparison.mean[0]), low, high


def _share(of: Trajectory, kind: str, rises: bool) -> np.ndarray:
    """Adam raises what is rare, distinct or not, and lowers what is frequent: without a gap that is no fate."""
    change = of.fates.z_change.values[:, of.fates.kind.values == kind]
    return of.grid(((change > 0) if rises else (change < 0)).mean(1))[of.reference]


def log_odds_rise(of: Trajectory) -> np.ndarray:
    """S at the end: how far attention has gone from common to distinct tokens."""
    return of.grid(log_odds(of.data, of.classes).mean("seq_class").values[:, -1])[of.reference]


def distinct_gap(of: Trajectory) -> np.ndarray:
    """Δz of distinct less that of equally frequent common tokens, mean over classes.

    At equal P(l|n), for frequency alone moves logits too: Adam takes attention from frequent tokens even where next
    tokens are shuffled, and the log-odds of distinct against common tokens, most of which are more frequent, rise.
    """
    z = of.data.z.values
    change, p = z[:, -1] - z[:, 0], of.classes.p_context
    row = {int(m): i for i, m in enumerate(of.data["query"].values)}
    gaps = []
    for n, common in comparable(of.classes).items():
        own = of.classes.distinct(n)
        own = own[np.argsort(p[n, own])]
        dz = change[:, row[int(of.classes.query[n])]]
        gaps.append([(np.interp(p[n, common], p[n, own], row_dz[own]) - row_dz[common]).mean() for row_dz in dz])
    return of.grid(np.mean(gaps, axis=0))[of.reference] if gaps else np.full(of.seeds, np.nan)


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


def _mass(of: Trajectory) -> np.ndarray:
    mask = distinct_mask(of.classes)
    return of.grid((of.data.attention.values[:, -1] * mask).sum(-1).mean(-1))[of.reference]


def order(of: Trajectory, record: int) -> np.ndarray:
    """Spearman(Δz, P) over the distinct tokens of each class, mean over classes."""
    z = of.data.z.values
    change = z[:, record] - z[:, 0]  # (run, Q, M)
    row = {int(m): i for i, m in enumerate(of.data["query"].values)}
    pairs, correlations = context_pairs(of.classes), []
    for n in range(of.classes.n_classes):
        at = (pairs["seq_class"].values == n) & (pairs["kind"].values == "distinct")
        if at.sum() < LEAST:
            continue
        dz = change[:, row[int(of.classes.query[n])], pairs["token"].values[at]]
        p = np.round(pairs["p_context"].values[at], 12)
        correlations.append(rank_correlation(dz, np.broadcast_to(p, dz.shape)))
    mean = np.nan_to_num(np.mean(correlations, axis=0), nan=0.0)  # what does not move has no order
    return of.grid(mean)[of.reference]


def _support(of: Trajectory) -> np.ndarray:
    return of.grid(effective_support(of.data.attention).values[:, -1].mean(-1))


def _c_max(of: Trajectory) -> np.ndarray:
    return of.grid(top_mass(of.data.attention).values[:, -1].mean(-1))[of.reference]


def _sink(of: Trajectory) -> np.ndarray:
    """What a token attends to that is always there and says nothing; 1/(T − 1) before training."""
    return of.grid(of.data.attention.values[:, -1, :, of.data.attrs["bos"]].mean(-1))[of.reference]


def _drift(of: Trajectory) -> np.ndarray:
    """Share of the whole movement that falls between 10 and 100 t₀; 1 where there was none."""
    odds = of.grid(log_odds(of.data, of.classes).mean("seq_class").values)[of.reference]
    late, end = odds[:, of.at(10)], odds[:, of.at(100)]
    with np.errstate(all="ignore"):
        return np.where(end > 0, np.minimum(np.abs(end - late) / np.abs(end), 1.0), 1.0)


def _exponent(of: Trajectory) -> np.ndarray:
    """dS/d ln t over the last decade: frozen in t is not frozen in ln t."""
    odds = of.grid(log_odds(of.data, of.classes).mean("seq_class").values)[of.reference]
    first, last = of.at(10), of.at(100)
    return (odds[:, last] - odds[:, first]) / np.log(of.data.step.values[last] / max(of.data.step.values[first], 1))


def _snap(of: Trajectory) -> np.ndarray:
    """t_snap/t₀, pooled over heads by their mean; NaN where attention did not snap."""
    if not np.isfinite(of.at_reference.data.attention.values).all():
        return np.full(of.seeds, np.nan)
    snap = snap_time(of.at_reference.data, of.classes, pool=False, resamples=50)
    return snap.t_snap.values.reshape(of.seeds, -1).mean(1) / of.t0


def _ratio_effect(of: Trajectory) -> np.ndarray:
    """dN_eff/d ln(η_Y/η_Z), least squares over the ratios: above 0, the faster decoder leaves attention denser."""
    if len(of.ratios) < 2:
        return np.full(of.seeds, np.nan)
    x = np.log(of.ratios)
    return (x - x.mean()) @ _support(of) / ((x - x.mean()) ** 2).sum()


OBSERVABLES: tuple[Observable, ...] = (
    Observable(GATE, "logits of distinct less those of equally frequent common tokens", distinct_gap, least=GAP),
    Observable("distinct_rise", "distinct tokens whose logit rises", lambda of: _share(of, "distinct", True),
               least=0.95, scans=True),
    Observable("common_fall", "common tokens whose logit falls", lambda of: _share(of, "common", False),
               least=0.95, scans=True),
    Observable("log_odds_rise", "log-odds of attention on distinct tokens", log_odds_rise),
    Observable("distinct_mass", "attention on distinct tokens at the end", _mass),
    Observable("scan_order_tenth", "Spearman(Δz, P) at 10% loss", lambda of: order(of, of.tenth), least=0.8,
               needs=("distinct", "tenth")),
    Observable("scan_order_end", "Spearman(Δz, P) at the end", lambda of: order(of, -1), least=0.8),
    Observable("effective_tokens", "e^entropy of attention at the end", lambda of: _support(of)[of.reference],
               needs=()),
    Observable("c_max", "largest attention at the end", _c_max, needs=()),
    Observable("sink", "attention on the first token (BOS) at the end", _sink, needs=("bos",)),
    Observable("frozen", "share of the movement from 10 to 100 t₀", _drift, most=0.1, scans=True),
    Observable("late_speed", "dS/d ln t from 10 to 100 t₀", _exponent),
    Observable("snap", "t_snap/t₀", _snap, least=0.5, most=2.0, scans=True),
    Observable("ratio_effect", "d N_eff/d ln(η_Y/η_Z)", _ratio_effect, least=0.0, scans=True),
)  # fmt: skip
