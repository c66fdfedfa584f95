"""Theorem 3: how distinct tokens grow (Section 5, Eqs. 11 and 12; proof in Appendix E).

For distinct tokens l, l' of class n the squared attention ratio is 1 + r. By Theorem 2(a) both rise at the rate
η_Z p_n f_l² ξ_n with the same ξ_n, which integrates to r(t) = r(0) χ_l(t) with χ_l = e^{2(z_l(t) − z_l(0))}. Eq. 12
bounds the growth of the dominant distinct token between e^{2 f²(0) B_n} and e^{2 B_n}.

B_n = η_Z p_n ∫ξ_n dt is measured (`Evidence.measured_growth`) from z and f alone, without g and without an
integral over time.

Errors are relative at each time to how far attention has moved by then, so that an early violation counts as much as a
late one. Times at which it has not moved beyond rounding (`Evidence.resolution`) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement, nan_to_inf
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.time_windows import TRAINING

if TYPE_CHECKING:
    from scansnap.claims.ours.path import PredictedPath

IDENTITY = Statement(
    "theorem-3-identity", "Theorem 3 (Eq. 11)",
    "The relative gain of a distinct token over another grows as r(t) = r(0) χ(t), χ = e^{2(z(t) − z(0))}.",
    alternatives=("memory", "response"),
)  # fmt: skip

REVERSE = Statement(
    "theorem-3-reverse",
    "Theorem 3 (Eq. 11)",
    "The same with the weaker token first: r(0) < 0, and χ is that of the weaker one.",
    alternatives=("memory", "response"),
    kind="dependent",
    repeats=("theorem-2a-rate",),  # the share by which the weaker token's speed is off, integrated
)

LOWER = Statement(
    "theorem-3-lower", "Theorem 3 (Eq. 12, left)",
    "The growth factor of the dominant distinct token is at least e^{2 f²(0) B_n}.",
    alternatives=("memory", "response"),
)  # fmt: skip

# ż_l > 0 for every distinct token and Σ f² ≤ 1 give ż_l₀ ≤ Σ ż_l ≤ Σ ż_l/Σ f_l² = η_Z p_n ξ_n, interval by interval.
UPPER = Statement(
    "theorem-3-upper", "Theorem 3 (Eq. 12, right)",
    "The growth factor of the dominant distinct token is at most e^{2 B_n}, since all distinct ones rise and ‖f‖ = 1.",
    kind="identity",
)  # fmt: skip

MONOTONE = Statement(
    "theorem-3-monotone", "Theorem 3",
    "Logit z and attention f of the dominant distinct token increase all the time.",
    alternatives=("memory", "response"),
)  # fmt: skip

STATEMENTS = (IDENTITY, LOWER, UPPER, MONOTONE)

# Theorem 1 drops terms of relative order 1/10 ("≫" is read as a factor of 10), so its consequences are asked to a
# tenth. The error is that of ln(1 + r), twice the log of an attention ratio, as a share of the growth ln χ reached by
# then: relative to r itself two equal tokens (r = 0) could never agree, and as an absolute error attention that
# has hardly moved would always agree.
IDENTITY_TOLERANCE = 0.1

# An inequality has no slack of its own, and the lower bound is nearly an equality while attention has moved little.
# The hundredth of the bound is for the sum that stands for ∫ξ_n (60 times in a record leave it right to 1e-3).
BOUNDS_TOLERANCE = 0.01

# The largest fall below an earlier value, as a share of the way travelled by then. The flow is exact to 1e-6; a
# hundredth is what cannot be seen in a plot of a noisy run.
MONOTONE_TOLERANCE = 0.01

_ROUNDING = 1e-9  # of the largest rate of a query: below it a rate has no sign


@np.errstate(all="ignore")  # Statement.judge judges what is not a number a failure
def check(evidence: Evidence) -> list[Claim]:
    """The identity over all pairs of distinct tokens, the bounds and the monotone growth of the dominant ones."""
    window = TRAINING.select(evidence)
    if len(window) == 0:
        assumed = evidence.select_assumptions()
        reason = f"no time is recorded in {TRAINING.describe(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return [s.not_applicable(reason, assumed) for s in STATEMENTS]
    return [check_pairs(evidence, window), *_check_dominant(evidence, window)]


@dataclass(frozen=True)
class _Pair:
    """One distinct token against another of its class, over the whole record."""

    n: int
    token: int
    other: int
    measured: Array  # ln(1 + r)
    predicted: Array  # ln(1 + r(0) χ)
    size: Array  # what errors are relative to

    def error(self, times: Array, resolution: float) -> Array:
        """At each of the times, as a share of the size reached by then; 0 while that is below the resolution."""
        size = np.abs(self.size[times])
        return np.where(size <= resolution, 0.0, np.abs(self.measured - self.predicted)[times] / size)


def _pairs(evidence: Evidence, statement: Statement) -> list[_Pair]:
    """The strongest distinct token of each class over the others, or the others over it.

    (1 − 1/χ_l)/f_l(0)² is the same for l and l' exactly if Eq. 11 holds for them, so exact identities with one token
    give all. To a tenth the two orders differ: with the weaker token first, what is asked is its own speed.
    """
    pairs = []
    for n in range(evidence.classes.n_classes):
        tokens = evidence.classes.distinct(n)
        if len(tokens) < 2:
            continue
        c, z = evidence.attention[:, n], evidence.z[:, evidence.class_query[n]]
        top = tokens[np.argmax(c[0, tokens])]
        for other in tokens[tokens != top]:
            first, second = (other, top) if statement is REVERSE else (top, other)
            measured = 2 * np.log(c[:, first] / c[:, second])
            log_chi = 2 * (z[:, first] - z[0, first])
            r0 = np.expm1(measured[0])
            if statement is REVERSE:
                predicted, size = np.log1p(r0 * np.exp(log_chi)), measured - measured[0]
            else:
                predicted, size = np.logaddexp(0, np.log(r0) + log_chi), log_chi  # ln 0: two equal tokens stay equal
            pairs.append(_Pair(n, int(first), int(second), measured, predicted, size))
    return pairs


@np.errstate(all="ignore")
def check_reverse(evidence: Evidence) -> Claim:
    """The identity with the weaker token first, relative to the change of ln(1 + r) by then."""
    window = TRAINING.select(evidence)
    if len(window) == 0:
        return REVERSE.not_applicable(f"no time is recorded in {TRAINING.describe(evidence)}")
    return check_pairs(evidence, window, REVERSE)


def check_pairs(evidence: Evidence, window: Array, statement: Statement = IDENTITY) -> Claim:
    """The worst pair, relative to the size reached by then."""
    assumed = evidence.select_assumptions()
    pairs = _pairs(evidence, statement)
    if not pairs:
        return statement.not_applicable("no class has two distinct tokens", assumed)
    resolution = 2 * evidence.resolution  # ln χ is twice a logit
    pairs = [p for p in pairs if not np.abs(p.size[window]).max() <= resolution]
    if not pairs:
        return statement.not_applicable("the distinct tokens' logits do not move", assumed)
    worst = max(pairs, key=lambda p: nan_to_inf(p.error(window, resolution).max()))
    error = worst.error(window, resolution)
    at = window[np.argmax(error)]
    final = max(nan_to_inf(p.error(np.array([-1]), resolution)[0]) for p in pairs)
    share = "its change" if statement is REVERSE else "the growth ln χ"
    pair = f"token {worst.token} over {worst.other} of class {worst.n}"
    return statement.judge(
        quantity=f"relative gain r of {pair} at t = {evidence.t[at]:.4g} (worst in {TRAINING.describe(evidence)})",
        measured=_expm1(worst.measured[at]), predicted=_expm1(worst.predicted[at]), deviation=error.max(),
        tolerance=IDENTITY_TOLERANCE, assumptions=assumed,
        failure=(
            f"{pair}, {evidence.format_time(evidence.t[at])}: ln(1 + r) = {worst.measured[at]:.4g} against "
            f"{worst.predicted[at]:.4g}, off by {error.max():.2g} of {share}; "
            f"by {final:.2g} at the end of the record, {evidence.format_time(evidence.t[-1])}"
        ),
        curve=Curve(
            "t",
            f"ln(1 + r), {pair}",
            evidence.t,
            worst.measured,
            worst.predicted,
            along=lambda path: (
                path.t[1:],
                2 * np.log(path.attention[1:, worst.n, worst.token] / path.attention[1:, worst.n, worst.other]),
            ),
        ),
    )  # fmt: skip


def _expm1(log_ratio: float) -> float:
    return float(np.expm1(min(float(log_ratio), 700.0)))  # e^700 is nearly the largest double


@dataclass(frozen=True)
class _Dominant:
    """The distinct token of a class that has more attention at the start than every other."""

    n: int
    token: int
    rising: float  # share of the recorded intervals in which no distinct token of the class falls
    falling: float  # share of the recorded times at which all common tokens of the class fall
    z: Array
    f: Array

    def __str__(self) -> str:
        return f"token {self.token} of class {self.n}"


def _check_dominant(evidence: Evidence, window: Array) -> list[Claim]:
    """Bounds and monotone growth, for the classes that the theorem is about."""
    dominant, reasons = [], []
    for n in range(evidence.classes.n_classes):
        tokens = evidence.classes.distinct(n)
        start = np.sort(evidence.attention[0, n, tokens])
        if len(tokens) == 0:
            reasons.append(f"class {n} has no distinct token")
        elif len(tokens) > 1 and not start[-1] > start[-2]:
            reasons.append(f"no distinct token of class {n} dominates: two share the largest attention")
        else:
            token = int(tokens[np.argmax(evidence.attention[0, n, tokens])])
            z = evidence.z[:, evidence.class_query[n], token]
            if np.abs(z - z[0])[window].max() <= evidence.resolution:
                reasons.append(f"the dominant token {token} of class {n} does not move")
            else:
                f = evidence.f[:, n, token]
                rising, falling = _rising(evidence, n, window), _falling(evidence, n, window)
                dominant.append(_Dominant(n, token, rising, falling, z - z[0], f))
    # the theorem is about classes whose common tokens fall; if there are none, all are measured
    judged = [d for d in dominant if d.falling == 1] or dominant
    if not judged:
        reason = reasons[0] + (f", and {len(reasons) - 1} more" if len(reasons) > 1 else "")
        return [s.not_applicable(reason, evidence.select_assumptions()) for s in (LOWER, UPPER, MONOTONE)]
    fall = Assumption(
        "common tokens fall",
        "ż < 0 for every common token of the class (Theorem 3): share of the recorded times at which it is so",
        min(d.falling for d in judged), 1.0, all(d.falling == 1 for d in judged),
        "the smallest over the classes judged",
    )  # fmt: skip
    rise = Assumption(
        "distinct tokens rise",
        "Δz ≥ 0 for every distinct token of the class (Theorem 2a): share of the recorded intervals in which it is so",
        min(d.rising for d in judged), 1.0, all(d.rising == 1 for d in judged),
        "the smallest over the classes judged; what the upper bound needs instead of Theorem 1",
    )  # fmt: skip
    assumed = [*evidence.select_assumptions(), fall]
    upper = {d.n: evidence.measured_growth[:, d.n] for d in judged}
    lower = {d.n: d.f[0] ** 2 * upper[d.n] for d in judged}
    return [
        _bound(LOWER, evidence, window, judged, assumed, lower, 1),
        _bound(UPPER, evidence, window, judged, [rise], upper, -1), _monotone(evidence, window, judged, assumed),
    ]  # fmt: skip


def _rising(evidence: Evidence, n: int, window: Array) -> float:
    """How often no distinct token falls from one recorded time to the next, up to the end of the window."""
    z = evidence.z[: window[-1] + 1, evidence.class_query[n]][:, evidence.classes.distinct(n)]
    return float((~(np.diff(z, axis=0) < 0)).all(-1).mean())  # what is not a number counts as falling


def _falling(evidence: Evidence, n: int, window: Array) -> float:
    """How often all common tokens of the class have ż < 0; without g, whether they have fallen by the end."""
    tokens, row = evidence.classes.common_of(n), evidence.class_query[n]
    if evidence.z_rate is None:
        return float((evidence.z[window[-1], row, tokens] < evidence.z[0, row, tokens]).all())
    rate = evidence.z_rate[window, row]
    return float((rate[:, tokens] < _ROUNDING * np.abs(rate).max(-1, keepdims=True)).all(-1).mean())


def _bound(
    statement: Statement, evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption],
    bound: dict[int, Array], sign: int,
) -> Claim:  # fmt: skip
    """Judge that ½ ln χ stays above its bound (sign 1) or below it (−1), at each time at which it has moved."""

    def off(d: _Dominant) -> Array:
        """How far beyond the bound, as a share of it."""
        beyond = sign * (bound[d.n] - d.z) / np.abs(bound[d.n])
        return np.where(np.abs(d.z) <= evidence.resolution, -np.inf, beyond)

    worst = max(dominant, key=lambda d: nan_to_inf(off(d)[window].max()))
    outside = off(worst)[window]
    at = window[np.argmax(outside)] if not outside.max() <= 0 else window[-1]
    expected, rise = float(bound[worst.n][at]), float(worst.z[at])
    final = max(max(nan_to_inf(off(d)[-1]), 0.0) for d in dominant)
    return statement.judge(
        quantity=f"½ ln χ = z(t) − z(0) of {worst} at t = {evidence.t[at]:.4g}, against its bound "
        f"(worst of {len(dominant)} of {evidence.classes.n_classes} classes, {TRAINING.describe(evidence)})",
        measured=rise, predicted=expected, deviation=max(nan_to_inf(outside.max()), 0.0), tolerance=BOUNDS_TOLERANCE,
        assumptions=assumed,
        failure=f"{worst}, {evidence.format_time(evidence.t[at])}: ½ ln χ = {rise:.4g} against the bound "
        f"{expected:.4g}, beyond it by {outside.max():.2g} of it; by {final:.2g} at the end of the record, "
        f"{evidence.format_time(evidence.t[-1])}",
        curve=Curve(
            "t",
            f"½ ln χ of {worst}, and its bound",
            evidence.t,
            worst.z,
            bound[worst.n],
            along=lambda path: (path.t[1:], path.z[1:, path.class_query[worst.n], worst.token]),
        ),
    )  # fmt: skip


def _monotone(evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption]) -> Claim:
    times = np.concatenate([[0], window]) if window[0] != 0 else window
    curves = [(name, d, x) for d in dominant for name, x in (("z", d.z), ("f", d.f))]
    name, token, x = max(curves, key=lambda curve: nan_to_inf(_fall(curve[2], times, evidence.resolution)[0]))
    label = f"{name} of {token}"

    def along(path: PredictedPath) -> tuple[Array, Array]:
        n = token.n
        return path.t[1:], path.f[1:, n, token.token] if name == "f" else path.z[1:, path.class_query[n], token.token]

    share, before, after = _fall(x, times, evidence.resolution)
    return MONOTONE.judge(
        quantity=f"{label} at t = {evidence.t[after]:.4g}, against its largest value before "
        f"(worst of {len(dominant)} of {evidence.classes.n_classes} classes, {TRAINING.describe(evidence)})",
        measured=x[after], predicted=x[before], deviation=share, tolerance=MONOTONE_TOLERANCE, assumptions=assumed,
        failure=f"{label} falls from {x[before]:.5g} at {evidence.format_time(evidence.t[before])} to {x[after]:.5g} "
        f"at {evidence.format_time(evidence.t[after])}, by {share:.2g} of the way it went until then",
        curve=Curve("t", label, evidence.t, x, np.maximum.accumulate(x), along=along),
    )  # fmt: skip


def _fall(x: Array, times: Array, resolution: float) -> tuple[float, int, int]:
    """The largest fall below an earlier value as a share of the way up to there, and from when to when.

    Where nothing falls, the last two times. A fall that is only rounding is none.
    """
    x = x[times]
    highest = np.maximum.accumulate(x)
    drop = highest - x
    share = np.where(drop <= resolution, 0.0, drop / np.maximum(highest - x[0], resolution))
    after = int(np.argmax(share)) if not share.max() <= 0 else len(x) - 1
    before = int(np.argmax(x[:after]))
    return float(share[after]), int(times[before]), int(times[after])
