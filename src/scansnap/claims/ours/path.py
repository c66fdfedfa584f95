"""Where attention goes by a theory of ours, and how far a run is from it.

A path is laid out as evidence, so that whatever a statement of the paper measures on a run can be measured on it: that
is what holds instead, on the axes of the statement that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline

from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem4.attention import attention_at
from scansnap.claims.windows import TRANSITION
from scansnap.measure.comparison import LEVEL, t_half_width

TOLERANCE = 1 / MUCH  # an equation is asked to hold to a tenth, as those of the paper are


@dataclass(frozen=True)
class Path(Evidence):
    """Logits and attention of a theory, from zero at t = 0; it has no gradients."""

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
        """(n,) ξ_n = Σ ż_l/(η_Z p_n Σ f_l²) over the distinct tokens of the class (:mod:`scansnap.measure.growth`)."""
        ids = self.classes.distinct(n)
        speed = self.z_rate[:, self.class_query[n]][:, ids].sum(-1) / (self.f[:, n, ids] ** 2).sum(-1)
        found: Array = speed / (self.eta_z * self.classes.p_class[n])
        return found


def path(evidence: Evidence, t: Array, z: Array) -> Path:
    """Of the logits (n, Q, M) at the times t."""
    kept = {field.name: getattr(evidence, field.name) for field in fields(Evidence)}
    kept |= {"source": "flow", "t": t, "z": z, "attention": attention_at(z, evidence), "sampled": False}
    kept |= dict.fromkeys(("g", "gap", "y", "y_times", "z_seeds", "loss"))
    return Path(**kept)


@dataclass(frozen=True)
class Off:
    """The largest relative distance of a run from a path, and the interval that noise leaves it."""

    share: float
    interval: tuple[float, float] | None
    time: int  # place on the path
    row: int  # query or class
    entry: int  # token

    def words(self, n_runs: int) -> str:
        """What would decide."""
        if n_runs < 2:
            return "one run with sampled updates cannot tell drift from noise; several seeds at the same rates can"
        return f"the noise of {n_runs} seeds reaches across the tolerance; more would tell"


def of_a_run(evidence: Evidence) -> list[Assumption]:
    """What makes a run one of the flow: long contexts, and of SGD small and, where they are sampled, many steps."""
    steps = ["eta_y below 1"] if evidence.source == "sgd" else []
    return evidence.assume("long sequences", "many steps", *steps)


def judged_times(evidence: Evidence, t: Array) -> Array:
    """Places in t, recorded times of the evidence, at which it is judged; of sampled runs the last, which has most."""
    inside = np.flatnonzero(np.isin(t, evidence.t[TRANSITION.times(evidence)]))
    return inside[-1:] if evidence.sampled else inside


def runs(evidence: Evidence, t: Array) -> Array:
    """(R, n, Q, M) z of the run, or of all seeds, at the times t, which are recorded ones."""
    at = np.searchsorted(evidence.t, t)
    return evidence.z[None, at] if evidence.z_seeds is None else evidence.z_seeds[:, at]


def distance(evidence: Evidence, measured: Array, predicted: Array, t: Array) -> Off | None:
    """How far runs (R, n, X, L) are from the predicted (n, X, L): the largest entry of the difference over that of
    what is measured, by row X and time. None if nothing has moved beyond rounding.

    A sum over steps differs from its integral by a share of 1/t, which is taken off for SGD. Of sampled runs the mean
    is compared, with a t interval of its entry that is furthest off, at :data:`LEVEL` for all of them together.
    """
    mean = measured.mean(0)
    size = np.abs(mean).max(-1)  # (n, X)
    moved = ~(size <= evidence.told)
    if not moved.any():
        return None
    off = np.abs(mean - predicted) / np.where(size > 0, size, 1)[..., None]
    if evidence.source == "sgd":
        off = np.where(np.isfinite(off), np.maximum(off - 1 / t[:, None, None], 0), off)
    i, row, entry = worst(np.where(moved[..., None], off, 0.0))
    share, interval = float(off[i, row, entry]), None
    if evidence.sampled:
        interval = (0.0, np.inf)
        if len(measured) > 1:
            spread = measured[:, i, row].std(0, ddof=1)  # (L,)
            entries = max(int(np.count_nonzero(spread)), 1)
            wide = float(t_half_width(spread.max(), len(measured), LEVEL / entries) / size[i, row])
            interval = (max(share - wide, 0.0), share + wide)
    return Off(share, interval, i, row, entry)
