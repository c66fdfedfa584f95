"""Theorem 4, Eq. 14: B_n = p_n/4 ln(1 + 4Γ/C₀), with C₀ from the earliest times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from scansnap.claims.claim import Claim, Curve, Statement, nan_is_worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem1.decomposition import coefficients
from scansnap.claims.theorems.theorem4.premise import EXPONENT, FEWEST, assumptions, from_overlap
from scansnap.claims.windows import TRANSITION
from scansnap.theory import gamma, gamma_integral, growth

GROWTH = Statement(
    "theorem-4-growth",
    "Theorem 4 (Eq. 14)",
    "The growth exponent is B_n = p_n · ¼ ln(1 + 4Γ/C₀), Γ = η_Z∫γ, with C₀ taken from the earliest times.",
    instead=("memory", "response"),
)

# The paper calls its premise a qualitative estimation: it drops ρ against 1, and ρ is allowed up to 1/K. A quarter
# is half of that for K = 2, and still tells the exponent 4 from 3 and 5.
GROWTH_TOLERANCE = 0.25  # relative to the prediction


@dataclass(frozen=True)
class Prediction:
    """B_n of Theorem 4 for one class: its C₀ and the share it has in what its query's common tokens lose."""

    n: int
    c0: float  # γ/ξ_n at the earliest recorded times
    share: float  # p_n/P
    p_query: float  # P: probability of the classes of its query, 1 where all share one

    def __call__(self, t: Array, evidence: Evidence) -> Array:
        """(p_n/P) · ¼ ln(1 + 4PΓ/C₀) at the times t; 0 for an infinite C₀, where there is no ξ_n at all."""
        if math.isinf(self.c0):
            return np.zeros(len(t))
        k, m = evidence.classes.n_classes, evidence.classes.vocab_size
        return np.asarray(
            growth(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=k, vocab_size=m, c0=self.c0,
                   exponent=EXPONENT, p_class=self.share * self.p_query, p_query=self.p_query)
        )  # fmt: skip

    def reach(self, t: Array, evidence: Evidence) -> Array:
        """PΓ/C₀."""
        found: Array = self.p_query * _integral(t, evidence) / self.c0
        return found

    def with_exponent(self, reach: Array, q: float) -> Array:
        """(p_n/P) ln(1 + q PΓ/C₀)/q, for any q that leaves the logarithm an argument."""
        return self.share * (reach if q == 0 else np.log1p(q * reach) / q)


def _integral(t: Array, evidence: Evidence) -> Array:
    """Γ(t)."""
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    return np.asarray(gamma_integral(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=k, vocab_size=m))


@np.errstate(all="ignore")  # no ξ_n at all is an infinite C₀
def predict(evidence: Evidence, n: int) -> Prediction:
    """C₀ of class n from the recorded times up to t₀′/10, or the first one after it; not positive if B_n falls there.

    With g: C₀ = γ/ξ_n, γ the closed form, of which Γ is the integral. Without g, and where updates are sampled, so
    that ξ_n of the first steps is noise: C₀ = p_n Γ/B_n at the first time of the window, which is the same while
    attention has not moved.
    """
    p = evidence.classes.p_class
    p_query = min(float(p[evidence.class_query == evidence.class_query[n]].sum()), 1.0)  # rounding aside
    times = np.flatnonzero(evidence.t > 0)
    n_early = max(int((evidence.t[times] <= TRANSITION.first * evidence.t_scan).sum()), 1)
    if evidence.g is not None and not evidence.sampled:
        first = times[:n_early]
        k, m = evidence.classes.n_classes, evidence.classes.vocab_size
        expected = np.asarray(gamma(evidence.t[first], eta_y=evidence.eta_y, n_classes=k, vocab_size=m))
        c0 = float(expected.sum() / coefficients(evidence, n, first)[1].sum())
    else:
        window = TRANSITION.times(evidence)  # its first time: B_n is out of the rounding and the first steps by then
        at = window[0] if len(window) else times[-1]
        c0 = float(p[n] * _integral(evidence.t[at], evidence) / evidence.measured_growth[at, n])
    return Prediction(n, c0, float(p[n]) / p_query, p_query)


