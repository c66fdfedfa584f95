"""Theorem 3: how distinct tokens grow (Section 5, Eqs. 11 and 12; proof in Appendix E).

For distinct tokens l, l' of class n the squared attention ratio is 1 + r. By Theorem 2(a) both rise at the rate
η_Z p_n f_l² ξ_n with the same ξ_n, which integrates to r(t) = r(0) χ_l(t) with χ_l = e^{2(z_l(t) − z_l(0))}.

What is measured is B_n = η_Z p_n ∫ξ_n dt. Where ż_l/f_l² differs between the distinct tokens of a class, ξ_n is its
least-squares value, ξ_n = Σ_l f_l (g_l − f_l f·g)/Σ_l f_l² (:func:`coefficients`). By Lemma 1 that is the same as
η_Z p_n ξ_n = Σ_l ż_l/Σ_l f_l², so B_n can be had from the path of z and f alone (:func:`growth`), without g and
without an integral over time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scansnap.claims import premises
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.theory.assumptions import Assumption

IDENTITY = Statement(
    "theorem-3-identity",
    "Theorem 3 (Eq. 11)",
    "The relative gain of a distinct token over another grows as r(t) = r(0) χ(t), χ = e^{2(z(t) − z(0))}.",
)
BOUNDS = Statement(
    "theorem-3-bounds",
    "Theorem 3 (Eq. 12)",
    "The growth factor of the dominant distinct token is at least e^{2 f²(0) B_n} and at most e^{2 B_n}.",
)
MONOTONE = Statement(
    "theorem-3-monotone",
    "Theorem 3",
    "Logit z and attention f of the dominant distinct token increase all the time.",
)

WINDOW = 10.0  # statements are judged up to so many t₀: past the transition; what comes after is told in words

# Theorem 1 drops terms of relative order 1/10 ("≫" is read as a factor of 10), so its consequences are asked to a
# tenth. The error is that of ln(1 + r), twice the log of an attention ratio, as a share of the growth ln χ that was
# reached: relative to r itself two equal tokens (r = 0) could never agree, and as an absolute error attention that
# has hardly moved would always agree.
IDENTITY_TOLERANCE = 0.1
# An inequality has no slack of its own, and the lower bound is nearly an equality while attention has moved little.
# The hundredth of the bound is for the sum that stands for ∫ξ_n (60 times in a record leave it right to 1e-3).
BOUNDS_TOLERANCE = 0.01
# The largest fall below an earlier value, as a share of the way travelled. The flow is exact to 1e-6; a hundredth
# is what cannot be seen in a plot of a noisy run.
MONOTONE_TOLERANCE = 0.01

_MOVED = 1e-9  # logits that moved less than that tell nothing: they are at the integrator's own error
_ROUNDING = 1e-9  # of the largest rate of a query: below it a rate has no sign


def growth(evidence: Evidence) -> Array:
    """(n, K) B_n(t) = ∫ d(Σ_l z_l)/Σ_l f_l² over the class's distinct tokens l; NaN for a class that has none.

    Trapezoids along the path. The integrand moves only as far as attention does, so steps of 10% in t give four
    digits where attention moves most and eight where it hardly moves.
    """
    found = np.full((len(evidence.t), evidence.classes.n_classes), np.nan)
    for n in range(evidence.classes.n_classes):
        tokens = evidence.classes.distinct(n)
        if len(tokens) == 0:
            continue
        z = evidence.z[:, evidence.class_query[n]][:, tokens].sum(-1)
        weight = 1 / (evidence.f[:, n][:, tokens] ** 2).sum(-1)
        found[:, n] = np.concatenate([[0.0], np.cumsum(np.diff(z) * (weight[1:] + weight[:-1]) / 2)])
    return found


def coefficients(evidence: Evidence, n: int) -> tuple[Array, Array]:
    """(n,), (n,) the coefficient γι_n of f_n in the gradient g_n, and ξ_n. Needs g and a class with distinct tokens.

    Only f_n reaches the distinct tokens, so g_l = γι_n f_l there, and f_nᵀ g_n = γι_n − ξ_n.
    """
    assert evidence.g is not None
    tokens = evidence.classes.distinct(n)
    f, g = evidence.f[:, n], evidence.g[:, n]
    own = (f[:, tokens] * g[:, tokens]).sum(-1) / (f[:, tokens] ** 2).sum(-1)
    return own, own - (f * g).sum(-1)


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check(evidence: Evidence) -> list[Claim]:
    """The identity over all pairs of distinct tokens, the bounds and the monotone growth of the dominant ones."""
    window = evidence.until(WINDOW * evidence.t_snap)
    if len(window) == 0:
        assumed = evidence.assume(*premises.THEOREM_1)
        return [s.not_applicable("nothing is recorded after t = 0", assumed) for s in (IDENTITY, BOUNDS, MONOTONE)]
    return [_identity(evidence, window), *_about_dominant(evidence, window)]


# --- r(t) = r(0) χ(t) --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """One distinct token against another of its class, over the whole record."""

    n: int
    token: int
    other: int
    measured: Array  # ln(1 + r)
    predicted: Array  # ln(1 + r(0) χ)
    log_chi: Array

    def error(self, times: Array) -> Array:
        """At each of the times, as a share of the growth reached in them."""
        return np.abs(self.measured - self.predicted)[times] / np.abs(self.log_chi[times]).max()


def _pairs(evidence: Evidence) -> list[_Pair]:
    """The strongest distinct token of each class against the others; all other pairs follow from these.

    (1 − 1/χ_l)/f_l(0)² is the same for l and l' exactly if Eq. 11 holds for them, so it holds for every pair of a
    class if it holds for all pairs with one token.
    """
    pairs = []
    for n in range(evidence.classes.n_classes):
        tokens = evidence.classes.distinct(n)
        if len(tokens) < 2:
            continue
        c = evidence.attention[:, n]
        top = tokens[np.argmax(c[0, tokens])]
        z = evidence.z[:, evidence.class_query[n], top]
        log_chi = 2 * (z - z[0])
        for other in tokens[tokens != top]:
            measured = 2 * np.log(c[:, top] / c[:, other])
            log_r0 = np.log(np.expm1(measured[0]))  # −∞ for two equal tokens: r stays 0
            predicted = np.logaddexp(0, log_r0 + log_chi)
            pairs.append(_Pair(n, int(top), int(other), measured, predicted, log_chi))
    return pairs


def _identity(evidence: Evidence, window: Array) -> Claim:
    assumed = evidence.assume(*premises.THEOREM_1)
    pairs = _pairs(evidence)
    if not pairs:
        return IDENTITY.not_applicable("no class has two distinct tokens", assumed)
    pairs = [p for p in pairs if not np.abs(p.log_chi[window]).max() <= _MOVED]
    if not pairs:
        return IDENTITY.not_applicable("the distinct tokens' logits do not move", assumed)
    worst = max(pairs, key=lambda p: _nan_is_worst(p.error(window).max()))
    error = worst.error(window)
    at = window[np.argmax(error)]
    everything = np.flatnonzero(evidence.t > 0)
    final = max(_nan_is_worst(p.error(everything)[-1]) for p in pairs)
    pair = f"token {worst.token} over {worst.other} of class {worst.n}"
    return IDENTITY.judge(
        quantity=f"relative gain r of {pair} at t = {evidence.t[at]:.4g}",
        measured=_expm1(worst.measured[at]),
        predicted=_expm1(worst.predicted[at]),
        deviation=float(error.max()),
        tolerance=IDENTITY_TOLERANCE,
        assumptions=assumed,
        where=(
            f"{pair}, t = {_time(evidence, at)}: ln(1 + r) = {worst.measured[at]:.4g} against "
            f"{worst.predicted[at]:.4g}, off by {error.max():.2g} of the growth ln χ; "
            f"by {final:.2g} at the end of the record, t = {_time(evidence, -1)}"
        ),
        curve=Curve("t", f"ln(1 + r), {pair}", evidence.t, worst.measured, worst.predicted),
    )


# --- the dominant distinct token ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Dominant:
    """The distinct token of a class that has more attention at the start than every other."""

    n: int
    token: int
    falling: float  # share of the recorded times at which all common tokens of the class fall
    z: Array
    f: Array

    def __str__(self) -> str:
        return f"token {self.token} of class {self.n}"


def _about_dominant(evidence: Evidence, window: Array) -> list[Claim]:
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
            if np.abs(z - z[0])[window].max() <= _MOVED:
                why.append(f"the dominant token {token} of class {n} does not move")
            else:
                f = evidence.f[:, n, token]
                found.append(_Dominant(n, token, _falling(evidence, n, window), z - z[0], f))
    # the theorem speaks of classes whose common tokens fall; where there is none, of none, but it is measured
    meant = [d for d in found if d.falling == 1] or found
    if not meant:
        reason = why[0] + (f", and {len(why) - 1} more" if len(why) > 1 else "")
        return [s.not_applicable(reason, evidence.assume(*premises.THEOREM_1)) for s in (BOUNDS, MONOTONE)]
    fall = Assumption(
        "common tokens fall",
        "ż < 0 for every common token of the class (Theorem 3): share of the recorded times at which it is so",
        min(d.falling for d in meant), 1.0, all(d.falling == 1 for d in meant),
        "the smallest over the classes judged",
    )  # fmt: skip
    assumed = [*evidence.assume(*premises.THEOREM_1), fall]
    return [_bounds(evidence, window, meant, assumed), _monotone(evidence, window, meant, assumed)]


def _falling(evidence: Evidence, n: int, window: Array) -> float:
    """How often all common tokens of the class have ż < 0; without g, whether they have fallen by the end."""
    tokens, row = evidence.classes.common_of(n), evidence.class_query[n]
    if evidence.z_rate is None:
        return float((evidence.z[window[-1], row, tokens] < evidence.z[0, row, tokens]).all())
    rate = evidence.z_rate[window, row]
    return float((rate[:, tokens] < _ROUNDING * np.abs(rate).max(-1, keepdims=True)).all(-1).mean())


def _bounds(evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption]) -> Claim:
    b = growth(evidence)

    def beyond(d: _Dominant, times: Array) -> Array:
        """How far outside the bounds, as a share of the largest value of the bound; negative inside."""
        upper = b[times, d.n]
        lower = d.f[0] ** 2 * upper
        over = (d.z[times] - upper) / np.abs(upper).max()
        return np.maximum(over, (lower - d.z[times]) / np.abs(lower).max())

    worst = max(dominant, key=lambda d: _nan_is_worst(beyond(d, window).max()))
    outside = beyond(worst, window)
    at = window[np.argmax(outside)] if outside.max() > 0 else window[-1]
    upper = b[:, worst.n]
    low, high, rise = worst.f[0] ** 2 * upper[at], upper[at], worst.z[at]
    final = max(max(float(beyond(d, np.flatnonzero(evidence.t > 0))[-1]) for d in dominant), 0.0)
    return BOUNDS.judge(
        quantity=f"½ ln χ = z(t) − z(0) of {worst} at t = {evidence.t[at]:.4g}, against the nearer of its bounds "
        f"{low:.4g} and {high:.4g}" + _over(dominant, evidence),
        measured=float(rise),
        predicted=float(low if abs(rise - low) < abs(rise - high) else high),
        deviation=max(_nan_is_worst(outside.max()), 0.0),
        tolerance=BOUNDS_TOLERANCE,
        assumptions=assumed,
        where=f"{worst}, t = {_time(evidence, at)}: ½ ln χ = {rise:.4g} outside [{low:.4g}, {high:.4g}] by "
        f"{outside.max():.2g} of the bound; by {final:.2g} at the end of the record, t = {_time(evidence, -1)}",
        curve=Curve("t", f"½ ln χ of {worst}, and its upper bound B_n", evidence.t, worst.z, upper),
    )


def _monotone(evidence: Evidence, window: Array, dominant: list[_Dominant], assumed: list[Assumption]) -> Claim:
    times = np.concatenate([[0], window]) if window[0] != 0 else window
    curves = [(f"{name} of {d}", x) for d in dominant for name, x in (("z", d.z), ("f", d.f))]
    label, x = max(curves, key=lambda curve: _nan_is_worst(_fall(curve[1], times)[0]))
    share, before, after = _fall(x, times)
    return MONOTONE.judge(
        quantity=f"{label} at t = {evidence.t[after]:.4g}, against its largest value before"
        + _over(dominant, evidence),
        measured=float(x[after]),
        predicted=float(x[before]),
        deviation=share,
        tolerance=MONOTONE_TOLERANCE,
        assumptions=assumed,
        where=f"{label} falls from {x[before]:.5g} at t = {_time(evidence, before)} to {x[after]:.5g} at "
        f"t = {_time(evidence, after)}, by {share:.2g} of the way it went",
        curve=Curve("t", label, evidence.t, x, np.maximum.accumulate(x)),
    )


def _fall(x: Array, times: Array) -> tuple[float, int, int]:
    """The largest fall below an earlier value as a share of the range, and from when to when.

    Where nothing falls, the last two times.
    """
    x = x[times]
    spread = float(x.max() - x.min())
    drop = np.maximum.accumulate(x) - x
    after = int(np.argmax(drop)) if drop.max() > 0 else len(x) - 1
    before = int(np.argmax(x[:after]))
    share = 0.0 if spread == 0 else float(drop[after] / spread)
    return share, int(times[before]), int(times[after])


# --- words -------------------------------------------------------------------------------------------------------


def _time(evidence: Evidence, at: int) -> str:
    return f"{evidence.t[at]:.4g} ({evidence.t[at] / evidence.t_snap:.3g} t₀)"


def _over(dominant: list[_Dominant], evidence: Evidence) -> str:
    return f" (worst of {len(dominant)} of {evidence.classes.n_classes} classes)"


def _nan_is_worst(value: float) -> float:
    return float(value) if math.isfinite(value) else math.inf


def _expm1(log_ratio: float) -> float:
    return float(np.expm1(min(float(log_ratio), 700.0)))  # e^700 is nearly the largest double
