"""Counts: how far the draws of classes and of tokens are from their means (Lemmas 10, 11 and 18, Remark 4).

Counts are binomial, so their tails are summed here and not sampled. Lemmas 10 and 18 are Hoeffding's inequality, which
ignores that a rare class has a small variance. Chernoff's bound has it: all counts are within √(3K ln(2K/δ)/t) of t/K,
relatively, with probability 1 − δ, so that t ≫ K ln K is enough where Remark 4 asks for t ≫ K². It is also needed: at
t = K ln K about one class is still undrawn.

Lemma 11 carries the counts over to h and to 1 − α. h is concave with h(0) = 0, so |h(N_n)/h(N̄) − 1| ≤ |N_n/N̄ − 1|;
and 1 − α = (M−1)/(M−1+e^{Mh}) has a logarithmic derivative in N of at most κ ≈ (1 + ln M)/4 + 1 (**ours**).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_expit
from scipy.stats import binom

from scansnap import theory
from scansnap.claims.assumptions import MUCH
from scansnap.claims.claim import Claim, Statement
from scansnap.claims.evidence import Array, Evidence

LEMMA_10 = Statement("lemma-10", "Lemma 10", "|N_n − N p_n| ≤ √(N ln(2/δ)) with probability 1 − δ at least",
                     kind="formula")  # fmt: skip
LEMMA_18 = Statement(
    "lemma-18", "Lemma 18", "|k_l/(T−1) − P(l|n)| ≤ √(ln(2/δ)/(2(T−1))) with probability 1 − δ at least", kind="formula"
)
LEMMA_11 = Statement("lemma-11", "Lemma 11", "h(N_n) differs from h(N̄) by no larger share than N_n from N̄",
                     kind="formula")  # fmt: skip
ERROR = Statement(
    "lemma-11-error", "Lemma 11", "1 − α concentrates with the counts: its share is at most κ times theirs",
    kind="formula",
)  # fmt: skip
REMARK_4 = Statement("remark-4", "Remark 4", "with uniform classes and t ≫ K² every count is close to t/K",
                     kind="formula")  # fmt: skip
CHERNOFF = Statement("counts", "Counts of classes (ours, docs/theory.md)",
                     "from t = 10 K ln K on all counts are within √(3K ln(2K/δ)/t) of t/K with probability 1 − δ",
                     kind="ours")  # fmt: skip
STATEMENTS = (LEMMA_10, LEMMA_11, ERROR, REMARK_4, CHERNOFF, LEMMA_18)

RISKS = (0.5, 0.1, 0.01, 1e-4)  # δ
_LENGTHS = (10, 100, 10_000)  # N and T − 1
_CLASSES = (2, 10, 100, 1000)
_SHARES = np.array([0.5, 0.8, 0.95, 1.05, 1.25, 2.0])  # N_n/N̄
_ROUNDING = 1e-12

Bound = Callable[[int, float], float]


def hoeffding(n: int, risk: float) -> float:
    """√(n ln(2/δ)/2), on a sum of n terms between 0 and 1."""
    return math.sqrt(n * math.log(2 / risk) / 2)


def check(
    evidence: Evidence,
    *,
    of_classes: Bound = lambda n, risk: math.sqrt(2) * hoeffding(n, risk),
    of_tokens: Bound = hoeffding,
    height: Callable[..., Array] = theory.h,
    steps: float = MUCH,
) -> list[Claim]:
    """``of_classes`` and ``of_tokens`` bound |count − mean| of n draws; Remark 4 is judged after ``steps`` K² steps."""
    classes = evidence.classes
    p = np.concatenate([classes.support(n)[1] for n in range(classes.n_classes)])
    return [
        _tails(LEMMA_10, "a class count", classes.p_class, of_classes), *_heights(evidence, height),
        _uniform(evidence, steps), _chernoff(), _tails(LEMMA_18, "a token count", p, of_tokens),
    ]  # fmt: skip


def outside(n: int, p: Array, bound: float) -> Array:
    """P(|N − np| > bound) for N ~ binomial(n, p)."""
    return np.asarray(binom.cdf(np.ceil(n * p - bound) - 1, n, p) + binom.sf(np.floor(n * p + bound), n, p))


def _tails(statement: Statement, what: str, p: Array, bound: Bound) -> Claim:
    share = {(n, risk): float(outside(n, np.unique(p), bound(n, risk)).max() / risk)
             for n in _LENGTHS for risk in RISKS}  # fmt: skip
    n, risk = max(share, key=lambda case: share[case])
    return statement.judge(
        quantity=f"probability that {what} of {n} draws is outside, over δ = {risk:g}: largest of {len(share)} cases",
        measured=share[n, risk], predicted=1.0, deviation=max(share[n, risk] - 1, 0.0), tolerance=_ROUNDING,
        failure=f"{n} draws, δ = {risk:g}",
    )  # fmt: skip


def _heights(evidence: Evidence, height: Callable[..., Array]) -> list[Claim]:
    m, eta_y = evidence.classes.vocab_size, evidence.eta_y
    mean = (np.geomspace(0.01, 10, 40) * evidence.t_snap / evidence.classes.n_classes)[:, None]
    low, own = (np.asarray(height(s, eta_y=eta_y, vocab_size=m)) for s in (mean, mean * _SHARES))
    theta = np.abs(own / low - 1) / np.abs(_SHARES - 1)
    grid = np.geomspace(1e-3, 1e4, 4000) * mean[-1]
    gap = m * np.asarray(theory.h(grid, eta_y=eta_y, vocab_size=m))
    kappa = float((m * eta_y * grid * np.exp(gap) / (m - 1 + np.exp(gap)) ** 2).max())  # −d ln(1−α)/d ln s
    error, at_mean = (log_expit(math.log(m - 1) - m * value) for value in (own, low))
    sigma = np.abs(error - at_mean) / np.abs(np.log(_SHARES))
    return [
        LEMMA_11.judge(
            quantity="share by which h(N_n) differs from h(N̄) over that of N_n, the largest up to 10 t₀",
            measured=theta.max(), predicted=1.0, deviation=max(theta.max() - 1, 0.0), tolerance=1e-9,
            failure="h is not concave",
        ),
        ERROR.judge(
            quantity="ln of (1−α)(N_n)/(1−α)(N̄) over ln N_n/N̄, the largest up to 10 t₀, against κ",
            measured=sigma.max(), predicted=kappa, deviation=max(sigma.max() / kappa - 1, 0.0), tolerance=1e-3,
            failure="1 − α reacts more strongly",
        ),
    ]  # fmt: skip


def _uniform(evidence: Evidence, steps: float) -> Claim:
    k = evidence.classes.n_classes
    t = steps * k**2
    spread = math.sqrt((k - 1) / t)
    enough = MUCH * k * math.log(max(k, 2))
    return REMARK_4.judge(
        quantity=f"relative spread √((K−1)/t) of a count at t = {steps:g} K² = {t:g}, against 1/√{MUCH:g} "
        f"(at {MUCH:g} K ln K = {enough:.3g}: {math.sqrt((k - 1) / enough):.3g})",
        measured=spread, predicted=1 / math.sqrt(MUCH), deviation=spread, tolerance=1 / math.sqrt(MUCH),
        assumptions=[evidence.assumptions["uniform classes"]], failure="counts still differ",
    )  # fmt: skip


def _chernoff() -> Claim:
    share, undrawn = {}, 0.0
    for k in _CLASSES:
        for risk in RISKS[1:]:
            t = math.ceil(MUCH * k * math.log(k) + 3 * k * math.log(2 * k / risk))  # so that the bound is below 1
            within = t / k * math.sqrt(3 * k * math.log(2 * k / risk) / t)
            share[k, risk] = k * float(outside(t, np.array(1 / k), within)) / risk  # all classes at once
        undrawn = k * (1 - 1 / k) ** (k * math.log(k))
    k, risk = max(share, key=lambda case: share[case])
    return CHERNOFF.judge(
        quantity=f"probability that some count of {k} classes is outside, over δ = {risk:g}: the largest of "
        f"{len(share)} cases (at t = K ln K {undrawn:.2g} of {_CLASSES[-1]} classes are undrawn on average)",
        measured=share[k, risk], predicted=1.0, deviation=max(share[k, risk] - 1, 0.0), tolerance=_ROUNDING,
        failure=f"{k} classes, δ = {risk:g}",
    )  # fmt: skip
