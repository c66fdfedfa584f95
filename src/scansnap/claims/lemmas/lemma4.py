"""Lemma 4: the dynamics of attention follows from the gradient's decomposition.

    ż_m = η_Z Σ_{n ∈ ψ⁻¹(m)} p_n diag(f_n) Σ_{n'≠n} γβ_nn' (f_n f_nᵀ − I) f_n'          (Eq. 10; p_n is ours)

The left side is the exact population field at each recorded state, the right side has the coefficients γβ
fitted for Theorem 1. The two differ by diag(f_n) times the part of g_n outside the span, weighed by its effect on
attention. The sum over the run goes from t = 0 to the end of the window of all statements.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import cumulative_trapezoid

from scansnap.claims.assumptions import MUCH
from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.gradient_decomposition import Decomposition, decompose, overlapping, thin, thinned_window
from scansnap.claims.time_windows import TRAINING, WINDOW_END

RATE = Statement(
    "lemma-4",
    "Lemma 4, Eq. 10",
    "ż_m = η_Z γ Σ_n p_n diag(f_n) Σ β_nn' (f_n f_nᵀ − I) f_n' at every time",
    alternatives=("memory", "response"),
    kind="dependent",
    repeats=("theorem-1-span",),  # the difference is diag(f_n) times the rest there, with other weights
)
RUN = Statement(
    "lemma-4-run", "Lemma 4, Eq. 10", "over the run, the attention logits move by what Lemma 4 adds up to",
    alternatives=("memory", "response"), kind="dependent", repeats=("theorem-1-span", "lemma-4"),
)  # fmt: skip
STATEMENTS = (RATE, RUN)

# "≫" means a factor of MUCH throughout, so the neglected terms may be this share of the others.
RATE_TOLERANCE = 1 / MUCH
# Over a run of the flow the same share, at every time. Sampled updates add noise, which dominates at first: an SGD run
# is judged at its end, with a larger tolerance.
RUN_TOLERANCE = {"flow": RATE_TOLERANCE, "sgd": 0.25}
# What halving the number of recorded times may change in the integral; the error of the full sum is about a third.
SUM_TOLERANCE = 0.1
# ż below this share of its two cancelling terms is rounding: attention stands still.
STILL = 1e-13


def predicted_rate(evidence: Evidence, times: Array, fit: Decomposition) -> Array:
    """The right side of Eq. 10, (n, Q, M)."""
    f = evidence.f[times]  # (n, K, M)
    pull = fit.gamma_beta @ f  # (n, K, M)  Σ γβ_nn' f_n'; what lies outside the context of n meets f_nl = 0 below
    pull = f * (f * pull).sum(-1, keepdims=True) - pull  # (f_n f_nᵀ − I) applied
    return evidence.sum_by_query(evidence.eta_z * evidence.classes.p_class[:, None] * f * pull)


def check(evidence: Evidence) -> list[Claim]:
    """The rate at each time, and its integral against the distance that the logits have gone."""
    assumptions = evidence.select_assumptions()
    times = thinned_window(evidence)
    reason = ""
    if evidence.g is None or evidence.z_rate is None:
        reason = "needs the gradients g, that is y at every recorded time"
    elif not len(times):
        reason = f"no time is recorded between 0 and 10 t₀ = {10 * evidence.t_snap:.3g}"
    elif not overlapping(evidence.classes).any():
        reason = "no two classes share a context token: attention does not move"
    else:
        scale = evidence.eta_z * np.linalg.norm(evidence.f[times] * evidence.g[times], axis=(1, 2))
        if (_norm(evidence.z_rate[times]) <= STILL * scale).all():
            reason = "attention stands still: the contexts of overlapping classes are the same"
    if not reason:
        fit = decompose(evidence, times)
        if not fit.spare.any():
            reason = "on no context do the f_n' leave a direction free: any gradient is a combination of them"
    if reason:
        return [statement.not_applicable(reason, assumptions) for statement in STATEMENTS]
    return [_rate(evidence, times, fit), _run(evidence)]


def _rate(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    assert evidence.z_rate is not None
    exact, lemma = evidence.z_rate[times], predicted_rate(evidence, times, fit)
    size = _norm(exact)
    off = _norm(lemma - exact) / np.where(size == 0, 1, size)
    i = int(np.argmax(off))
    t = evidence.t[times]
    row, token = index_of_largest(np.abs(lemma[i] - exact[i]))
    return RATE.judge(
        quantity="‖ż‖ at the time when the exact field and Lemma 4 are relatively furthest apart "
        f"({TRAINING.describe(evidence)})",
        measured=float(size[i]), predicted=float(_norm(lemma)[i]), deviation=float(off[i]),
        tolerance=RATE_TOLERANCE, assumptions=evidence.select_assumptions(),
        failure=f"{evidence.format_time(t[i])}, off by {off[i]:.1%}, most of it at "
        f"token {token} of query {evidence.classes.queries[row]}",
        curve=Curve("t", "‖ż‖", t, size, _norm(lemma), log_y=True,
                    along=lambda path: (path.t[1:], _norm(path.z_rate[1:]))),
    )  # fmt: skip


def _run(evidence: Evidence) -> Claim:
    assumptions = evidence.select_assumptions()
    times = thin(evidence, np.flatnonzero(evidence.t <= WINDOW_END * evidence.t_snap))
    if len(times) < 3 or evidence.t[0] != 0:
        return RUN.not_applicable("needs the start and at least two later times", assumptions)
    t = evidence.t[times]
    rate = predicted_rate(evidence, times, decompose(evidence, times))
    lemma = cumulative_trapezoid(rate, t, axis=0, initial=0)
    moved = evidence.z[times] - evidence.z[0]
    size, expected = _norm(moved), _norm(lemma)
    if not size[-1] > 0:
        return RUN.not_applicable("the logits have not moved", assumptions)
    judged = np.arange(1, len(t)) if evidence.source == "flow" else np.array([len(t) - 1])
    half = np.unique(np.append(np.arange(len(t) - 1, 0, -2), 0))  # every other time, the first and the last
    halved = half[np.isin(half, judged)]
    coarse = cumulative_trapezoid(rate[half], t[half], axis=0, initial=0)[np.isin(half, judged)]
    # a rate that is not finite is judged, not excused
    if (_norm(lemma[halved] - coarse) > SUM_TOLERANCE * expected[halved]).any():
        return RUN.not_applicable("the recorded times are too far apart to integrate over", assumptions)
    error = _norm(moved - lemma)
    off = np.full(len(t), -np.inf)
    off[judged] = np.where(error[judged] == 0, 0.0, error[judged] / np.maximum(size[judged], np.finfo(float).tiny))
    i = int(np.argmax(off))  # NaN counts as the largest
    row, token = index_of_largest(np.abs(lemma[i] - moved[i]))
    return RUN.judge(
        quantity=f"‖z(t) − z(0)‖ at t = {t[i]:.4g} (0 ≤ t ≤ {WINDOW_END:g} t₀)",
        measured=float(size[i]), predicted=float(expected[i]), deviation=float(off[i]),
        tolerance=RUN_TOLERANCE[evidence.source],
        assumptions=assumptions,
        failure=f"{evidence.format_time(t[i])}, off by {off[i]:.1%} of the way, most of it at "
        f"token {token} of query {evidence.classes.queries[row]}",
        curve=Curve("t", "‖z(t) − z(0)‖", t[1:], size[1:], expected[1:], log_y=True,
                    along=lambda path: (path.t[1:], _norm(path.z[1:]))),
    )  # fmt: skip


def _norm(rows: Array) -> Array:
    """(n,) Euclidean norm over queries and tokens."""
    return np.asarray(np.linalg.norm(rows.reshape(len(rows), -1), axis=1))
