"""Theorem 4: the premise ξ_n ∝ γ e^{4z} (Eq. 13) and B_n = p_n/4 ln(1 + 4Γ/C₀) (Eq. 14), C₀ from the earliest times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import linregress

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement, nan_to_inf
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.gradient_decomposition import coefficients
from scansnap.claims.time_windows import TRANSITION
from scansnap.theory import gamma, gamma_integral, growth

if TYPE_CHECKING:
    from scansnap.claims.ours.path import PredictedPath

PREMISE = Statement(
    "theorem-4-premise", "Theorem 4 (Eq. 13)",
    "The speed falls with the common token's logit z as ξ_n ∝ γ e^{4z}, and so does ż itself.",
    alternatives=("memory", "response"),
)  # fmt: skip

GROWTH = Statement(
    "theorem-4-growth", "Theorem 4 (Eq. 14)",
    "The growth exponent is B_n = p_n · ¼ ln(1 + 4Γ/C₀), Γ = η_Z∫γ, with C₀ taken from the earliest times.",
    alternatives=("memory", "response"),
)  # fmt: skip

EXPONENT = 4.0  # of e^{4z} in Eq. 13

# Late B_n is ln(…)/q for an exponent q, so an exponent off by a quarter puts B_n off by a quarter: as for GROWTH.
PREMISE_TOLERANCE = 0.25  # relative to 4

# The paper calls its premise a qualitative estimation: it drops ρ against 1, and ρ is allowed up to 1/K. A quarter
# is half of that for K = 2, and still tells the exponent 4 from 3 and 5.
GROWTH_TOLERANCE = 0.25  # relative to the prediction

FEWEST = 5  # recorded times that a fit needs


def assumptions(evidence: Evidence) -> list[Assumption]:
    """The assumptions of Theorem 4, beyond those of Theorem 1."""
    common, queries = len(evidence.classes.common), len(evidence.classes.queries)
    return [
        *evidence.select_assumptions(),
        Assumption(
            "one common token", "a single common token (Section 6)", float(common), 1.0, common == 1,
            "several common tokens fall at different speeds",
        ),
        Assumption(
            "one query", "all classes share one query (Section 6)", float(queries), 1.0, queries == 1,
            "each query has its own logit for the common token",
        ),
    ]  # fmt: skip


def check_premise(evidence: Evidence) -> Claim:
    """Straight lines through ln(ξ_n/γ) and ln(−ż/γ) over z.

    γ is measured, as the coefficient of f_n in g_n (γι_n, with ι_n = 1 up to terms that the premise drops), not the
    closed form: Theorem 1 tests whether the closed form describes γ, and a slow drift between the two would appear as a
    slope here, since late z hardly moves.
    """
    assumed = assumptions(evidence)
    unmet = [a for a in assumed[-2:] if not a.met]
    if unmet:
        return PREMISE.not_applicable(f"{unmet[0].name}: there are {unmet[0].value:.0f}", assumed)
    if evidence.g is None or evidence.z_rate is None:
        return PREMISE.not_applicable("the record holds no gradient: record y", assumed)
    classes_with_distinct = evidence.classes_with_distinct
    if not classes_with_distinct:
        return PREMISE.not_applicable("no class has distinct tokens", assumed)
    window = TRANSITION.select(evidence)
    if len(window) < FEWEST:
        return PREMISE.not_applicable(f"fewer than {FEWEST} recorded times in {TRANSITION.describe(evidence)}", assumed)
    common = evidence.classes.common[0]
    z = evidence.z[window, 0, common]
    if np.ptp(z) <= evidence.resolution:
        return PREMISE.not_applicable("the common token's logit does not move", assumed)
    speeds, gammas = {}, {}
    for n in classes_with_distinct:
        gamma, xi = coefficients(evidence, n, window)
        gammas[f"γ of class {n}"] = gamma
        speeds[f"ξ of class {n}, over γ"] = xi / gamma
    fall = -evidence.z_rate[window, 0, common] / evidence.eta_z
    speeds["−ż of the common token, over η_Z γ"] = fall / np.mean(list(gammas.values()), axis=0)
    for name, speed in {**gammas, **speeds}.items():
        if not (speed > 0).all():
            at = int(np.argmin(np.where(np.isfinite(speed), speed, -np.inf)))
            return PREMISE.judge(
                quantity=f"{name}, at t = {evidence.t[window[at]]:.4g}, against the least it may be: no exponent",
                measured=float(speed[at]), predicted=0.0, deviation=math.inf,
                tolerance=PREMISE_TOLERANCE, assumptions=assumed,
                failure=f"{name}, is {speed[at]:.3g} at t = {evidence.t[window[at]]:.4g}, not positive",
            )  # fmt: skip
    lines = {name: linregress(z, np.log(speed)) for name, speed in speeds.items()}
    worst = max(lines, key=lambda name: nan_to_inf(abs(lines[name].slope - EXPONENT)))
    slope, offset = float(lines[worst].slope), float(lines[worst].intercept)
    speed = speeds[worst]
    of_class = dict(zip(speeds, [*classes_with_distinct, None], strict=True))[
        worst
    ]  # None: the common token's own fall
    mean_gamma = np.mean(list(gammas.values()), axis=0)

    def along(path: PredictedPath) -> tuple[Array, Array]:
        """The same speed over the same γ, as a theory of ours moves attention."""
        inside = np.isin(path.t, evidence.t[window])
        gamma = mean_gamma if of_class is None else gammas[f"γ of class {of_class}"]
        moved = path.xi(of_class) if of_class is not None else -path.z_rate[:, 0, common] / evidence.eta_z
        return path.z[inside, 0, common], moved[inside] / gamma[np.isin(evidence.t[window], path.t)]

    return PREMISE.judge(
        quantity=f"slope of ln({worst}) against z of the common token, {TRANSITION.describe(evidence)} "
        f"(worst of {len(lines)}; z moves by {np.ptp(z):.3g})",
        measured=slope,
        predicted=EXPONENT,
        deviation=abs(slope - EXPONENT) / EXPONENT,
        tolerance=PREMISE_TOLERANCE,
        assumptions=assumed,
        failure=f"{worst}, goes from {speed[0]:.3g} at t = {evidence.t[window[0]]:.4g} to {speed[-1]:.3g} at "
        f"t = {evidence.t[window[-1]]:.4g} while z goes from {z[0]:.3g} to {z[-1]:.3g}: slope {slope:.3g} "
        f"instead of {EXPONENT:g}; β = E' would give {from_overlap(evidence, classes_with_distinct[0]):.3g} at t = 0",
        curve=Curve("z of the common token", worst, z, speed,
                    np.exp(offset + slope * z.mean() + EXPONENT * (z - z.mean())), log_x=False, log_y=True,
                    along=along),
    )  # fmt: skip


def from_overlap(evidence: Evidence, n: int) -> float:
    """ξ_n/γ = Σ E'_nn' f_nᵀ f_n' at the first time, as the theorem has it: 1/C₀."""
    f = evidence.f[0]
    overlap = f @ f.T  # I + E
    try:
        inverse = np.linalg.solve(overlap, np.eye(len(f))[n])  # a row of I − E'
    except np.linalg.LinAlgError:  # two classes with the same attention
        return math.inf
    others = np.arange(len(f)) != n
    return float(-(inverse * overlap[n])[others].sum())


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
        values: Array = self.p_query * _integral(t, evidence) / self.c0
        return values

    def with_exponent(self, reach: Array, q: float) -> Array:
        """(p_n/P) ln(1 + q PΓ/C₀)/q, for any q that leaves the logarithm an argument."""
        return self.share * (reach if q == 0 else np.log1p(q * reach) / q)


