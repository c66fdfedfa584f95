"""Theorem 1: the gradient that attention receives is a combination of the K attention outputs.

    g_n := Y(e_n − α_n) = γ (ι_n f_n − Σ_{n'≠n} β_nn' f_n')          (Eq. 9)

The coefficients γι_n and γβ_nn' are fitted by least squares on the context of class n
(`scansnap.claims.theorems.gradient_decomposition`): entries of g_n elsewhere meet f_nl = 0 and have no effect.
A class that shares no token with n has f_n' = 0 there, so its β is not observable and has no effect. Where several
f_n' are parallel on that context, only their sum is determined. Least squares divides it evenly, which does not change
its sign, γι_n or ξ_n.

The proof is about a modified update of Y (Lemma 3, Eq. 26), for which β_nn' = E'_nn' + O(1/M) with (I + E)⁻¹ = I − E'.
The actual update (Eq. 7) preserves the span and most signs, but β is about e^{u f_nᵀf_n'}/M while that is small (u is
the logit gap), which is far below E'. So the sign of ξ and its size are separate claims.

Because β is so small, nearly all of g_n is parallel to f_n, and (I − f_n f_nᵀ) removes that part. With every assumption
met the rest, P⊥g_n, is less than 1% of ‖g_n‖, and it alone moves attention. The span is therefore tested on P⊥g_n.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from scansnap.claims.assumptions import MUCH, PAPER
from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.gradient_decomposition import (
    NO_XI,
    RANK,
    ROUNDING,
    Decomposition,
    classes_with_xi,
    compute_xi,
    decompose,
    nonzero,
    overlapping,
    thinned_window,
)
from scansnap.claims.time_windows import TRAINING, TRANSITION
from scansnap.theory import gamma, snap_delta, t_scan, t_snap

if TYPE_CHECKING:
    from scansnap.claims.ours.path import PredictedPath

SPAN = Statement(
    "theorem-1-span", "Theorem 1, Eq. 9",
    "g_n is a combination of f_1 … f_K: nothing else is back-propagated that could move attention",
    alternatives=("memory", "response"),
)  # fmt: skip

BETA = Statement(
    "theorem-1-beta",
    "Theorem 1, Eqs. 9, 89",
    "β_nn' > 0: g_n points away from the f_n' of every class that overlaps with n",
    kind="proof step",  # the theorem says γ > 0 and ξ_n > 0
)

# On the flow ξ_n is the mean of ż_ml/(η_Z p_n f_nl²) over the distinct tokens of class n, weighed by f_nl².
XI = Statement("theorem-1-xi", "Theorem 1(a)", "ξ_n = γ Σ β_nn' f_nᵀf_n' > 0 for every class at every time",
               kind="dependent", implied_by=("theorem-2a",))  # fmt: skip

XI_SIZE = Statement(
    "theorem-1-xi-size", "Theorem 1, Eqs. 87, 89, 93", "ξ_n = −γ E'_nn up to O(1/M), since β_nn' = E'_nn' + O(1/M)",
    alternatives=("memory", "response"),
)  # fmt: skip

GAMMA = Statement(
    "theorem-1-gamma", "Theorem 1(b), Eq. 85", "g_n is about γ(t) f_n with γ = (M−1)² h/(M−1+e^{Mh}), h = h(t/K)"
)

STATEMENTS = (SPAN, BETA, XI, XI_SIZE, GAMMA)

EARLY = Statement("theorem-1-early", "Theorem 1(b)", "γ(t) = O(η_Y t/K) up to t₀′ = K ln M/η_Y", kind="formula")
LATE = Statement(
    "theorem-1-late", "Theorem 1(b)",
    "γ(t) = O(K ln(η_Y t/K)/(η_Y t)) from t₀ = 2(1+δ′)K ln M/η_Y on, as printed: without M in the logarithm",
    kind="formula",
)  # fmt: skip
LEMMA_9 = Statement(
    "lemma-9", "Lemma 9", "γ(t) = O(η_Y t/K) up to t₀′, and O(K ln(Mη_Y t/K)/(η_Y t)) from t₀ on", kind="formula"
)
ORDERS = (EARLY, LATE, LEMMA_9)

# "≫" is read as a factor of MUCH throughout, so what the proof drops may be this share of what it keeps, where it
# matters: of P⊥g_n. (Of ‖g_n‖, a decomposition without any f_n' would do.)
SPAN_TOLERANCE = 1 / MUCH

# Of a fitted coefficient, in standard errors. There may be thousands (pairs × times), and chance is to give none.
SIGN_SIGMAS = 4.0

# Eq. 89 knows β up to |δ₃| < 3/M. The sign of β is asked as the theorem states it, without this slack, which is three
# times what β begins with; the size of ξ only where the slack is no more than the tolerance of what is predicted.
BETA_SLACK = 3.0

# γ leaves out ι_n − 1 ≤ λ₁²/(1 − λ₁), which weak overlap (λ₁ < 1/K) bounds by 1/6 for three classes and by less for
# more; a quarter also covers 1/M, and two classes up to an overlap of 0.4.
GAMMA_TOLERANCE = 0.25

# An order is a bound with one constant for all M. Between these M ln M grows 4.5 times, so that a constant that is none
# grows by much more than half.
_VOCABULARIES = 10.0 ** np.arange(2, 10)
ORDER_TOLERANCE = 0.5

# γ at batch size 1 is that of N_n draws instead of t/K. Corollary 1 allows a share |σ| of K√(ln(2K/δ)/t).
_RISK = 0.05

XI_SIZE_TOLERANCE = GAMMA_TOLERANCE  # the same factor, 1 + δ₁, stands before ξ; 3/M for each β comes on top


def check(evidence: Evidence) -> list[Claim]:
    """Span, signs and sizes of the coefficients."""
    times = thinned_window(evidence)
    reason = ""
    if evidence.g is None:
        reason = "needs the gradients g, that is y at every recorded time"
    elif not len(times):
        reason = f"no time is recorded in {TRAINING.describe(evidence)}, t₀ = {evidence.t_snap:.3g}"
    if reason:
        return [statement.not_applicable(reason, evidence.select_assumptions()) for statement in STATEMENTS]
    fit = decompose(evidence, times)
    return [claim(evidence, times, fit) for claim in (_span, _beta, _xi_sign, _xi_size, _gamma_size)]


def check_orders(evidence: Evidence) -> list[Claim]:
    """γ of Lemma 9 over the printed orders: the largest ratio over the times of each, as M grows."""
    return [_order(statement, evidence) for statement in ORDERS]


def _order(statement: Statement, evidence: Evidence) -> Claim:
    k, eta_y = evidence.classes.n_classes, evidence.eta_y
    largest = []
    for m in _VOCABULARIES:
        setting = {"eta_y": eta_y, "n_classes": k, "vocab_size": m}
        early = np.linspace(0.01, 1, 200) * t_scan(**setting)
        late = np.geomspace(1, 1e6, 200) * t_snap(**setting, delta=snap_delta(m))
        within = 1.0 if statement is LATE else m  # what the logarithm multiplies
        ratios = {
            "early": gamma(early, **setting) / (eta_y * early / k),
            "late": gamma(late, **setting) / (k * np.log(within * eta_y * late / k) / (eta_y * late)),
        }
        regimes = {EARLY: ["early"], LATE: ["late"], LEMMA_9: ["early", "late"]}[statement]
        largest.append(max(float(ratios[regime].max()) for regime in regimes))
    grown = largest[-1] / largest[0]
    return statement.judge(
        quantity=f"largest γ over the order at M = {_VOCABULARIES[-1]:.0e}, against that at M = {_VOCABULARIES[0]:g}",
        measured=largest[-1], predicted=largest[0], deviation=max(grown - 1, 0.0), tolerance=ORDER_TOLERANCE,
        failure=f"the constant grows with M, {grown:.3g} times from M = 10² to 10⁹",
        curve=Curve("M", "largest γ over the order", _VOCABULARIES, np.array(largest),
                    np.full(len(largest), largest[0])),
    )  # fmt: skip


def _span(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """What of P⊥g_n is outside the span of the f's."""
    assumptions = evidence.select_assumptions()
    if (fit.spare == 0).all():
        reason = "every vector on these contexts is a combination of the f_n: they have no more tokens than that"
        return SPAN.not_applicable(reason, assumptions)
    acts = ~(fit.across <= ROUNDING * fit.size)  # NaN acts, and fails
    if not acts.any():
        return SPAN.not_applicable("all of g_n lies along f_n: nothing moves attention", assumptions)
    outside = np.where(acts, fit.rest / np.where(fit.across == 0, 1, fit.across), 0)
    i, n = index_of_largest(outside)
    t = evidence.t[times]
    largest = float(outside[i, n])
    return SPAN.judge(
        quantity=f"largest share of P⊥g_n, the part of g_n that moves attention, outside the span of f_1 … f_K, "
        f"{TRAINING.describe(evidence)} (P⊥g_n is {fit.across[i, n] / nonzero(fit.size[i, n]):.2g} of g_n there)",
        measured=largest, predicted=0.0, deviation=largest, tolerance=SPAN_TOLERANCE, assumptions=assumptions,
        failure=f"class {n} at {evidence.format_time(t[i])}",
        curve=Curve("t", "share of P⊥g_n outside the span, largest class", t, outside.max(1), np.zeros(len(t))),
    )  # fmt: skip


