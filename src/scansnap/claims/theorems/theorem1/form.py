"""Theorem 1: the form of the gradient, a combination of the f's (Eq. 9), and the signs in it."""

from __future__ import annotations

import numpy as np

from scansnap.claims.assumptions import MUCH
from scansnap.claims.claim import Claim, Curve, Statement, worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem1.decomposition import (
    NO_XI,
    ROUNDING,
    Decomposition,
    nonzero,
    overlapping,
    with_xi,
    xi,
)
from scansnap.claims.windows import TRAINING

SPAN = Statement(
    "theorem-1-span",
    "Theorem 1, Eq. 9",
    "g_n is a combination of f_1 … f_K: nothing else is back-propagated that could move attention",
    instead=("memory", "response"),
)
BETA = Statement(
    "theorem-1-beta",
    "Theorem 1, Eqs. 9, 89",
    "β_nn' > 0: g_n points away from the f_n' of every class that overlaps with n",
    kind="proof step",  # the theorem says γ > 0 and ξ_n > 0
)
# On the flow ξ_n is the mean of ż_ml/(η_Z p_n f_nl²) over the distinct tokens of class n, weighed by f_nl².
XI = Statement("theorem-1-xi", "Theorem 1(a)", "ξ_n = γ Σ β_nn' f_nᵀf_n' > 0 for every class at every time",
               kind="dependent", implied_by=("theorem-2a",))  # fmt: skip
# "≫" is read as a factor of MUCH throughout, so what the proof drops may be this share of what it keeps, where it
# matters: of P⊥g_n. (Of ‖g_n‖, a decomposition without any f_n' would do.)
SPAN_TOLERANCE = 1 / MUCH
# Of a fitted coefficient, in standard errors. There may be thousands (pairs × times), and chance is to give none.
SIGN_SIGMAS = 4.0


def span(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """What of P⊥g_n is outside the span of the f's."""
    assumptions = evidence.assume()
    if (fit.spare == 0).all():
        why = "every vector on these contexts is a combination of the f_n: they have no more tokens than that"
        return SPAN.not_applicable(why, assumptions)
    acts = ~(fit.across <= ROUNDING * fit.size)  # NaN acts, and fails
    if not acts.any():
        return SPAN.not_applicable("all of g_n lies along f_n: nothing moves attention", assumptions)
    outside = np.where(acts, fit.rest / np.where(fit.across == 0, 1, fit.across), 0)
    i, n = worst(outside)
    t = evidence.t[times]
    largest = float(outside[i, n])
    return SPAN.judge(
        quantity=f"largest share of P⊥g_n, the part of g_n that moves attention, outside the span of f_1 … f_K, "
        f"{TRAINING.words(evidence)} (P⊥g_n is {fit.across[i, n] / nonzero(fit.size[i, n]):.2g} of g_n there)",
        measured=largest, predicted=0.0, deviation=largest, tolerance=SPAN_TOLERANCE, assumptions=assumptions,
        where=f"class {n} at {evidence.when(t[i])}",
        curve=Curve("t", "share of P⊥g_n outside the span, largest class", t, outside.max(1), np.zeros(len(t))),
    )  # fmt: skip


def beta(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """The sign of every γβ_nn', as far as the fit tells it."""
    assumptions = evidence.assume()
    pairs = np.argwhere(overlapping(evidence.classes))  # (p, 2)
    if not len(pairs):
        return BETA.not_applicable("no two classes share a context token", assumptions)
    one, other = pairs.T
    b, error = fit.gamma_beta[:, one, other], fit.error[:, one, other]  # (n, p)  γβ
    if ((b == 0) & (error == 0)).all():
        return BETA.not_applicable("on every context the other f_n' are along f_n: no β can be seen", assumptions)
    told = ~(np.abs(b) <= SIGN_SIGMAS * error + ROUNDING * fit.size[:, one])  # NaN is told, and fails
    beta = b / nonzero(fit.size[:, one])
    i, p = worst(np.where(told, -beta, -np.inf))
    t = evidence.t[times]
    which = f"{TRAINING.words(evidence)}; of {np.mean(told):.0%} the sign can be told"
    return BETA.judge_every(
        b > 0, assumptions=assumptions, sure=(told & (b > 0), told & ~(b > 0)),
        quantity=f"share of pairs and times with β_nn' > 0, {which} beyond {SIGN_SIGMAS:g} standard errors of the fit",
        where=f"β is {beta[i, p]:.3g} for class {one[p]} against class {other[p]} at {evidence.when(t[i])}",
        to_decide=f"of {np.mean(~told):.0%} of pairs and times the sign cannot be told: β is below "
        f"{SIGN_SIGMAS:g} standard errors of the fit",
        curve=Curve("t", f"β of class {one[p]} against class {other[p]}", t, beta[:, p], np.zeros(len(t))),
    )  # fmt: skip


def xi_sign(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """The sign of every ξ_n, beyond rounding."""
    assert evidence.g is not None
    assumptions = evidence.assume()
    at = with_xi(evidence, fit)
    if not len(at):
        return XI.not_applicable(NO_XI, assumptions)
    f, t = evidence.f[times][:, at], evidence.t[times]
    found = xi(evidence, times, fit)[:, at]  # (n, k)
    shared = np.isin(np.arange(f.shape[-1]), evidence.classes.common)
    relative = found / nonzero(fit.size[:, at])
    good = relative > ROUNDING * (f * f * shared).sum(-1)
    i, n = worst(-relative)
    claim = XI.judge_every(
        good, assumptions=assumptions,
        quantity=f"share of classes and times, {TRAINING.words(evidence)}, with ξ_n > 0 beyond rounding",
        where=f"ξ_n/γ is {relative[i, n]:.3g} for class {at[n]} at {evidence.when(t[i])}",
        curve=Curve("t", "ξ_n/‖g_n‖, the smallest of the classes", t, relative.min(1), np.zeros(len(t))),
    )  # fmt: skip
    # in SGD Theorem 2(a) is about net changes, and of a class without distinct tokens it says nothing
    implied = evidence.source == "flow" and np.isin(at, evidence.with_distinct).all()
    return claim if implied else claim.independent()
