"""Conservation laws: sums that no gradient step changes.

r_n = e_n − α_n sums to 0, and dz_m = diag(f)(I − ffᵀ)g sums to fᵀg − (fᵀf)(fᵀg) = 0. So every
gradient step, sampled or expected, with momentum or without, keeps Σ_j Y[l, j] for each token l and Σ_l z_m[l] for
each query m (noted below Lemma 1 for zero tables; it holds from any start). z moves only on the context of the
query's classes, which distinct and common tokens share out between them: the sum that the distinct tokens gain, the
common ones lose (**ours**). For one common token that is Theorem 2(b); for several it is the part that remains true.

Weight decay conserves neither sum, unless it starts at 0.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import cumulative_trapezoid

from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence, machine_epsilon

VOTES = Statement(
    "conservation-y", "Conservation of Σ Y", "Σ_j Y[l, j] keeps its initial value for every token l (below Lemma 1)",
    kind="identity",
)  # fmt: skip
LOGITS = Statement(
    "conservation-z", "Conservation of Σ z", "Σ_l z_m[l] keeps its initial value for every query m (below Lemma 1)",
    kind="identity",
)  # fmt: skip
COMMON = Statement(
    "common-sum", "Common tokens in sum",
    "for each query, Σ z over common tokens falls by what its distinct tokens gain, hence falls if those all rise",
    kind="identity",
)  # fmt: skip

STATEMENTS = (VOTES, LOGITS, COMMON)

# What a sum may drift by. The laws are linear, so Runge–Kutta and SGD steps keep them up to rounding: an ε of what is
# summed for each update, if all of them rounded the same way, and some more of the first. What is summed is Σ|Y|, or
# Σ|z| and the terms of dz that (I − ffᵀ) lets cancel. Measured: 52 ε at most on flows to t = 10⁶; after 3000 steps of
# SGD 20 ε in float64 and 340 ε in float32. A broken law is of another order (0.1 for a weight decay of 1e-3).
FIRST = {"flow": 1e4, "sgd": 200.0}  # in units of ε; an integration makes thousands of steps that nobody counts here

# Where g is not recorded, those terms are not known. Their integral is of order 1 to 50 even where z hardly moves.
_UNKNOWN_TERMS = 1.0


def check(evidence: Evidence) -> list[Claim]:
    """Three claims: rows of Y, rows of z, and the common tokens' share of the latter."""
    return [_votes(evidence), _logits(evidence), _common(evidence)]


def _votes(evidence: Evidence) -> Claim:
    y = evidence.y
    if y is None or evidence.y_times is None:
        return VOTES.not_applicable("the trajectory holds no y")
    # The flow starts from Y = 0; SGD may have started anywhere, and its first record is the reference.
    start = np.zeros_like(y[0]) if evidence.source == "flow" else y[0]
    total = y.sum(-1)  # (k, M)
    share = _share(np.abs(total - start.sum(-1)), _scale(y, start))
    allowed = _allowed(evidence, y)[evidence.y_times]  # (k,)
    t = evidence.t[evidence.y_times]
    return _conserved(VOTES, t, total, start.sum(-1), share, allowed, "Σ_j Y[{0}, j]", "token {0}", "Σ|Y|")


def _logits(evidence: Evidence) -> Claim:
    z, t = evidence.z, evidence.t
    total = z.sum(-1)  # (n, Q)
    inside = _support(evidence)  # only these move: the scale leaves out the others
    share = _share(np.abs((z - z[0]).sum(-1)), _scale(z * inside, z[0] * inside) + _terms(evidence))
    allowed = _allowed(evidence, z)  # (n,)
    return _conserved(LOGITS, t, total, total[0], share, allowed, "Σ_l z[l] of query {0}", "query {0}",
                     "what was added up", evidence.classes.queries)  # fmt: skip


