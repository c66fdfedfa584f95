"""Paths of attention that a theory of ours predicts, and how far a run is from them.

A path has the layout of evidence, so that whatever a statement of the paper measures on a run can be measured on the
path, for comparison on the axes of the statement that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline

from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.time_windows import TRANSITION
from scansnap.measure.comparison import LEVEL, t_half_width

TOLERANCE = 1 / MUCH  # a tenth, as for equations of the paper


@dataclass(frozen=True)
class PredictedPath(Evidence):
    """Predicted logits and attention, from zero at t = 0; a path has no gradients."""

    @cached_property
    def z_rate(self) -> Array:
        """(n, Q, M) ż by splines in ln t, of z (1/t² + 1/t₀′²), which is smooth at both ends; 0 at the start."""
        after = self.t > 0
        t, log_t = self.t[after, None, None], np.log(self.t[after])
        rate = np.zeros_like(self.z)
        if len(log_t) > 1:
            weight = 1 / t**2 + 1 / self.t_scan**2
            spline = CubicSpline(log_t, self.z[after] * weight)
            rate[after] = (spline(log_t, 1) + 2 * self.z[after] / t**2) / (weight * t)
        return rate

    def xi(self, n: int) -> Array:
        """(n,) ξ_n = Σ ż_l/(η_Z p_n Σ f_l²) over the distinct tokens of the class (`scansnap.measure.growth`)."""
        ids = self.classes.distinct(n)
        speed = self.z_rate[:, self.class_query[n]][:, ids].sum(-1) / (self.f[:, n, ids] ** 2).sum(-1)
        return np.asarray(speed / (self.eta_z * self.classes.p_class[n]))


def make_path(evidence: Evidence, t: Array, z: Array) -> PredictedPath:
    """The path of the logits (n, Q, M) at the times t."""
    values = {field.name: getattr(evidence, field.name) for field in fields(Evidence)}
    values |= {"source": "flow", "t": t, "z": z, "attention": evidence.attention_at(z), "sampled": False}
    values |= dict.fromkeys(("g", "gap", "y", "y_times", "z_seeds", "loss"))
    return PredictedPath(**values)


@dataclass(frozen=True)
class Deviation:
    """The largest relative distance of a run from a path, with the interval that noise leaves it."""

    share: float
    interval: tuple[float, float] | None
    time: int  # index on the path
    row: int  # query or class
    entry: int  # token

    def remedy(self, n_runs: int) -> str:
        """What would decide an undecided claim."""
        if n_runs < 2:
            return "one run with sampled updates cannot separate drift from noise; several seeds at the same rates can"
        return f"the noise of {n_runs} seeds exceeds the tolerance; more seeds would decide"


def run_assumptions(evidence: Evidence) -> list[Assumption]:
    """What makes a run follow the flow: long contexts, and for SGD small and, where sampled, many steps."""
    steps = ["eta_y below 1"] if evidence.source == "sgd" else []
    return evidence.select_assumptions("long sequences", "many steps", *steps)


def judged_times(evidence: Evidence, t: Array) -> Array:
    """Indices into t, recorded times of the evidence, that are judged; of sampled runs the last, which moved most."""
    inside = np.flatnonzero(np.isin(t, evidence.t[TRANSITION.select(evidence)]))
    return inside[-1:] if evidence.sampled else inside


def logits_by_seed(evidence: Evidence, t: Array) -> Array:
    """(R, n, Q, M) z of the run, or of all seeds, at recorded times t."""
    at = np.searchsorted(evidence.t, t)
    return evidence.z[None, at] if evidence.z_seeds is None else evidence.z_seeds[:, at]


def largest_deviation(evidence: Evidence, measured: Array, predicted: Array, t: Array) -> Deviation | None:
    """The distance of runs (R, n, X, L) from the predicted (n, X, L): the largest entry of the difference over the
    largest measured one, by row X and time. None if nothing has moved beyond rounding.

    A sum over steps differs from its integral by a share of 1/t, which is subtracted for SGD. For sampled runs the mean
    is compared, with a t interval of the entry that is furthest off, at `LEVEL` for all entries together.
    """
    mean = measured.mean(0)
    size = np.abs(mean).max(-1)  # (n, X)
    moved = ~(size <= evidence.resolution)
    if not moved.any():
        return None
    off = np.abs(mean - predicted) / np.where(size > 0, size, 1)[..., None]
    if evidence.source == "sgd":
        off = np.where(np.isfinite(off), np.maximum(off - 1 / t[:, None, None], 0), off)
    i, row, entry = index_of_largest(np.where(moved[..., None], off, 0.0))
    share, interval = float(off[i, row, entry]), None
    if evidence.sampled:
        interval = (0.0, np.inf)
        if len(measured) > 1:
            spread = measured[:, i, row].std(0, ddof=1)  # (L,)
            entries = max(int(np.count_nonzero(spread)), 1)
            width = float(t_half_width(spread.max(), len(measured), LEVEL / entries) / size[i, row])
            interval = (max(share - width, 0.0), share + width)
    return Deviation(share, interval, i, row, entry)
