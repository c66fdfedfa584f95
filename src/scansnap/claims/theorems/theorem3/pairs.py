"""Theorem 3, Eq. 11: r(t) = r(0) χ(t) for every pair of distinct tokens of a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.claims.claim import Claim, Curve, Statement, nan_is_worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.windows import TRAINING

IDENTITY = Statement(
    "theorem-3-identity",
    "Theorem 3 (Eq. 11)",
    "The relative gain of a distinct token over another grows as r(t) = r(0) χ(t), χ = e^{2(z(t) − z(0))}.",
    instead=("memory", "response"),
)

# Theorem 1 drops terms of relative order 1/10 ("≫" is read as a factor of 10), so its consequences are asked to a
# tenth. The error is that of ln(1 + r), twice the log of an attention ratio, as a share of the growth ln χ reached by
# then: relative to r itself two equal tokens (r = 0) could never agree, and as an absolute error attention that
# has hardly moved would always agree.
IDENTITY_TOLERANCE = 0.1


@dataclass(frozen=True)
class _Pair:
    """One distinct token against another of its class, over the whole record."""

    n: int
    token: int
    other: int
    measured: Array  # ln(1 + r)
    predicted: Array  # ln(1 + r(0) χ)
    log_chi: Array

    def error(self, times: Array, told: float) -> Array:
        """At each of the times, as a share of the growth reached by then; 0 before that can be told."""
        size = np.abs(self.log_chi[times])
        return np.where(size <= told, 0.0, np.abs(self.measured - self.predicted)[times] / size)


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


def identity(evidence: Evidence, window: Array) -> Claim:
    """The worst pair, relative to the growth reached by then."""
    assumed = evidence.assume()
    pairs = _pairs(evidence)
    if not pairs:
        return IDENTITY.not_applicable("no class has two distinct tokens", assumed)
    told = 2 * evidence.told  # ln χ is twice a logit
    pairs = [p for p in pairs if not np.abs(p.log_chi[window]).max() <= told]
    if not pairs:
        return IDENTITY.not_applicable("the distinct tokens' logits do not move", assumed)
    worst = max(pairs, key=lambda p: nan_is_worst(p.error(window, told).max()))
    error = worst.error(window, told)
    at = window[np.argmax(error)]
    final = max(nan_is_worst(p.error(np.array([-1]), told)[0]) for p in pairs)
    pair = f"token {worst.token} over {worst.other} of class {worst.n}"
    return IDENTITY.judge(
        quantity=f"relative gain r of {pair} at t = {evidence.t[at]:.4g} (worst in {TRAINING.words(evidence)})",
        measured=_expm1(worst.measured[at]),
        predicted=_expm1(worst.predicted[at]),
        deviation=float(error.max()),
        tolerance=IDENTITY_TOLERANCE,
        assumptions=assumed,
        where=(
            f"{pair}, {evidence.when(evidence.t[at])}: ln(1 + r) = {worst.measured[at]:.4g} against "
            f"{worst.predicted[at]:.4g}, off by {error.max():.2g} of the growth ln χ; "
            f"by {final:.2g} at the end of the record, {evidence.when(evidence.t[-1])}"
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
    )


def _expm1(log_ratio: float) -> float:
    return float(np.expm1(min(float(log_ratio), 700.0)))  # e^700 is nearly the largest double