def check(evidence: Evidence) -> Claim:
    """The measured B_n of every class against its prediction, relative at each time."""
    assumed = assumptions(evidence)
    with_distinct = evidence.with_distinct
    if not with_distinct:
        return GROWTH.not_applicable("no class has distinct tokens", assumed)
    if evidence.t[0] != 0:
        return GROWTH.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    window = TRANSITION.times(evidence)
    if len(window) < FEWEST:
        return GROWTH.not_applicable(f"fewer than {FEWEST} recorded times in {TRANSITION.words(evidence)}", assumed)
    measured = evidence.measured_growth
    if np.abs(measured[window][:, with_distinct]).max() <= evidence.told:
        return GROWTH.not_applicable("the distinct tokens' logits do not move", assumed)
    t = evidence.t[window]
    found = [predict(evidence, n) for n in with_distinct]
    for prediction in found:
        if not prediction.c0 > 0:
            n = prediction.n
            return GROWTH.judge(
                quantity=f"1/C₀ = ξ_n/γ of class {n} at the earliest times, against the least it may be: no prediction",
                measured=1 / prediction.c0, predicted=0.0, deviation=math.inf,
                tolerance=GROWTH_TOLERANCE, assumptions=assumed,
                where=f"class {n}: 1/C₀ = ξ_n/γ is {1 / prediction.c0:.3g} at the earliest times, not positive",
            )  # fmt: skip
    errors = {p.n: np.abs(measured[window, p.n] / p(t, evidence) - 1) for p in found}
    worst = max(found, key=lambda p: nan_is_worst(errors[p.n].max()))
    n = worst.n
    at = int(np.argmax(errors[n]))
    b, expected = measured[window, n], worst(t, evidence)
    best = _best_exponent(worst, worst.reach(t, evidence), b)
    return GROWTH.judge(
        quantity=f"B_n of class {n} at t = {t[at]:.4g}, worst in {TRANSITION.words(evidence)} "
        f"(C₀ = {worst.c0:.3g}; the exponent that fits best is {best})",
        measured=float(b[at]),
        predicted=float(expected[at]),
        deviation=float(errors[n].max()),
        tolerance=GROWTH_TOLERANCE,
        assumptions=assumed,
        where=f"class {n}, {evidence.when(t[at])}: B_n = {b[at]:.3g} against "
        f"{expected[at]:.3g} with C₀ = {worst.c0:.3g} from the earliest times (β = E' would give "
        f"{1 / from_overlap(evidence, n):.3g}); the exponent that fits best is {best} instead of {EXPONENT:g}",
        curve=Curve(
            "t",
            f"B_n of class {n}",
            evidence.t,
            measured[:, n],
            worst(evidence.t, evidence),
            along=lambda path: (path.t[1:], path.measured_growth[1:, n]),
        ),
    )


def _best_exponent(prediction: Prediction, reach: Array, b: Array) -> str:
    """The q with the least-squares error of ln B_n, in words. Negative: growth speeds up instead of slowing down."""
    if not (b > 0).all():
        return "none (B_n is not positive)"

    def exponent(x: float) -> float:
        return math.expm1(x) / float(reach.max())  # q·PΓ/C₀ > −1 at the end, where the logarithm needs it most

    def error(x: float) -> float:
        off = np.log(prediction.with_exponent(reach, exponent(x)) / b)
        return float(np.mean(off**2))

    fit = minimize_scalar(error, bounds=(-30.0, math.log(1e6)), method="bounded", options={"xatol": 1e-6})
    q, off = exponent(float(fit.x)), math.sqrt(float(fit.fun))
    return f"{q:.3g}" if off < GROWTH_TOLERANCE else f"none (at best {q:.3g}, off by {off:.2g} in ln B_n)"
