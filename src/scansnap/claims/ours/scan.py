"""Scan order: distinct tokens gain attention in the order of P(l|n) e^{z_l(0)} (docs/theory.md).

Theorem. Let Y(0) = 0, and l, l' distinct tokens of class n with P(l|n) e^{z_l(0)} > P(l'|n) e^{z_l'(0)}. Up to the time
at which the weaker one, l', first falls, δ_l > δ_l' for δ = z − z(0): any classes, queries, p_n, rates and start.

Proof. Row l of Y is written by class n alone, Y_l = η_Y p_n ∫ f_l r_n dt', and f_l = P(l|n) e^{z_l(0) + δ_l}/o_n. So

    ż_l = η_Z p_n f_l² [Q_l − f_nᵀg_n],     Q_l = ∫ e^{δ_l(t') − δ_l(t)} k(t, t') dt',   k ∝ r_n(t)·r_n(t') > 0

with the same k for both, since r_n has one positive entry, at n. At first Q_l = Q_l', and the brackets are equal and
positive (η_Y t Σ_n' p_n' ρ_nn'/M where classes overlap), so δ_l > δ_l'. At a first time with δ_l = δ_l', δ_l(t') was
the larger one, hence Q_l > Q_l', and f_l > f_l'. If the weaker does not fall then, Q_l' ≥ f_nᵀg_n, so ż_l > ż_l': the
difference cannot reach 0 from above. ∎

The proof uses T → ∞ and no more of the schedule: p_n, η_Y and η_Z may change with time. Two neighbours of the theorem
are not true in general, and the claim reports both: that the speeds ż_l keep the order, and that attention c_l to rare
distinct tokens drops, since what common tokens lose goes to all distinct ones.
"""

from __future__ import annotations

import math

import numpy as np

from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence

ORDER = Statement(
    "scan-order", "Scan order (ours, docs/theory.md)",
    "up to the time at which a distinct token falls, every stronger one of its class has gained more: z_l − z_l(0) "
    "is in the order of P(l|n) e^{z_l(0)}",
    kind="ours",
)  # fmt: skip
STATEMENTS = (ORDER,)

_TIE = 1e-9  # strengths that differ by a smaller share are equal


def check(evidence: Evidence) -> Claim:
    """At every recorded time; the theorem is about T → ∞, and about small steps."""
    reason = ""
    if not math.isinf(evidence.context):
        reason = "contexts are sampled, which moves attention by itself; the theorem is of T → ∞"
    elif evidence.momentum:
        reason = "with momentum a token moves by earlier gradients"
    elif evidence.t[0] != 0 or len(evidence.t) < 2:
        reason = f"the record must begin at t = 0 and go on; it begins at {evidence.t[0]:.4g}"
    elif not any(len(evidence.classes.distinct(n)) > 1 for n in range(evidence.classes.n_classes)):
        reason = "no class has two distinct tokens"
    return ORDER.not_applicable(reason) if reason else _judge(evidence)


def lead(evidence: Evidence, n: int, values: Array) -> Array:
    """(n, D) the least of ``values`` (n, D) among the stronger distinct tokens of class n, less the token's own value.

    NaN for the strongest. Strength is P(l|n) e^{z_l(0)}, that is attention at the start.
    """
    strength = evidence.attention[0, n, evidence.classes.distinct(n)]
    order = np.argsort(-strength, kind="stable")
    lowest = np.minimum.accumulate(values[:, order], axis=1)
    last = np.searchsorted(-strength[order], -strength * (1 + _TIE)) - 1  # the weakest of the stronger ones
    return np.where(last >= 0, lowest[:, np.maximum(last, 0)] - values, np.nan)


def rising_so_far(evidence: Evidence, n: int) -> Array:
    """(n, D) whether each distinct token of class n has not fallen up to each recorded time."""
    ids, row = evidence.classes.distinct(n), evidence.class_query[n]
    rises = np.diff(evidence.z[:, row, ids], axis=0, prepend=evidence.z[:1, row, ids]) >= 0
    if evidence.z_rate is not None:
        rises &= evidence.z_rate[:, row, ids] >= 0
    return np.logical_and.accumulate(rises, axis=0)


def _judge(evidence: Evidence) -> Claim:
    before: list[Array] = []
    worst: tuple[float, int, int, int] = (math.inf, 0, 0, 0)
    after, after_wrong, slowed, least = 0, 0, math.inf, math.inf
    for n in range(evidence.classes.n_classes):
        ids, row = evidence.classes.distinct(n), evidence.class_query[n]
        gained = evidence.z[:, row, ids] - evidence.z[0, row, ids]
        ahead, rising = lead(evidence, n, gained), rising_so_far(evidence, n)
        known = np.abs(ahead) > evidence.resolution * max(1.0, float(np.abs(gained).max(initial=0.0)))
        inside = known & rising
        before.append(ahead[inside] > 0)
        fallen = known & ~rising
        after, after_wrong = after + int(fallen.sum()), after_wrong + int((ahead[fallen] < 0).sum())
        if inside.any():
            i, j = index_of_largest(np.where(inside, -ahead, -math.inf))
            worst = min(worst, (float(ahead[i, j]), i, n, int(ids[j])))
        least = min(least, float((evidence.attention[:, n, ids] / evidence.attention[0, n, ids]).min(initial=math.inf)))
        if evidence.z_rate is not None:
            rate = evidence.z_rate[:, row, ids]
            turned = (lead(evidence, n, rate) < -1e-6 * np.abs(rate).max(1, initial=0.0)[:, None]).any(1)
            slowed = min([slowed, *evidence.t[turned & (evidence.t > 0)]])
    cases = np.concatenate(before)
    if not cases.size:
        return ORDER.not_applicable("no difference of two gains exceeds the resolution of the record")
    gap, i, n, token = worst
    speeds = f"until {evidence.format_time(slowed)}" if math.isfinite(slowed) else "throughout"
    tokens = evidence.classes.distinct(n)
    top = int(tokens[np.argmax(evidence.attention[0, n, tokens])])
    z = evidence.z[1:, evidence.class_query[n]] - evidence.z[0, evidence.class_query[n]]
    return ORDER.judge_cases(
        cases,
        quantity="share of distinct tokens and times, up to the token's first fall, at which every stronger token has "
        f"gained more; after a fall {after_wrong} of {after} are out of order; the speeds ż keep the order {speeds}; "
        f"the least c_l(t)/c_l(0) of a distinct token is {least:.3g}",
        failure=f"token {token} of class {n} is ahead of a stronger one by {-gap:.3g} at "
        f"{evidence.format_time(evidence.t[i])}",
        curve=Curve("t", f"z − z(0) of token {token} and of token {top}, the strongest of class {n}", evidence.t[1:],
                    z[:, token], z[:, top]),
    )  # fmt: skip