def _conserved(
    statement: Statement, t: Array, total: Array, expected: Array, share: Array, allowed: Array, label: str, which: str,
    of: str, names: Array | None = None,
) -> Claim:  # fmt: skip
    """Sums (n, X) that keep their values (X,), with the share by which they are off; ``names`` of X in the texts."""
    i, x = index_of_largest(share / allowed[:, None])
    label, which = (text.format(x if names is None else names[x]) for text in (label, which))
    return statement.judge(
        quantity=f"{label} at t = {t[i]:.4g}", measured=total[i, x], predicted=expected[x], deviation=share[i, x],
        tolerance=allowed[i], failure=f"{which} at t = {t[i]:.4g}: off by {share[i, x]:.2g} of {of}",
        curve=_curve(label, t, total[:, x], np.full(len(t), expected[x])),
    )  # fmt: skip


def _common(evidence: Evidence) -> Claim:
    inside = _support(evidence)
    is_common = np.isin(np.arange(evidence.classes.vocab_size), evidence.classes.common)
    common, distinct = inside & is_common, inside & ~is_common  # (Q, M)
    for kind, there in (("common", common), ("distinct", distinct)):
        if not there.any():
            return COMMON.not_applicable(f"there are no {kind} tokens")
    rows = np.flatnonzero(common.any(-1) & distinct.any(-1))
    if len(rows) == 0:
        return COMMON.not_applicable("no query has common and distinct tokens")
    z, t = evidence.z[:, rows], evidence.t
    moved = z - z[0]  # (n, q, M)
    lost, gained = (moved * common[rows]).sum(-1), (moved * distinct[rows]).sum(-1)  # (n, q)
    all_rise = ((moved > 0) | ~distinct[rows]).all(-1)  # (n, q)
    error = np.abs(lost + gained)
    error = np.where(all_rise, np.maximum(error, lost), error)  # then Σ over common may not rise
    share = _share(error, _scale(z * inside[rows], z[0] * inside[rows]) + _terms(evidence)[:, rows])
    allowed = _allowed(evidence, evidence.z)  # (n,)
    i, q = index_of_largest(share / allowed[:, None])
    query = evidence.classes.queries[rows[q]]
    return COMMON.judge(
        quantity=f"change of Σ z over the common tokens of query {query} by t = {t[-1]:.4g} "
        f"({int(all_rise[-1].sum())} of {len(rows)} queries have all their distinct tokens risen)",
        measured=lost[-1, q], predicted=-gained[-1, q], deviation=share[i, q], tolerance=allowed[i],
        failure=f"query {query} at t = {t[i]:.4g}: common {lost[i, q]:+.3g}, distinct {gained[i, q]:+.3g}",
        curve=_curve(f"change of Σ z over the common tokens of query {query}", t, lost[:, q], -gained[:, q]),
    )  # fmt: skip


def _support(evidence: Evidence) -> Array:
    """(Q, M) whether a token is in the context of one of the query's classes."""
    inside = np.zeros(evidence.z.shape[1:], dtype=bool)
    for n, row in enumerate(evidence.class_query):
        inside[row, evidence.classes.support(n)[0]] = True
    return inside


def _scale(table: Array, start: Array) -> Array:
    """Σ|·| by row, now or at the start: rounding is relative to the larger."""
    return np.maximum(np.abs(table).sum(-1), np.abs(start).sum(-1))


def _terms(evidence: Evidence) -> Array:
    """∫ η_Z Σ_n p_n Σ_l f_nl |g_nl| dt by query, (n, Q): the terms whose sum (I − ffᵀ) makes 0."""
    if evidence.g is None:
        return np.full(evidence.z.shape[:2], _UNKNOWN_TERMS)
    by_class = evidence.eta_z * evidence.classes.p_class * (evidence.f * np.abs(evidence.g)).sum(-1)  # (n, K)
    return cumulative_trapezoid(evidence.sum_by_query(by_class), evidence.t, axis=0, initial=0)


def _share(drift: Array, scale: Array) -> Array:
    """drift/scale, 0 where the drift is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(drift == 0, 0.0, drift / scale)


def _allowed(evidence: Evidence, values: Array) -> Array:
    """(n,) the share a sum may drift by, by the precision of the run."""
    updates = evidence.t if evidence.source == "sgd" else np.zeros_like(evidence.t)
    return machine_epsilon(values) * (FIRST[evidence.source] + updates)


def _curve(label: str, t: Array, measured: Array, predicted: Array) -> Curve | None:
    shown = t > 0  # the axis is logarithmic
    return Curve("t", label, t[shown], measured[shown], predicted[shown]) if shown.any() else None
