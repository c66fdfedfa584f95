"""Theorem 1: the sizes that its proof gives, of ξ_n (Eqs. 87, 89, 93) and of γ (Eq. 85)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scansnap.claims.claim import Claim, Curve, Statement, worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem1.decomposition import (
    NO_XI,
    RANK,
    ROUNDING,
    Decomposition,
    nonzero,
    with_xi,
    xi,
)
from scansnap.claims.windows import TRAINING, TRANSITION
from scansnap.theory import gamma

if TYPE_CHECKING:
    from scansnap.claims.ours.path import Path

XI_SIZE = Statement(
    "theorem-1-xi-size",
    "Theorem 1, Eqs. 87, 89, 93",
    "ξ_n = −γ E'_nn up to O(1/M), since β_nn' = E'_nn' + O(1/M)",
    instead=("memory", "response"),
)
GAMMA = Statement(
    "theorem-1-gamma", "Theorem 1(b), Eq. 85", "g_n is about γ(t) f_n with γ = (M−1)² h/(M−1+e^{Mh}), h = h(t/K)"
)

# Eq. 89 knows β up to |δ₃| < 3/M. The sign of β is asked as the theorem states it, without this slack, which is three
# times what β begins with; the size of ξ only where the slack is no more than the tolerance of what is predicted.
BETA_SLACK = 3.0
# γ leaves out ι_n − 1 ≤ λ₁²/(1 − λ₁), which weak overlap (λ₁ < 1/K) bounds by 1/6 for three classes and by less for
# more; a quarter also covers 1/M, and two classes up to an overlap of 0.4.
GAMMA_TOLERANCE = 0.25
XI_SIZE_TOLERANCE = GAMMA_TOLERANCE  # the same factor, 1 + δ₁, stands before ξ; 3/M for each β comes on top


def xi_size(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """ξ_n/(γι_n) against what E' gives."""
    assumptions = evidence.assume()
    at = with_xi(evidence, fit)
    if not len(at):
        return XI_SIZE.not_applicable(NO_XI, assumptions)
    gram = evidence.overlap[times]  # (n, K, K)  I + E
    if np.isfinite(gram).all() and np.linalg.eigvalsh(gram).min() < RANK:
        return XI_SIZE.not_applicable("I + E has no inverse: an f_n is a combination of the others", assumptions)
    iota = np.diagonal(np.linalg.inv(gram), axis1=1, axis2=2)[:, at]  # (n, k)  1 − E'_nn
    t, gamma_iota = evidence.t[times], fit.gamma_iota[:, at]
    measured = xi(evidence, times, fit)[:, at] / nonzero(gamma_iota)
    predicted = (iota - 1) / iota
    overlap = (gram * (1 - np.eye(gram.shape[-1]))).sum(-1)[:, at]  # Σ f_nᵀf_n'
    slack = BETA_SLACK / evidence.classes.vocab_size * overlap + ROUNDING
    said = slack <= XI_SIZE_TOLERANCE * predicted  # NaN is not, unless it is measured
    if not said.any():
        least = float((slack / predicted).min())
        why = f"what Eq. 89 leaves open, 3/M for each β, is {least:.2g} of the ξ_n that it predicts, or more"
        return XI_SIZE.not_applicable(why, assumptions)
    off = np.maximum(np.abs(measured - predicted) - slack, 0) / np.where(said, predicted, 1)
    i, n = worst(np.where(said, off, -np.inf))

    def along(path: Path) -> tuple[Array, Array]:
        """ξ_n of a theory of ours over the γι_n that was measured."""
        both, here, there = np.intersect1d(t, path.t, return_indices=True)
        return both, path.xi(at[n])[there] / nonzero(gamma_iota[here, n])

    return XI_SIZE.judge(
        quantity=f"ξ_n/(γι_n) where it is relatively furthest from −E'_nn/(1 − E'_nn), beyond 3/M for each β, "
        f"{TRAINING.words(evidence)}",
        measured=float(measured[i, n]), predicted=float(predicted[i, n]), deviation=float(off[i, n]),
        tolerance=XI_SIZE_TOLERANCE, assumptions=assumptions,
        where=f"class {at[n]} at {evidence.when(t[i])}",
        curve=Curve(
            "t", f"ξ/(γι) of class {at[n]}", t, measured[:, n], predicted[:, n], log_y=True, along=along
        ),
    )  # fmt: skip


def gamma_size(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """γι_n against the closed form of γ."""
    assumptions = evidence.assume()
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    late = np.isin(times, TRANSITION.times(evidence))
    at = np.flatnonzero(fit.determined.all(0))
    if not late.any():
        why = f"no time is recorded in {TRANSITION.words(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return GAMMA.not_applicable(why, assumptions)
    if not len(at):
        why = "no a_n is determined: on every context f_n is a combination of the other f_n'"
        return GAMMA.not_applicable(why, assumptions)
    t, gamma_iota = evidence.t[times][late], fit.gamma_iota[late][:, at]  # (n,), (n, k)
    predicted = np.asarray(gamma(t, eta_y=evidence.eta_y, n_classes=k, vocab_size=m))
    off = np.abs(gamma_iota / predicted[:, None] - 1)
    i, n = worst(off)
    return GAMMA.judge(
        quantity=f"a_n, the coefficient of f_n in g_n, where it is relatively furthest from γ(t), "
        f"{TRANSITION.words(evidence)}",
        measured=float(gamma_iota[i, n]), predicted=float(predicted[i]), deviation=float(off[i, n]),
        tolerance=GAMMA_TOLERANCE, assumptions=assumptions,
        where=f"a_n/γ is {gamma_iota[i, n] / predicted[i]:.3g} for class {at[n]} at {evidence.when(t[i])}",
        curve=Curve("t", "γ and the mean a_n", t, gamma_iota.mean(1), predicted, log_y=True),
    )  # fmt: skip
