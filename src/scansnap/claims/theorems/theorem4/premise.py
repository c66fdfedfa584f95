"""Theorem 4, Eq. 13: what it assumes, and the estimate ξ ∝ γ e^{4z} that it starts from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import linregress

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement, nan_is_worst
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem1.decomposition import coefficients
from scansnap.claims.windows import TRANSITION

if TYPE_CHECKING:
    from scansnap.claims.ours.path import Path

PREMISE = Statement(
    "theorem-4-premise",
    "Theorem 4 (Eq. 13)",
    "The speed falls with the common token's logit z as ξ_n ∝ γ e^{4z}, and so does ż itself.",
    instead=("memory", "response"),
)
EXPONENT = 4.0  # of e^{4z} in Eq. 13

# Late B_n is ln(…)/q for an exponent q, so an exponent off by a quarter puts B_n off by a quarter: as for GROWTH.
PREMISE_TOLERANCE = 0.25  # relative to 4
FEWEST = 5  # recorded times without which nothing is fitted


def assumptions(evidence: Evidence) -> list[Assumption]:
    """What Theorem 4 asks on top of Theorem 1."""
    common, queries = len(evidence.classes.common), len(evidence.classes.queries)
    return [
        *evidence.assume(),
        Assumption(
            "one common token", "a single common token (Section 6)", float(common), 1.0, common == 1,
            "several common tokens fall at different speeds",
        ),
        Assumption(
            "one query", "all classes share one query (Section 6)", float(queries), 1.0, queries == 1,
            "each query has its own logit for the common token",
        ),
    ]  # fmt: skip


def check(evidence: Evidence) -> Claim:
    """Straight lines through ln(ξ_n/γ) and ln(−ż/γ) over z.

    γ is measured, as the coefficient of f_n in g_n (γι_n, with ι_n = 1 up to terms that the premise drops), not the
    closed form: whether the closed form describes γ is Theorem 1's matter, and a slow drift between the two would
    pass for a slope here, since late z hardly moves.
    """
    assumed = assumptions(evidence)
    unmet = [a for a in assumed[-2:] if not a.met]
    if unmet:
        return PREMISE.not_applicable(f"{unmet[0].name}: there are {unmet[0].value:.0f}", assumed)
    if evidence.g is None or evidence.z_rate is None:
        return PREMISE.not_applicable("the record holds no gradient: record y", assumed)
    with_distinct = evidence.with_distinct
    if not with_distinct:
        return PREMISE.not_applicable("no class has distinct tokens", assumed)
    window = TRANSITION.times(evidence)
    if len(window) < FEWEST:
        return PREMISE.not_applicable(f"fewer than {FEWEST} recorded times in {TRANSITION.words(evidence)}", assumed)
    common = evidence.classes.common[0]
    z = evidence.z[window, 0, common]
    if np.ptp(z) <= evidence.told:
        return PREMISE.not_applicable("the common token's logit does not move", assumed)
    speeds, gammas = {}, {}
    for n in with_distinct:
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
                where=f"{name}, is {speed[at]:.3g} at t = {evidence.t[window[at]]:.4g}, not positive",
            )  # fmt: skip
    lines = {name: linregress(z, np.log(speed)) for name, speed in speeds.items()}
    worst = max(lines, key=lambda name: nan_is_worst(abs(lines[name].slope - EXPONENT)))
    slope, offset = float(lines[worst].slope), float(lines[worst].intercept)
    speed = speeds[worst]
    of_class = dict(zip(speeds, [*with_distinct, None], strict=True))[worst]  # None: the common token's own fall
    mean_gamma = np.mean(list(gammas.values()), axis=0)

    def along(path: Path) -> tuple[Array, Array]:
        """The same speed over the same γ, as a theory of ours moves attention."""
        inside = np.isin(path.t, evidence.t[window])
        gamma = mean_gamma if of_class is None else gammas[f"γ of class {of_class}"]
        moved = path.xi(of_class) if of_class is not None else -path.z_rate[:, 0, common] / evidence.eta_z
        return path.z[inside, 0, common], moved[inside] / gamma[np.isin(evidence.t[window], path.t)]

    return PREMISE.judge(
        quantity=f"slope of ln({worst}) against z of the common token, {TRANSITION.words(evidence)} "
        f"(worst of {len(lines)}; z moves by {np.ptp(z):.3g})",
        measured=slope,
        predicted=EXPONENT,
        deviation=abs(slope - EXPONENT) / EXPONENT,
        tolerance=PREMISE_TOLERANCE,
        assumptions=assumed,
        where=f"{worst}, goes from {speed[0]:.3g} at t = {evidence.t[window[0]]:.4g} to {speed[-1]:.3g} at "
        f"t = {evidence.t[window[-1]]:.4g} while z goes from {z[0]:.3g} to {z[-1]:.3g}: slope {slope:.3g} "
        f"instead of {EXPONENT:g}; β = E' would give {from_overlap(evidence, with_distinct[0]):.3g} at t = 0",
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
