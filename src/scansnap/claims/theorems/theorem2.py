"""Theorem 2 and Corollary 2: the fates of contextual tokens.

A distinct token of class n rises, ż_ml = η_Z p_n f_nl² ξ_n > 0 (Eq. 98); a single common token falls,
ż_ml = −η_Z Σ p_n (1 − f_nl²) ξ_n < 0 (Eq. 100); several fall in the symmetric case of Corollary 2. In general only
their sum is bound to fall, since Σ_l ż_ml = 0.

On the flow the claim is about the sign of ż in every recorded state, in SGD about the net change of z over the window.
Sampled updates have noise, and ξ_n is so small (O(1/M)) that one run cannot separate the two: the sign is that of the
mean over seeds, if a t interval determines it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.integrate import trapezoid

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.gradient_decomposition import ROUNDING, nonzero, overlapping, thinned_window
from scansnap.claims.time_windows import TRAINING
from scansnap.classes import SequenceClasses
from scansnap.measure.comparison import sure_signs

if TYPE_CHECKING:
    from scansnap.claims.ours.path import PredictedPath

OURS = ("memory", "response")  # claims of ours that may hold where one of these fails
RISE = Statement("theorem-2a", "Theorem 2(a)", "every distinct token gains attention: ż_ml > 0",
                 alternatives=("finite-fates", "late-fates", *OURS))  # fmt: skip
RISE_RATE = Statement(
    "theorem-2a-rate", "Theorem 2(a), Eq. 98", "ż_ml = η_Z p_n f_nl² ξ_n with one ξ_n for all distinct tokens of n",
    alternatives=OURS,
)  # fmt: skip
# Σ_l ż_ml = 0, and all other tokens that move are distinct: where those rise, a single common token falls. In SGD the
# sum is 0 at every step, and a sum of changes that are each surely above 0 surely is.
FALL = Statement("theorem-2b", "Theorem 2(b)", "a single common token loses attention: ż_ml < 0", alternatives=OURS,
                 kind="dependent", implied_by=("theorem-2a",))  # fmt: skip
SYMMETRIC = Statement(
    "corollary-2", "Corollary 2", "in the symmetric case with one query every common token loses attention",
    alternatives=OURS,
)  # fmt: skip
STATEMENTS = (RISE, RISE_RATE, FALL, SYMMETRIC)

# An equation of the paper must hold to a tenth, as everywhere here. It can fail: Y depends on earlier f, and relative
# to ξ_n, a small part of γ (about f_nᵀf_n'/M at first), this memory grows with η_Z/η_Y and t.
RATE_TOLERANCE = 0.1
# Tolerance for the equal probabilities of Corollary 2; files and single precision have this many digits.
EQUAL = 1e-6

_NO_GRADIENTS = "needs the gradients g, that is y at every recorded time"


def check(evidence: Evidence) -> list[Claim]:
    """Which tokens rise, how fast, and which fall."""
    return [_rise(evidence), _rise_rate(evidence), _fall(evidence), _symmetric(evidence)]


def _rise(evidence: Evidence) -> Claim:
    assumptions = evidence.select_assumptions()
    moving = _moving(evidence.classes)
    if not moving:
        return RISE.not_applicable("no two classes share a context token: attention does not move", assumptions)
    tokens = [evidence.classes.distinct(n) for n in moving]
    rows = np.repeat(evidence.class_query[moving], [len(ids) for ids in tokens])
    if not len(rows):
        return RISE.not_applicable("no class that overlaps with another has a distinct token", assumptions)
    return _signs(RISE, evidence, rows, np.concatenate(tokens), 1, assumptions)


def _rise_rate(evidence: Evidence) -> Claim:
    assumptions = evidence.select_assumptions()
    classes, times = evidence.classes, thinned_window(evidence)
    several = [n for n in _moving(classes) if len(classes.distinct(n)) > 1]
    if evidence.z_rate is None:
        return RISE_RATE.not_applicable(_NO_GRADIENTS, assumptions)
    if not several:
        reason = "no class that overlaps with another has two distinct tokens to compare"
        return RISE_RATE.not_applicable(reason, assumptions)
    if not len(times):
        reason = f"no time is recorded in {TRAINING.describe(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return RISE_RATE.not_applicable(reason, assumptions)
    t = evidence.t[times]
    largest, worst = -1.0, None
    for n in several:
        ids = classes.distinct(n)
        f2 = evidence.f[times][:, n, ids] ** 2  # (n, D)
        rate = evidence.z_rate[times, evidence.class_query[n]][:, ids] / (evidence.eta_z * classes.p_class[n])
        xi = rate.sum(1) / nonzero(f2.sum(1))  # (n,)  the one that fits best, as in decomposition.xi
        speed = rate / nonzero(f2)  # (n, D)
        off = np.abs(speed - xi[:, None]) / nonzero(np.abs(xi))[:, None]
        i, j = index_of_largest(off)
        if not off[i, j] <= largest:  # also where it is not a number
            largest, worst = float(off[i, j]), (n, int(ids[j]), i, speed[:, j], xi)
        if np.isnan(largest):
            break
    assert worst is not None
    n, token, i, measured, predicted = worst

    def along(path: PredictedPath) -> tuple[Array, Array]:
        speed = path.z_rate[1:, path.class_query[n], token] / nonzero(path.f[1:, n, token] ** 2)
        return path.t[1:], speed / (evidence.eta_z * classes.p_class[n])

    return RISE_RATE.judge(
        quantity="ż_ml/(η_Z p_n f_nl²) of the distinct token that is relatively furthest from its class's ξ_n, "
        f"{TRAINING.describe(evidence)}",
        measured=float(measured[i]), predicted=float(predicted[i]), deviation=largest, tolerance=RATE_TOLERANCE,
        assumptions=assumptions,
        failure=f"token {token} of class {n} at {evidence.format_time(t[i])}, off by {largest:.1%}",
        curve=Curve("t", f"ż/(η_Z p f²) of token {token} and ξ of class {n}", t, measured, predicted, along=along),
    )  # fmt: skip


def _fall(evidence: Evidence) -> Claim:
    assumptions = evidence.select_assumptions()
    classes = evidence.classes
    if len(classes.common) != 1:
        return FALL.not_applicable(f"there are {len(classes.common)} common tokens, not one", assumptions)
    token = classes.common[0]
    # The proof needs a class that has both: the common token falls as that class's distinct ones rise.
    with_both = [n for n in range(classes.n_classes) if len(classes.distinct(n)) and token in classes.common_of(n)]
    if not with_both:
        return FALL.not_applicable("no class with the common token has a distinct one", assumptions)
    rows = np.unique(evidence.class_query[with_both])
    return _signs(FALL, evidence, rows, np.full(len(rows), token), -1, assumptions)


def _symmetric(evidence: Evidence) -> Claim:
    classes = evidence.classes
    assumptions = [*evidence.select_assumptions(), *_symmetry(evidence)]
    if len(classes.common) < 2:
        reason = "there is one common token: Theorem 2(b) speaks of it" if len(classes.common) else "no common tokens"
        return SYMMETRIC.not_applicable(reason, assumptions)
    if not any(len(classes.distinct(n)) for n in range(classes.n_classes)):
        return SYMMETRIC.not_applicable("there are no distinct tokens for attention to move to", assumptions)
    pairs = [(evidence.class_query[n], token) for n in range(classes.n_classes) for token in classes.common_of(n)]
    rows, tokens = np.unique(pairs, axis=0).T
    return _signs(SYMMETRIC, evidence, rows, tokens, -1, assumptions)


def _symmetry(evidence: Evidence) -> list[Assumption]:
    """Conditions (1)–(4) of Corollary 2."""
    classes = evidence.classes
    p = classes.p_context  # (K, M)
    common = p[:, classes.common]
    ordered = np.zeros((classes.n_classes, max(len(classes.distinct(n)) for n in range(classes.n_classes))))
    for n in range(classes.n_classes):
        ids = classes.distinct(n)
        ordered[n, : len(ids)] = -np.sort(-p[n, ids])  # a one-to-one map of equal probabilities is equality in order
    q, distinct, shared = len(classes.queries), _range(ordered), _range(common)
    start = float(np.abs(evidence.z[0]).max())
    return [
        Assumption("single query", "all classes have one query (Corollary 2)", q, 1.0, q == 1, "number of queries"),
        Assumption(
            "equal distinct tokens", "classes have the same distinct probabilities (Corollary 2)",
            distinct, EQUAL, distinct <= EQUAL, "largest difference between classes, in order of probability",
        ),
        Assumption(
            "equal common tokens", "P(l|n) of a common token is the same for all n (Corollary 2)",
            shared, EQUAL, shared <= EQUAL, "largest difference between classes",
        ),
        Assumption(
            "zero start", "Z(0) = 0 (Corollary 2)", start, 0.0, bool(evidence.t[0] == 0 and start == 0),
            "largest |z| at the first recorded time, which must be 0",
        ),
    ]  # fmt: skip


def _signs(
    statement: Statement, evidence: Evidence, rows: Array, tokens: Array, sign: int, assumptions: list[Assumption]
) -> Claim:
    """Judge that z of each (query, token) moves up (sign 1) or down (sign −1)."""
    if evidence.source == "sgd":
        return _net_signs(statement, evidence, rows, tokens, sign, assumptions)
    times = TRAINING.select(evidence)
    if evidence.z_rate is None or not len(times):
        missing = f"no time is recorded in {TRAINING.describe(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return statement.not_applicable(missing if evidence.z_rate is not None else _NO_GRADIENTS, assumptions)
    every = np.flatnonzero(evidence.t > 0)
    rate = sign * evidence.z_rate[every][:, rows, tokens]  # (n, p)
    scale = cancelling(evidence, every)[:, rows, tokens]
    good = rate > ROUNDING * scale
    inside = np.isin(every, times)
    later = ""
    if not inside[-1]:
        later = f"; to the end of the record, {evidence.t[-1] / evidence.t_snap:.3g} t₀, {np.mean(good):.2%}"
    relative = (rate / nonzero(scale))[inside]
    i, j = index_of_largest(-relative)
    t = evidence.t[times]
    label = _label(evidence, rows[j], tokens[j])

    def along(path: PredictedPath) -> tuple[Array, Array]:
        """ż of a theory of ours over the terms that cancel in it as measured."""
        shared, here, there = np.intersect1d(t, path.t, return_indices=True)
        return shared, path.z_rate[there, rows[j], tokens[j]] / nonzero(scale[inside][here, j])

    return statement.judge_cases(
        good[inside], assumptions=assumptions,
        quantity=f"share of tokens and times, {TRAINING.describe(evidence)}, with ż {'>' if sign > 0 else '<'} 0 "
        f"beyond rounding{later}",
        failure=f"{label} has ż = {sign * rate[inside][i, j]:.3g} at {evidence.format_time(t[i])}",
        curve=Curve("t", f"ż/(η_Z p f² fᵀg) of {label}", t, sign * relative[:, j], np.zeros(len(t)),
                    along=along),
    )  # fmt: skip


def _net_signs(
    statement: Statement, evidence: Evidence, rows: Array, tokens: Array, sign: int, assumptions: list[Assumption]
) -> Claim:
    times = TRAINING.select(evidence)
    if not evidence.sampled or len(times) < 2:  # from the start where there is no noise to wait for
        times = np.union1d([0], times)
    if len(times) < 2:
        return statement.not_applicable("needs two recorded times", assumptions)
    runs = evidence.z[None] if evidence.z_seeds is None else evidence.z_seeds  # (R, n, Q, M)
    paths = sign * (runs[:, times] - runs[:, times[:1]])[..., rows, tokens]  # (R, n, p)
    mean = paths.mean(0)
    j = int(np.argmax(-mean[-1]))
    label = _label(evidence, rows[j], tokens[j])
    verb = "rose" if sign > 0 else "fell"
    t = evidence.t[times]
    sure, seeds = None, ""
    if evidence.sampled and np.isfinite(paths).all():
        sure = sure_signs(paths[:, -1])
        seeds = f", in the mean over {len(runs)} seeds" if len(runs) > 1 else ", in one run"
    return statement.judge_cases(
        mean[-1] > 0, assumptions=assumptions, known=sure,
        quantity=f"share of tokens whose logit {verb} from t = {t[0]:.4g} to {t[-1]:.4g}{seeds} "
        f"({_noise(evidence, times, rows, tokens)})",
        failure=f"{label} moved by {sign * mean[-1, j]:.3g}",
        remedy=_to_decide(sure, len(runs)),
        curve=Curve("t", f"z − z({t[0]:.4g}) of {label}", t[1:], sign * mean[1:, j], np.zeros(len(t) - 1),
                    along=lambda path: (path.t[1:], path.z[1:, rows[j], tokens[j]])),
    )  # fmt: skip


def _to_decide(sure: tuple[Array, Array] | None, n_runs: int) -> str:
    if sure is None:
        return ""
    if n_runs < 2:
        return "one run with sampled updates cannot separate drift from noise; several seeds at the same rates can"
    known = sure[0] | sure[1]
    return f"{n_runs} seeds leave the sign of {np.count_nonzero(~known)} of {len(known)} tokens open; more would decide"


def _noise(evidence: Evidence, times: Array, rows: Array, tokens: Array) -> str:
    """The distance of the logits from the integrated population field, as text."""
    if evidence.z_rate is None:
        return "noise unknown without y"
    rate = evidence.z_rate[times][:, rows, tokens]
    drift = trapezoid(rate, evidence.t[times], axis=0)
    moved = evidence.z[times[-1], rows, tokens] - evidence.z[times[0], rows, tokens]
    rms = np.sqrt(np.mean((moved - drift) ** 2)), np.sqrt(np.mean(drift**2))
    return f"one run is {rms[0]:.2g} from what the population field adds up to, {rms[1]:.2g}; root mean squares"


def cancelling(evidence: Evidence, times: Array) -> Array:
    """(n, Q, M) η_Z Σ p_n f_nl² |f_nᵀg_n|, the size of the terms that cancel in ż."""
    assert evidence.g is not None
    f = evidence.f[times]
    fg = np.abs((f * evidence.g[times]).sum(-1, keepdims=True))
    return evidence.sum_by_query(evidence.eta_z * evidence.classes.p_class[:, None] * f**2 * fg)


def _moving(classes: SequenceClasses) -> list[int]:
    """Classes that overlap with another. The others have ξ_n = 0 and do not move, which Assumption 2 excludes."""
    return [n for n, row in enumerate(overlapping(classes)) if row.any()]


def _label(evidence: Evidence, row: int, token: int) -> str:
    return f"token {token} of query {evidence.classes.queries[row]}"


def _range(columns: Array) -> float:
    """Largest difference within a column; 0 if there are none."""
    return float(np.ptp(columns, axis=0).max()) if columns.shape[1] else 0.0