def _integral(t: Array, evidence: Evidence) -> Array:
    """Γ(t)."""
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    return np.asarray(gamma_integral(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=k, vocab_size=m))


@np.errstate(all="ignore")  # ξ_n = 0 is an infinite C₀
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
        window = TRANSITION.select(evidence)  # its first time: B_n is out of the rounding and the first steps by then
        at = window[0] if len(window) else times[-1]
        c0 = float(p[n] * _integral(evidence.t[at], evidence) / evidence.measured_growth[at, n])
    return Prediction(n, c0, float(p[n]) / p_query, p_query)


def check_growth(evidence: Evidence) -> Claim:
    """The measured B_n of every class against its prediction, relative at each time."""
    assumed = assumptions(evidence)
    classes_with_distinct = evidence.classes_with_distinct
    if not classes_with_distinct:
        return GROWTH.not_applicable("no class has distinct tokens", assumed)
    if evidence.t[0] != 0:
        return GROWTH.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    window = TRANSITION.select(evidence)
    if len(window) < FEWEST:
        return GROWTH.not_applicable(f"fewer than {FEWEST} recorded times in {TRANSITION.describe(evidence)}", assumed)
    measured = evidence.measured_growth
    if np.abs(measured[window][:, classes_with_distinct]).max() <= evidence.resolution:
        return GROWTH.not_applicable("the distinct tokens' logits do not move", assumed)
    t = evidence.t[window]
    predictions = [predict(evidence, n) for n in classes_with_distinct]
    for prediction in predictions:
        if not prediction.c0 > 0:
            n = prediction.n
            return GROWTH.judge(
                quantity=f"1/C₀ = ξ_n/γ of class {n} at the earliest times, against the least it may be: no prediction",
                measured=1 / prediction.c0, predicted=0.0, deviation=math.inf,
                tolerance=GROWTH_TOLERANCE, assumptions=assumed,
                failure=f"class {n}: 1/C₀ = ξ_n/γ is {1 / prediction.c0:.3g} at the earliest times, not positive",
            )  # fmt: skip
    errors = {p.n: np.abs(measured[window, p.n] / p(t, evidence) - 1) for p in predictions}
    worst = max(predictions, key=lambda p: nan_to_inf(errors[p.n].max()))
    n = worst.n
    at = int(np.argmax(errors[n]))
    b, expected = measured[window, n], worst(t, evidence)
    best = _best_exponent(worst, worst.reach(t, evidence), b)
    return GROWTH.judge(
        quantity=f"B_n of class {n} at t = {t[at]:.4g}, worst in {TRANSITION.describe(evidence)} "
        f"(C₀ = {worst.c0:.3g}; the exponent that fits best is {best})",
        measured=b[at], predicted=expected[at], deviation=errors[n].max(), tolerance=GROWTH_TOLERANCE,
        assumptions=assumed,
        failure=f"class {n}, {evidence.format_time(t[at])}: B_n = {b[at]:.3g} against "
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
    )  # fmt: skip


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
