"""Theorem 3, Eq. 12: the dominant distinct token rises all the time, between e^{2 f²(0) B_n} and e^{2 B_n}."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement, nan_is_worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.windows import TRAINING

if TYPE_CHECKING:
    from scansnap.claims.ours.path import Path

LOWER = Statement(
    "theorem-3-lower",
    "Theorem 3 (Eq. 12, left)",
    "The growth factor of the dominant distinct token is at least e^{2 f²(0) B_n}.",
    instead=("memory", "response"),
)
# ż_l > 0 for every distinct token and Σ f² ≤ 1 give ż_l₀ ≤ Σ ż_l ≤ Σ ż_l/Σ f_l² = η_Z p_n ξ_n, interval by interval.
UPPER = Statement(
    "theorem-3-upper",
    "Theorem 3 (Eq. 12, right)",
    "The growth factor of the dominant distinct token is at most e^{2 B_n}, since all distinct ones rise and ‖f‖ = 1.",
    kind="identity",
)
MONOTONE = Statement(
    "theorem-3-monotone",
    "Theorem 3",
    "Logit z and attention f of the dominant distinct token increase all the time.",
    instead=("memory", "response"),
)

# An inequality has no slack of its own, and the lower bound is nearly an equality while attention has moved little.
# The hundredth of the bound is for the sum that stands for ∫ξ_n (60 times in a record leave it right to 1e-3).
BOUNDS_TOLERANCE = 0.01
# The largest fall below an earlier value, as a share of the way travelled by then. The flow is exact to 1e-6; a
# hundredth is what cannot be seen in a plot of a noisy run.
MONOTONE_TOLERANCE = 0.01

_ROUNDING = 1e-9  # of the largest rate of a query: below it a rate has no sign


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


def claims(evidence: Evidence, window: Array) -> list[Claim]:
    """Bounds and monotone growth, for the classes that the theorem speaks of."""
    found, why = [], []
    for n in range(evidence.classes.n_classes):
        tokens = evidence.classes.distinct(n)
        start = np.sort(evidence.attention[0, n, tokens])
        if len(tokens) == 0:
            why.append(f"class {n} has no distinct token")
        elif len(tokens) > 1 and not start[-1] > start[-2]:
            why.append(f"no distinct token of class {n} dominates: two share the largest attention")
        else:
            token = int(tokens[np.argmax(evidence.attention[0, n, tokens])])
            z = evidence.z[:, evidence.class_query[n], token]
            if np.abs(z - z[0])[window].max() <= evidence.told:
                why.append(f"the dominant token {token} of class {n} does not move")
            else:
                f = evidence.f[:, n, token]
                rising, falling = _rising(evidence, n, window), _falling(evidence, n, window)
                found.append(_Dominant(n, token, rising, falling, z - z[0], f))
    # the theorem speaks of classes whose common tokens fall; where there is none, of none, but it is measured
    meant = [d for d in found if d.falling == 1] or found
    if not meant:
        reason = why[0] + (f", and {len(why) - 1} more" if len(why) > 1 else "")
        return [s.not_applicable(reason, evidence.assume()) for s in (LOWER, UPPER, MONOTONE)]
    fall = Assumption(
        "common tokens fall",
        "ż < 0 for every common token of the class (Theorem 3): share of the recorded times at which it is so",
        min(d.falling for d in meant), 1.0, all(d.falling == 1 for d in meant),
        "the smallest over the classes judged",
    )  # fmt: skip
    rise = Assumption(
        "distinct tokens rise",
        "Δz ≥ 0 for every distinct token of the class (Theorem 2a): share of the recorded intervals in which it is so",
        min(d.rising for d in meant), 1.0, all(d.rising == 1 for d in meant),
        "the smallest over the classes judged; what the upper bound needs instead of Theorem 1",
    )  # fmt: skip
    assumed = [*evidence.assume(), fall]
    return [
        _lower(evidence, window, meant, assumed), _upper(evidence, window, meant, [rise]),
        _monotone(evidence, window, meant, assumed),
    ]  # fmt: skip


def _rising(evidence: Evidence, n: int, window: Array) -> float:
    """How often no distinct token falls from one recorded time to the next, up to the end of the window."""
    z = evidence.z[: window[-1] + 1, evidence.class_query[n]][:, evidence.classes.distinct(n)]
    return float((~(np.diff(z, axis=0) < 0)).all(-1).mean())  # what is not a number is not excused


def _falling(evidence: Evidence, n: int, window: Array) -> float:
    """How often all common tokens of the class have ż < 0; without g, whether they have fallen by the end."""
    tokens, row = evidence.classes.common_of(n), evidence.class_query[n]
    if evidence.z_rate is None:
        return float((evidence.z[window[-1], row, tokens] < evidence.z[0, row, tokens]).all())
    rate = evidence.z_rate[window, row]
    return float((rate[:, tokens] < _ROUNDING * np.abs(rate).max(-1, keepdims=True)).all(-1).mean())


def _lower(evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption]) -> Claim:
    bound = {d.n: d.f[0] ** 2 * evidence.measured_growth[:, d.n] for d in dominant}

    def beyond(d: _Dominant) -> Array:
        """How far below the bound, as a share of it; negative above."""
        return (bound[d.n] - d.z) / np.abs(bound[d.n])

    return _bound(LOWER, evidence, window, dominant, assumed, bound, beyond)


def _upper(evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption]) -> Claim:
    bound = {d.n: evidence.measured_growth[:, d.n] for d in dominant}

    def beyond(d: _Dominant) -> Array:
        """How far above the bound, as a share of it; negative below."""
        return (d.z - bound[d.n]) / np.abs(bound[d.n])

    return _bound(UPPER, evidence, window, dominant, assumed, bound, beyond)


def _bound(
    statement: Statement, evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption],
    bound: dict[int, Array], beyond: Callable[[_Dominant], Array],
) -> Claim:  # fmt: skip
    """Judge that ½ ln χ stays on the right side of its bound, at each time at which it has moved."""

    def off(d: _Dominant) -> Array:
        return np.where(np.abs(d.z) <= evidence.told, -np.inf, beyond(d))

    worst = max(dominant, key=lambda d: nan_is_worst(off(d)[window].max()))
    outside = off(worst)[window]
    at = window[np.argmax(outside)] if not outside.max() <= 0 else window[-1]
    expected, rise = float(bound[worst.n][at]), float(worst.z[at])
    final = max(max(nan_is_worst(off(d)[-1]), 0.0) for d in dominant)
    return statement.judge(
        quantity=f"½ ln χ = z(t) − z(0) of {worst} at t = {evidence.t[at]:.4g}, against its bound "
        f"(worst of {len(dominant)} of {evidence.classes.n_classes} classes, {TRAINING.words(evidence)})",
        measured=rise,
        predicted=expected,
        deviation=max(nan_is_worst(outside.max()), 0.0),
        tolerance=BOUNDS_TOLERANCE,
        assumptions=assumed,
        where=f"{worst}, {evidence.when(evidence.t[at])}: ½ ln χ = {rise:.4g} against the bound {expected:.4g}, "
        f"beyond it by {outside.max():.2g} of it; by {final:.2g} at the end of the record, "
        f"{evidence.when(evidence.t[-1])}",
        curve=Curve(
            "t",
            f"½ ln χ of {worst}, and its bound",
            evidence.t,
            worst.z,
            bound[worst.n],
            along=lambda path: (path.t[1:], path.z[1:, path.class_query[worst.n], worst.token]),
        ),
    )


def _monotone(evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption]) -> Claim:
    times = np.concatenate([[0], window]) if window[0] != 0 else window
    curves = [(name, d, x) for d in dominant for name, x in (("z", d.z), ("f", d.f))]
    name, token, x = max(curves, key=lambda curve: nan_is_worst(_fall(curve[2], times, evidence.told)[0]))
    label = f"{name} of {token}"

    def along(path: Path) -> tuple[Array, Array]:
        n = token.n
        return path.t[1:], path.f[1:, n, token.token] if name == "f" else path.z[1:, path.class_query[n], token.token]

    share, before, after = _fall(x, times, evidence.told)
    return MONOTONE.judge(
        quantity=f"{label} at t = {evidence.t[after]:.4g}, against its largest value before "
        f"(worst of {len(dominant)} of {evidence.classes.n_classes} classes, {TRAINING.words(evidence)})",
        measured=float(x[after]),
        predicted=float(x[before]),
        deviation=share,
        tolerance=MONOTONE_TOLERANCE,
        assumptions=assumed,
        where=f"{label} falls from {x[before]:.5g} at {evidence.when(evidence.t[before])} to {x[after]:.5g} at "
        f"{evidence.when(evidence.t[after])}, by {share:.2g} of the way it went until then",
        curve=Curve("t", label, evidence.t, x, np.maximum.accumulate(x), along=along),
    )


def _fall(x: Array, times: Array, told: float) -> tuple[float, int, int]:
    """The largest fall below an earlier value as a share of the way up to there, and from when to when.

    Where nothing falls, the last two times. A fall that is only rounding is none.
    """
    x = x[times]
    highest = np.maximum.accumulate(x)
    drop = highest - x
    share = np.where(drop <= told, 0.0, drop / np.maximum(highest - x[0], told))
    after = int(np.argmax(share)) if not share.max() <= 0 else len(x) - 1
    before = int(np.argmax(x[:after]))
    return float(share[after]), int(times[before]), int(times[after])
