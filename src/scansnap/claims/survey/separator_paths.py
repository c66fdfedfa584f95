"""Normalised gradient descent and mirror descent of attention with a fixed head: how fast, and to which separator.

The data are those of `scansnap.claims.survey.separators`: 4 contexts of 5 random unit tokens in R²⁴, a fixed random
head, one query; each seed draws its own.

**Normalised descent.** Source (Vasudeva et al. 2024, as we read the abstract): normalised gradient descent brings
attention to its max-margin direction, and makes it sparse, faster than gradient descent. Both begin with the same
step, of size 1 times the gradient; the normalised steps then have this length over √(step number), and the plain ones
that of the gradient. After 3000 steps: ln of the mean of 1 − s_max under normalised descent over that under plain
descent (at least a tenth smaller); degrees to the max-margin solution of the selected tokens, less those of plain
descent (at least 1 smaller). In continuous time both follow the same curve, so at equal path length no difference may
be left: this is the control.

**Mirror descent.** Source (Julistiono et al. 2024, as we read the abstract): with the potential ‖W‖_p^p/p it converges
in direction to the separator of least ℓp norm. Flow of the mirror variable θ = sign(w)|w|^{p−1} to 10⁵⁰, p = 1.5 and 3.
The measure is the angle to the solution of the ℓp program for the tokens selected in the end: at most 5°, as for
gradient descent. Control: the path of gradient descent, p = 2, against the same program."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.separators import MOST, SeparatorProblem, draw_margin, least_frobenius
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    integrate_in_log_time,
    survey_statement,
)

VASUDEVA = Citation(
    "Vasudeva, Deora and Thrampoulidis 2024", "Implicit Bias and Fast Convergence Rates for Self-attention",
    "2402.05738", "abstract",
)  # fmt: skip
JULISTIONO = Citation(
    "Julistiono, Tarzanagh and Azizan 2024",
    "Optimizing Attention with Mirror Descent: Generalized Max-Margin Token Selection", "2410.14581", "abstract",
)  # fmt: skip
STEPS, MIRROR_END = 3000, 1e50

_SETTING = "fixed head, no norm, 4 contexts of 5 random tokens in R²⁴, {}"
SPARSER = survey_statement(
    "normalised-sparser", "normalised gradient descent makes attention sparse faster", source=VASUDEVA,
    setting=_SETTING.format("3000 steps"),
)  # fmt: skip
DIRECTION = survey_statement(
    "normalised-direction", "normalised gradient descent is sooner at the max-margin direction", source=VASUDEVA,
    setting=_SETTING.format("3000 steps"),
)  # fmt: skip
MIRROR = {
    p: survey_statement(
        f"mirror-{p:g}", f"mirror descent with the ℓp potential goes to the separator of least ℓp norm, p = {p:g}",
        source=JULISTIONO, setting=_SETTING.format("flow to 10⁵⁰"),
    )
    for p in (1.5, 3.0)
}  # fmt: skip


def descend(problem: SeparatorProblem, *, normalised: bool, steps: int = STEPS) -> FloatArray:
    """W after each step, (steps + 1, d, 1)."""
    w = np.zeros((problem.x.shape[2], 1))
    path, first = [w], float(np.linalg.norm(problem.gradient(w)))
    for step in range(1, steps + 1):
        g = problem.gradient(w)
        w = w + (first / np.sqrt(step) * g / np.linalg.norm(g) if normalised else g)
        path.append(w)
    return np.array(path)


def density(problem: SeparatorProblem, w: FloatArray) -> float:
    """The mean over contexts of 1 − s_max."""
    s = softmax(np.einsum("ntd,de,ne->nt", problem.x, w, problem.q), axis=1)
    return float(np.mean((s * (s < s.max(1, keepdims=True))).sum(1)))


def angle(w: FloatArray, best: FloatArray) -> float:
    """Degrees between two directions."""
    cosine = (w * best).sum() / np.linalg.norm(w) / np.linalg.norm(best)
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def gains(seed: int, *, equal_length: bool = False, steps: int = STEPS) -> tuple[float, float]:
    """ln ratio of densities and difference of angles, normalised against plain, at equal steps or path length."""
    problem = draw_margin(seed)
    paths = [descend(problem, normalised=choice, steps=steps) for choice in (True, False)]
    at = [steps, steps]
    if equal_length:
        lengths = [np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=(1, 2))) for path in paths]
        common = min(length[-1] for length in lengths)
        at = [int(np.abs(length - common).argmin()) + 1 for length in lengths]
    ends = [path[i] for path, i in zip(paths, at, strict=True)]
    thin = [density(problem, w) for w in ends]
    degrees = [angle(w, least_frobenius(problem.constraints(problem.selected(w)))) for w in ends]
    return float(np.log(thin[0] / thin[1])), degrees[0] - degrees[1]


def mirror(problem: SeparatorProblem, p: float) -> FloatArray:
    """W at the end of the mirror flow with the potential ‖W‖_p^p/p, (d, 1)."""

    def primal(theta: FloatArray) -> FloatArray:
        return np.asarray((np.sign(theta) * np.abs(theta) ** (1 / (p - 1)))[:, None])

    path = integrate_in_log_time(
        lambda theta: problem.gradient(primal(theta)).ravel(), np.zeros(problem.x.shape[2]), np.array([MIRROR_END]),
        rtol=1e-7, atol=1e-9,
    )  # fmt: skip
    return primal(path[-1])


def least_norm(constraints: FloatArray, p: float) -> FloatArray:
    """The w of least ℓp norm whose margins are at least 1, (d, 1)."""
    rows = constraints[:, :, 0]
    solution = minimize(
        lambda w: ((np.abs(w) ** p).sum() / p, np.sign(w) * np.abs(w) ** (p - 1)), least_frobenius(constraints)[:, 0],
        jac=True, method="SLSQP", options={"maxiter": 1000, "ftol": 1e-12},
        constraints=[{"type": "ineq", "fun": lambda w: rows @ w - 1, "jac": lambda w: rows}],
    )  # fmt: skip
    return np.asarray(solution.x[:, None])


def mirror_angle(seed: int, p: float, *, flow_p: float | None = None) -> float:
    """Degrees between the mirror flow (of ``flow_p``, default p) and the separator of least ℓp norm."""
    problem = draw_margin(seed)
    w = mirror(problem, flow_p or p)
    return angle(w, least_norm(problem.constraints(problem.selected(w)), p))


def judge_sparser(logarithms: FloatArray) -> SurveyClaim:
    return SPARSER.judge_values(
        logarithms, predicted=-1.0, bound=np.log(0.9), failure="no sparser",
        quantity="ln of 1 − s_max with normalised over plain descent",
    )  # fmt: skip


def judge_direction(differences: FloatArray) -> SurveyClaim:
    return DIRECTION.judge_values(
        differences, predicted=-5.0, bound=-1.0, failure="no nearer",
        quantity="degrees to the max-margin direction, normalised less plain descent",
    )  # fmt: skip


def judge_mirror(statement: SurveyStatement, degrees: FloatArray) -> SurveyClaim:
    return statement.judge_values(
        degrees, predicted=0.0, bound=MOST, failure="another direction", quantity="degrees to the ℓp separator at 10⁵⁰"
    )


def _check_normalised(effort: SurveyEffort) -> list[SurveyClaim]:
    each = np.array([gains(seed) for seed in range(effort.seeds)])
    return [judge_sparser(each[:, 0]), judge_direction(each[:, 1])]


def _check_mirror(effort: SurveyEffort) -> list[SurveyClaim]:
    return [
        judge_mirror(statement, np.array([mirror_angle(seed, p) for seed in range(effort.seeds)]))
        for p, statement in MIRROR.items()
    ]


NORMALISED = SurveyCheck((SPARSER, DIRECTION), _check_normalised)
MIRRORED = SurveyCheck(tuple(MIRROR.values()), _check_mirror)