def _beta(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """The sign of every γβ_nn', as far as the fit tells it."""
    assumptions = evidence.select_assumptions()
    pairs = np.argwhere(overlapping(evidence.classes))  # (p, 2)
    if not len(pairs):
        return BETA.not_applicable("no two classes share a context token", assumptions)
    rows, columns = pairs.T
    b, error = fit.gamma_beta[:, rows, columns], fit.error[:, rows, columns]  # (n, p)  γβ
    if ((b == 0) & (error == 0)).all():
        return BETA.not_applicable("on every context the other f_n' are along f_n: no β can be seen", assumptions)
    is_certain = ~(np.abs(b) <= SIGN_SIGMAS * error + ROUNDING * fit.size[:, rows])  # NaN is, and fails
    beta = b / nonzero(fit.size[:, rows])
    i, p = index_of_largest(np.where(is_certain, -beta, -np.inf))
    t = evidence.t[times]
    which = f"{TRAINING.describe(evidence)}; of {np.mean(is_certain):.0%} the sign can be told"
    return BETA.judge_cases(
        b > 0, assumptions=assumptions, known=(is_certain & (b > 0), is_certain & ~(b > 0)),
        quantity=f"share of pairs and times with β_nn' > 0, {which} beyond {SIGN_SIGMAS:g} standard errors of the fit",
        failure=f"β is {beta[i, p]:.3g} for class {rows[p]} against class {columns[p]} at {evidence.format_time(t[i])}",
        remedy=f"of {np.mean(~is_certain):.0%} of pairs and times the sign cannot be told: β is below "
        f"{SIGN_SIGMAS:g} standard errors of the fit",
        curve=Curve("t", f"β of class {rows[p]} against class {columns[p]}", t, beta[:, p], np.zeros(len(t))),
    )  # fmt: skip


def _xi_sign(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """The sign of every ξ_n, beyond rounding."""
    assert evidence.g is not None
    assumptions = evidence.select_assumptions()
    at = classes_with_xi(evidence, fit)
    if not len(at):
        return XI.not_applicable(NO_XI, assumptions)
    f, t = evidence.f[times][:, at], evidence.t[times]
    xi = compute_xi(evidence, times, fit)[:, at]  # (n, k)
    shared = np.isin(np.arange(f.shape[-1]), evidence.classes.common)
    relative = xi / nonzero(fit.size[:, at])
    good = relative > ROUNDING * (f * f * shared).sum(-1)
    i, n = index_of_largest(-relative)
    claim = XI.judge_cases(
        good, assumptions=assumptions,
        quantity=f"share of classes and times, {TRAINING.describe(evidence)}, with ξ_n > 0 beyond rounding",
        failure=f"ξ_n/γ is {relative[i, n]:.3g} for class {at[n]} at {evidence.format_time(t[i])}",
        curve=Curve("t", "ξ_n/‖g_n‖, the smallest of the classes", t, relative.min(1), np.zeros(len(t))),
    )  # fmt: skip
    # in SGD Theorem 2(a) is about net changes, and of a class without distinct tokens it says nothing
    implied = evidence.source == "flow" and np.isin(at, evidence.classes_with_distinct).all()
    return claim if implied else claim.as_independent()


def _xi_size(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """ξ_n/(γι_n) against what E' gives. Where that is below 6/√M the paper says nothing."""
    assumptions = evidence.select_assumptions(*PAPER)
    at = classes_with_xi(evidence, fit)
    if not len(at):
        return XI_SIZE.not_applicable(NO_XI, assumptions)
    gram = evidence.overlap[times]  # (n, K, K)  I + E
    if np.isfinite(gram).all() and np.linalg.eigvalsh(gram).min() < RANK:
        return XI_SIZE.not_applicable("I + E has no inverse: an f_n is a combination of the others", assumptions)
    iota = np.diagonal(np.linalg.inv(gram), axis1=1, axis2=2)[:, at]  # (n, k)  1 − E'_nn
    t, gamma_iota = evidence.t[times], fit.gamma_iota[:, at]
    measured = compute_xi(evidence, times, fit)[:, at] / nonzero(gamma_iota)
    predicted = (iota - 1) / iota
    overlap = (gram * (1 - np.eye(gram.shape[-1]))).sum(-1)[:, at]  # Σ f_nᵀf_n'
    slack = BETA_SLACK / evidence.classes.vocab_size * overlap + ROUNDING
    is_predicted = slack <= XI_SIZE_TOLERANCE * predicted  # NaN is not, unless it is measured
    if not is_predicted.any():
        least = float((slack / predicted).min())
        reason = f"what Eq. 89 leaves open, 3/M for each β, is {least:.2g} of the ξ_n that it predicts, or more"
        return XI_SIZE.not_applicable(reason, assumptions)
    off = np.maximum(np.abs(measured - predicted) - slack, 0) / np.where(is_predicted, predicted, 1)
    i, n = index_of_largest(np.where(is_predicted, off, -np.inf))

    def along(path: PredictedPath) -> tuple[Array, Array]:
        """ξ_n of a theory of ours over the γι_n that was measured."""
        shared, here, there = np.intersect1d(t, path.t, return_indices=True)
        return shared, path.xi(at[n])[there] / nonzero(gamma_iota[here, n])

    return XI_SIZE.judge(
        quantity=f"ξ_n/(γι_n) where it is relatively furthest from −E'_nn/(1 − E'_nn), beyond 3/M for each β, "
        f"{TRAINING.describe(evidence)}",
        measured=float(measured[i, n]), predicted=float(predicted[i, n]), deviation=float(off[i, n]),
        tolerance=XI_SIZE_TOLERANCE, assumptions=assumptions,
        failure=f"class {at[n]} at {evidence.format_time(t[i])}",
        curve=Curve(
            "t", f"ξ/(γι) of class {at[n]}", t, measured[:, n], predicted[:, n], log_y=True, along=along
        ),
    )  # fmt: skip


def _gamma_size(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    """γι_n against the closed form of γ."""
    assumptions = evidence.select_assumptions()
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    late = np.isin(times, TRANSITION.select(evidence))
    at = np.flatnonzero(fit.determined.all(0))
    if not late.any():
        reason = f"no time is recorded in {TRANSITION.describe(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return GAMMA.not_applicable(reason, assumptions)
    if not len(at):
        reason = "no a_n is determined: on every context f_n is a combination of the other f_n'"
        return GAMMA.not_applicable(reason, assumptions)
    t, gamma_iota = evidence.t[times][late], fit.gamma_iota[late][:, at]  # (n,), (n, k)
    predicted = np.asarray(gamma(t, eta_y=evidence.eta_y, n_classes=k, vocab_size=m))
    draws = t * (evidence.batch_size or math.inf)
    slack = k * np.sqrt(math.log(2 * k / _RISK) / draws)
    off = np.maximum(np.abs(gamma_iota / predicted[:, None] - 1) - slack[:, None], 0)
    i, n = index_of_largest(off)
    return GAMMA.judge(
        quantity=f"a_n, the coefficient of f_n in g_n, where it is relatively furthest from γ(t)"
        f"{', beyond the spread of class counts that Corollary 1 allows' * evidence.sampled}, "
        f"{TRANSITION.describe(evidence)}",
        measured=float(gamma_iota[i, n]), predicted=float(predicted[i]), deviation=float(off[i, n]),
        tolerance=GAMMA_TOLERANCE, assumptions=assumptions,
        failure=f"a_n/γ is {gamma_iota[i, n] / predicted[i]:.3g} for class {at[n]} at {evidence.format_time(t[i])}",
        curve=Curve("t", "γ and the mean a_n", t, gamma_iota.mean(1), predicted, log_y=True),
    )  # fmt: skip
