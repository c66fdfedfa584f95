"""One setting: the exact flow, what is predicted of it, and how far the two and the paper's statements are apart."""

from __future__ import annotations

import math

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_trajectory
from scansnap.claims.theorems import theorem2
from scansnap.claims.theorems.theorem3 import pairs
from scansnap.claims.theorems.theorem4 import growth
from scansnap.claims.windows import LAST, TRAINING, TRANSITION
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.response.solve import response
from scansnap.paper.studies.validity.predicted import WRONG, along, memory, no_memory
from scansnap.paper.studies.validity.settings import ETA_Y, Setting
from scansnap.theory import t_snap

MOMENTS = (1, 10, 100)  # in t₀
PER_DECADE = 12
_RTOL, _ATOL = 1e-6, 1e-14  # of the integration; z is as small as 1e-7
THEOREMS = ("2a", "3", "4")


def times(t_0: float) -> FloatArray:
    """0, and from t₀/1000 to 100 t₀; MOMENTS are among them."""
    return np.append(0.0, t_0 * 10 ** (np.arange(-3 * PER_DECADE, 2 * PER_DECADE + 1) / PER_DECADE))


def measure(setting: Setting) -> dict[str, float | str | bool]:
    """A row of the table; everything relative.

    error_t, estimate_t    of the response's z at t: largest over tokens over the largest |z|; and its own estimate
    trusted_until          in t₀
    paper_t                largest error of Theorem 4's B_n from t₀′/10 to t; its C₀ is the claim's, from early times
    2a_…, 3_…, 4_…         deviation of a theorem, measured on the flow, and on what is predicted in its place; the
                           controls only where the theorem's assumptions are met, as only there are they asked
    """
    classes, eta_z = setting.classes(), setting.eta_z
    t_0 = float(t_snap(eta_y=ETA_Y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    t = times(t_0)
    at = {moment: int(np.argmin(np.abs(t - moment * t_0))) for moment in MOMENTS}
    exact = flow(classes, ETA_Y, eta_z, t=t, rtol=_RTOL, atol=_ATOL, variables=("z", "attention", "g"))
    linear = response(classes, ETA_Y, eta_z, t, rtol=_RTOL, atol=_ATOL)
    evidence = from_trajectory(exact, classes)
    row: dict[str, float | str | bool] = {
        "part": setting.part, "classes": setting.name, "ratio": setting.ratio, "vocab_size": classes.vocab_size,
        "n_classes": classes.n_classes, "overlap": _overlap(evidence),
        "assumptions_met": all(a.met for a in evidence.assumptions.values()),
        "trusted_until": float(linear.attrs["trusted_until"]) / t_0,
    }  # fmt: skip
    off = np.abs(linear.z.values - evidence.z).max((1, 2))
    size = np.abs(evidence.z).max((1, 2))
    theirs = paper_error(evidence)
    for moment, i in at.items():
        row |= {f"error_{moment}": off[i] / size[i], f"estimate_{moment}": float(linear.error[i].max()),
                f"paper_{moment}": float(theirs[: i + 1].max())}  # fmt: skip
    row |= deviations(evidence, "measured")
    early = t[t <= LAST * t_0]  # no claim looks further
    by = {"response": linear.z.values[: len(early)]}
    if setting.point is not None:
        by["memory"] = memory(setting.point, early)
    if setting.point is not None and row["assumptions_met"]:
        by |= {"wrong": memory(setting.point, early, wrong=WRONG), "no_memory": no_memory(setting.point, early)}
    for name, z in by.items():
        row |= deviations(along(classes, ETA_Y, eta_z, early, z), name)
    return row


def deviations(evidence: Evidence, name: str) -> dict[str, float]:
    """What the claims on Theorem 2(a) (rate), Theorem 3 (identity) and Theorem 4 (growth) measure: their worst."""
    with np.errstate(all="ignore"):
        found = (
            next(claim for claim in theorem2.check(evidence) if claim.name == theorem2.RISE_RATE.name),
            pairs.identity(evidence, TRAINING.times(evidence)),
            growth.check(evidence),
        )
    return {f"{theorem}_{name}": deviation(claim) for theorem, claim in zip(THEOREMS, found, strict=True)}


def deviation(claim: Claim) -> float:
    """Of a claim, from its margin; NaN where there was nothing to measure."""
    if claim.margin is None or claim.tolerance is None:
        return math.nan
    return (1 - claim.margin) * claim.tolerance


def paper_error(evidence: Evidence) -> FloatArray:
    """(n,) |B_n of Theorem 4/B_n − 1|, the largest over classes; 0 before t₀′/10, where C₀ is taken."""
    error = np.zeros(len(evidence.t))
    late = evidence.t >= TRANSITION.first * evidence.t_scan
    for n in evidence.with_distinct:
        theirs = growth.predict(evidence, n)(evidence.t[late], evidence)
        error[late] = np.maximum(error[late], np.abs(theirs / evidence.measured_growth[late, n] - 1))
    return error


def _overlap(evidence: Evidence) -> float:
    """The mean of f_nᵀf_n' at the start, over pairs of classes."""
    pairs_ = ~np.eye(evidence.classes.n_classes, dtype=bool)
    return float(evidence.overlap[0][pairs_].mean())
