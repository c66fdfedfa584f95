"""Theorem 2 and Corollary 2: the fates of contextual tokens.

A distinct token of class n rises, ż_ml = η_Z p_n f_nl² ξ_n > 0 (Eq. 98); a single common token falls,
ż_ml = −η_Z Σ p_n (1 − f_nl²) ξ_n < 0 (Eq. 100); several fall in the symmetric case of Corollary 2. In general only
their sum is bound to fall, since Σ_l ż_ml = 0.

On the flow the sign of ż is looked at in every recorded state. Single updates of SGD are noisy, so there it is the
net change of z over the run that counts.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims import premises
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorem1 import ROUNDING, overlapping, share, window
from scansnap.classes import SequenceClasses
from scansnap.theory.assumptions import Assumption

RISE = Statement("theorem-2a", "Theorem 2(a)", "every distinct token gains attention: ż_ml > 0")
RISE_RATE = Statement(
    "theorem-2a-rate", "Theorem 2(a), Eq. 98", "ż_ml = η_Z p_n f_nl² ξ_n with one ξ_n for all distinct tokens of n"
)
FALL = Statement("theorem-2b", "Theorem 2(b)", "a single common token loses attention: ż_ml < 0")
SYMMETRIC = Statement(
    "corollary-2", "Corollary 2", "in the symmetric case with one query every common token loses attention"
)

# An equation of the paper is asked to hold to a tenth, as everywhere here. It need not: Y remembers earlier f, and
# beside ξ_n, which is a small part of γ (about f_nᵀf_n'/M at first), this memory grows with η_Z/η_Y and t.
RATE_TOLERANCE = 0.1
# Probabilities that are to be equal in Corollary 2; files and single precision keep this many digits.
EQUAL = 1e-6

_NO_GRADIENTS = "needs the gradients g, that is y at every recorded time"


def check(evidence: Evidence) -> list[Claim]:
    """Who rises, how fast, and who falls."""
    return [_rise(evidence), _rise_rate(evidence), _fall(evidence), _symmetric(evidence)]


def _rise(evidence: Evidence) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    moving = _moving(evidence.classes)
    if not moving:
        return RISE.not_applicable("no two classes share a context token: attention does not move", assumptions)
    own = [evidence.classes.distinct(n) for n in moving]
    rows = np.repeat(evidence.class_query[moving], [len(ids) for ids in own])
    if not len(rows):
        return RISE.not_applicable("no class that overlaps with another has a distinct token", assumptions)
    return _signs(RISE, evidence, rows, np.concatenate(own), 1, assumptions)


def _rise_rate(evidence: Evidence) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    classes, times = evidence.classes, window(evidence)
    several = [n for n in _moving(classes) if len(classes.distinct(n)) > 1]
    if evidence.z_rate is None:
        return RISE_RATE.not_applicable(_NO_GRADIENTS, assumptions)
    if not several:
        why = "no class that overlaps with another has two distinct tokens to compare"
        return RISE_RATE.not_applicable(why, assumptions)
    if not len(times):
        why = f"no time is recorded between 0 and 10 t₀ = {10 * evidence.t_snap:.3g}"
        return RISE_RATE.not_applicable(why, assumptions)
    t = evidence.t[times]
    worst, found = -1.0, None
    for n in several:
        ids = classes.distinct(n)
        f2 = evidence.f[times][:, n, ids] ** 2  # (n, D)
        rate = evidence.z_rate[times, evidence.class_query[n]][:, ids] / (evidence.eta_z * classes.p_class[n])
        xi = rate.sum(1) / _nonzero(f2.sum(1))  # (n,)  the one that fits best, as in theorem1.xi
        speed = rate / _nonzero(f2)  # (n, D)
        off = np.abs(speed - xi[:, None]) / _nonzero(np.abs(xi))[:, None]
        i, j = np.unravel_index(int(np.argmax(off)), off.shape)
        if not off[i, j] <= worst:  # also where it is not a number
            worst, found = float(off[i, j]), (n, int(ids[j]), i, speed[:, j], xi)
        if np.isnan(worst):
            break
    assert found is not None
    n, token, i, measured, predicted = found
    return RISE_RATE.judge(
        quantity="ż_ml/(η_Z p_n f_nl²) of the distinct token that is relatively furthest from its class's ξ_n",
        measured=float(measured[i]), predicted=float(predicted[i]), deviation=worst, tolerance=RATE_TOLERANCE,
        assumptions=assumptions,
        where=f"token {token} of class {n} at t = {t[i]:.4g} ({t[i] / evidence.t_snap:.3g} t₀), off by {worst:.1%}",
        curve=Curve("t", f"ż/(η_Z p f²) of token {token} and ξ of class {n}", t, measured, predicted),
    )  # fmt: skip


def _fall(evidence: Evidence) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    classes = evidence.classes
    if len(classes.common) != 1:
        return FALL.not_applicable(f"there are {len(classes.common)} common tokens, not one", assumptions)
    token = classes.common[0]
    # The proof needs a class that has both: the common token falls as that class's distinct ones rise.
    both = [n for n in range(classes.n_classes) if len(classes.distinct(n)) and token in classes.common_of(n)]
    if not both:
        return FALL.not_applicable("no class with the common token has a distinct one", assumptions)
    rows = np.unique(evidence.class_query[both])
    return _signs(FALL, evidence, rows, np.full(len(rows), token), -1, assumptions)


def _symmetric(evidence: Evidence) -> Claim:
    classes = evidence.classes
    assumptions = [*evidence.assume(*premises.THEOREM_1), *_symmetry(evidence)]
    if len(classes.common) < 2:
        why = "there is one common token: Theorem 2(b) speaks of it" if len(classes.common) else "no common tokens"
        return SYMMETRIC.not_applicable(why, assumptions)
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
    own = np.zeros((classes.n_classes, max(len(classes.distinct(n)) for n in range(classes.n_classes))))
    for n in range(classes.n_classes):
        ids = classes.distinct(n)
        own[n, : len(ids)] = -np.sort(-p[n, ids])  # a one-to-one map of equal probabilities is equality in order
    q, distinct, shared = len(classes.queries), _range(own), _range(common)
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
    times = np.flatnonzero(evidence.t > 0)
    if evidence.z_rate is None or not len(times):
        why = _NO_GRADIENTS if len(times) else "no time after 0 is recorded"
        return statement.not_applicable(why, assumptions)
    rate = sign * evidence.z_rate[times][:, rows, tokens]  # (n, p)
    scale = _cancelling(evidence, times)[:, rows, tokens]
    relative = rate / _nonzero(scale)
    good = rate > ROUNDING * scale
    i, j = np.unravel_index(int(np.argmax(-relative)), relative.shape)
    t = evidence.t[times]
    label = _label(evidence, rows[j], tokens[j])
    return share(
        statement, good, assumptions=assumptions,
        quantity=f"share of tokens and times with ż {'>' if sign > 0 else '<'} 0 beyond rounding",
        where=f"{label} has ż = {sign * rate[i, j]:.3g} at t = {t[i]:.4g} ({t[i] / evidence.t_snap:.3g} t₀)",
        curve=Curve("t", f"ż/(η_Z p f² fᵀg) of {label}", t, sign * relative[:, j], np.zeros(len(t))),
    )  # fmt: skip


def _net_signs(
    statement: Statement, evidence: Evidence, rows: Array, tokens: Array, sign: int, assumptions: list[Assumption]
) -> Claim:
    if len(evidence.t) < 2:
        return statement.not_applicable("needs two recorded times", assumptions)
    path = sign * (evidence.z - evidence.z[0])[:, rows, tokens]  # (n, p)
    j = int(np.argmax(-path[-1]))
    label = _label(evidence, rows[j], tokens[j])
    verb = "rose" if sign > 0 else "fell"
    return share(
        statement, path[-1] > 0, assumptions=assumptions,
        quantity=f"share of tokens whose logit {verb} from t = {evidence.t[0]:.4g} to {evidence.t[-1]:.4g} "
        f"({_noise(evidence, rows, tokens)})",
        where=f"{label} moved by {sign * path[-1, j]:.3g}",
        curve=Curve("t", f"z − z(0) of {label}", evidence.t[1:], sign * path[1:, j], np.zeros(len(evidence.t) - 1)),
    )  # fmt: skip


def _noise(evidence: Evidence, rows: Array, tokens: Array) -> str:
    """How far sampling has taken the logits from the population field, in words."""
    if evidence.z_rate is None:
        return "noise unknown without y"
    rate = evidence.z_rate[:, rows, tokens]
    drift = ((rate[1:] + rate[:-1]) / 2 * np.diff(evidence.t)[:, None]).sum(0)
    moved = evidence.z[-1, rows, tokens] - evidence.z[0, rows, tokens]
    rms = np.sqrt(np.mean((moved - drift) ** 2)), np.sqrt(np.mean(drift**2))
    return f"{rms[0]:.2g} from what the population field adds up to, {rms[1]:.2g}, both root mean squares"


def _cancelling(evidence: Evidence, times: Array) -> Array:
    """(n, Q, M) η_Z Σ p_n f_nl² |f_nᵀg_n|, the size of the terms that cancel in ż."""
    assert evidence.g is not None
    f = evidence.f[times]
    fg = np.abs((f * evidence.g[times]).sum(-1, keepdims=True))
    by_class = evidence.eta_z * evidence.classes.p_class[:, None] * f**2 * fg
    scale = np.zeros((len(times), *evidence.z.shape[1:]))
    for n, row in enumerate(evidence.class_query):
        scale[:, row] += by_class[:, n]
    return scale


def _moving(classes: SequenceClasses) -> list[int]:
    """Classes that overlap with another. The others have ξ_n = 0 and stand still, which Assumption 2 rules out."""
    return [n for n, row in enumerate(overlapping(classes)) if row.any()]


def _label(evidence: Evidence, row: int, token: int) -> str:
    return f"token {token} of query {evidence.classes.queries[row]}"


def _range(columns: Array) -> float:
    """Largest difference within a column; 0 if there are none."""
    return float(np.ptp(columns, axis=0).max()) if columns.shape[1] else 0.0


def _nonzero(values: Array) -> Array:
    return np.where(values == 0, 1, values)
