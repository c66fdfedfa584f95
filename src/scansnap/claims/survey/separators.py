"""Attention with a fixed head tends to a separator: which tokens are selected, and in which norm.

A problem has n contexts of T tokens x ∈ R^d, a query q for each, and a fixed head: token t of context i has the value
γ_it. With logits X_i W q_i, s = softmax, the loss is log(1 + e^{−γᵀs}), averaged over contexts (Tarzanagh et al.).
The flow is integrated in ln t, with gradients that keep their relative precision when 1 − s is 10⁻⁵⁰.

**Max-margin direction.** Source: the flow of p in ⟨Xv, softmax(Xp)⟩ with v fixed converges in direction to the
hard-margin separator of (locally) optimal tokens. Setting: that of the source, 4 contexts of 5 unit tokens in R²⁴,
random head; each seed draws its own data. The direction is approached like 1/ln t, so a flow to 10⁹ is still some 11°
away; at 10⁵⁰ this becomes 2°. The measure is the angle to the solution of the quadratic program for the tokens
selected in the end: at most 5°, since a direction that settled at 10⁹ would be further away. Local optima count, as
the source says.

**Separate W_Q and W_K.** They prefer low rank: the nuclear norm of their product instead of the Frobenius norm of Z.
Source 1: with (K, Q) the attention layer tends to the separator of least nuclear norm, with the merged W to that of
least Frobenius norm (proved for vanishing regularisation). Source 2: L2 on both factors becomes a nuclear norm on the
product exponentially fast. Setting: a head that prefers the first token, 5 contexts of 4 random unit tokens in R⁶
with random queries, the same data for both, factors from 10⁻³, flow to 10¹⁰⁰; each seed draws data and factors. The
measures are

- the stable rank ‖W‖_F²/‖W‖₂² of the product over that of the merged W: lower by a twentieth or more;
- the nuclear norm of the product, and the Frobenius norm of the merged W, per margin and over the least possible: 1,
  with a tolerance of a tenth for a direction that is approached like 1/ln t;
- with decay λ, the rate at which ½(‖A‖² + ‖B‖²) − ‖ABᵀ‖_* falls exponentially. AᵀA − BᵀB falls like e^{−2λt} exactly;
  in directions that the loss uses the difference is quadratic in it (4λ), in the others it is linear, and these
  remain in the end: 2λ (ours; the source says exponentially). The tolerance is a quarter, as for estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.special import expit, softmax

from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    integrate_in_log_time,
    survey_statement,
)


@dataclass(frozen=True)
class SeparatorProblem:
    """Tokens, queries, and the value that the fixed head gives each token."""

    x: FloatArray  # (n, T, d)
    q: FloatArray  # (n, e)
    value: FloatArray  # (n, T)

    def gradient(self, w: FloatArray) -> FloatArray:
        """The ascent direction in W, (d, e)."""
        s = softmax(np.einsum("ntd,de,ne->nt", self.x, w, self.q), axis=1)
        top = np.take_along_axis(self.value, s.argmax(1)[:, None], axis=1)
        less = self.value - top  # 0 at the selected token, so the other terms do not cancel
        pull = s * (less - (s * less).sum(1, keepdims=True))  # (n, T)
        error = expit(-(s * self.value).sum(1)) / len(s)
        return np.asarray(np.einsum("n,nt,ntd,ne->de", error, pull, self.x, self.q))

    def selected(self, w: FloatArray) -> IntArray:
        """The token with the largest attention in each context, (n,)."""
        return np.asarray(np.einsum("ntd,de,ne->nt", self.x, w, self.q).argmax(1))

    def constraints(self, chosen: IntArray) -> FloatArray:
        """(x_chosen − x_t) qᵀ for all other tokens: W separates where each product is at least 1, (C, d, e)."""
        return np.array([
            np.outer(x[best] - x[t], q)
            for x, q, best in zip(self.x, self.q, chosen, strict=True) for t in range(len(x)) if t != best
        ])  # fmt: skip


def merged(problem: SeparatorProblem, times: FloatArray) -> FloatArray:
    """W along its own gradient flow from 0, (N, d, e)."""
    shape = problem.x.shape[2], problem.q.shape[1]
    path = integrate_in_log_time(
        lambda w: problem.gradient(w.reshape(shape)).ravel(), np.zeros(shape[0] * shape[1]), times, rtol=1e-7, atol=1e-9
    )
    return path.reshape(-1, *shape)


def factors(
    problem: SeparatorProblem, times: FloatArray, rng: np.random.Generator, *, size: float = 1e-3, decay: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """A and B along the gradient flow of W = ABᵀ, with L2 ``decay`` on both, from normal entries of this size."""
    d = problem.x.shape[2]

    def rates(state: FloatArray) -> FloatArray:
        a, b = state.reshape(2, d, d)
        g = problem.gradient(a @ b.T)
        return np.concatenate([(g @ b - decay * a).ravel(), (g.T @ a - decay * b).ravel()])

    path = integrate_in_log_time(rates, size * rng.normal(size=2 * d * d), times, rtol=1e-7, atol=1e-9)
    path = path.reshape(-1, 2, d, d)
    return path[:, 0], path[:, 1]


def least_frobenius(constraints: FloatArray) -> FloatArray:
    """The W of least Frobenius norm whose margins are at least 1 (Lawson and Hanson's reduction to NNLS)."""
    flat = constraints.reshape(len(constraints), -1)
    e = np.vstack([flat.T, np.ones(len(flat))])
    target = np.append(np.zeros(flat.shape[1]), 1.0)
    residual = e @ nnls(e, target, maxiter=10_000)[0] - target
    return np.asarray((-residual[:-1] / residual[-1]).reshape(constraints.shape[1:]))


def least_nuclear(constraints: FloatArray) -> FloatArray:
    """The W of least nuclear norm with margins of at least 1: half the squared Frobenius norms of two full factors."""
    d = constraints.shape[1]
    left, values, right = np.linalg.svd(least_frobenius(constraints))
    start = np.stack([left * np.sqrt(values), right.T * np.sqrt(values)])
    start = start + 1e-3 * np.random.default_rng(0).normal(size=start.shape)  # full rank

    def margins(both: FloatArray) -> FloatArray:
        a, b = both.reshape(2, d, d)
        return np.asarray((constraints * (a @ b.T)).sum((1, 2)) - 1)

    def slopes(both: FloatArray) -> FloatArray:
        a, b = both.reshape(2, d, d)
        parts = constraints @ b, constraints.transpose(0, 2, 1) @ a
        return np.concatenate([part.reshape(len(constraints), -1) for part in parts], axis=1)

    solution = minimize(
        lambda both: (0.5 * both @ both, both), start.ravel(), jac=True, method="SLSQP",
        constraints=[{"type": "ineq", "fun": margins, "jac": slopes}], options={"maxiter": 1000, "ftol": 1e-12},
    )  # fmt: skip
    a, b = solution.x.reshape(2, d, d)
    return np.asarray(a @ b.T)


# --- the max-margin direction -----------------------------------------------------------------------------------

TARZANAGH = Citation(
    "Tarzanagh, Li, Zhang and Oymak 2023", "Max-Margin Token Selection in Attention Mechanism", "2306.13596", "abstract"
)
TIMES = np.array([1e9, 1e50])
MOST = 5.0  # degrees

MARGIN = survey_statement(
    "max-margin", "with a fixed head z/‖z‖ goes to the max-margin direction", source=TARZANAGH,
    setting="fixed head, no norm, 4 contexts of 5 random tokens in R²⁴, flow to 10⁵⁰",
)  # fmt: skip


def draw_margin(seed: int) -> SeparatorProblem:
    """Unit tokens, a random head and random labels; one query, so that W is a vector."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, 5, 24))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    label, head = rng.choice([-1.0, 1.0], size=(4, 1)), 3 * rng.normal(size=24)
    return SeparatorProblem(x, np.ones((4, 1)), label * (x @ head))


def angles(problem: SeparatorProblem, *, runner_up: bool = False) -> FloatArray:
    """Degrees between W and the max-margin solution at the times; of the second tokens with ``runner_up``."""
    path = merged(problem, TIMES)
    chosen = problem.selected(path[-1])
    if runner_up:
        s = problem.x @ path[-1][:, 0]
        chosen = np.argsort(s, axis=1)[:, -2]
    best = least_frobenius(problem.constraints(chosen))
    cosine = (path * best).sum((1, 2)) / np.linalg.norm(path, axis=(1, 2)) / np.linalg.norm(best)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def judge_margin(each: FloatArray) -> SurveyClaim:
    """``each`` is (seeds, times)."""
    return MARGIN.judge_values(
        each[:, -1], predicted=0.0, bound=MOST, failure="another direction",
        quantity=f"degrees to the max-margin solution at 10⁵⁰ (at 10⁹: {each[:, 0].mean():.1f})",
    )  # fmt: skip


def _check_margin(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge_margin(np.array([angles(draw_margin(seed)) for seed in range(effort.seeds)]))]


MAX_MARGIN = SurveyCheck((MARGIN,), _check_margin)

# --- separate factors -------------------------------------------------------------------------------------------

SVM = Citation(
    "Tarzanagh, Li, Thrampoulidis and Oymak 2023", "Transformers as Support Vector Machines", "2308.16898", "abstract"
)
KOBAYASHI = Citation(
    "Kobayashi, Akram and von Oswald 2024", "Weight decay induces low-rank attention layers", "2410.23819", "abstract"
)
LAMBDA = 1e-2
_SETTING = "fixed head, no norm, 5 contexts of 4 random tokens in R⁶, flow to 10¹⁰⁰"

RANK = survey_statement("factors-rank", "separate W_Q, W_K have lower rank than Z", source=SVM, setting=_SETTING)
NUCLEAR = survey_statement(
    "factors-nuclear", "separate W_Q, W_K go to the separator of least nuclear norm", source=SVM, setting=_SETTING
)
FROBENIUS = survey_statement(
    "merged-frobenius", "the merged Z goes to the separator of least Frobenius norm", source=SVM, setting=_SETTING
)
DECAY = survey_statement(
    "factors-decay", "L2 on the factors becomes a nuclear norm on the product exponentially fast", source=KOBAYASHI,
    setting="the same data, factors from 0.3, decay 10⁻², flow to 400",
)  # fmt: skip


def draw_factors(seed: int) -> SeparatorProblem:
    """Unit tokens and queries; the head prefers the first token."""
    rng = np.random.default_rng(seed)
    x, q = rng.normal(size=(5, 4, 6)), rng.normal(size=(5, 6))
    x, q = x / np.linalg.norm(x, axis=2, keepdims=True), q / np.linalg.norm(q, axis=1, keepdims=True)
    return SeparatorProblem(x, q, np.tile([4.0, 0.0, 0.0, 0.0], (5, 1)))


def measures(seed: int) -> FloatArray:
    """ln of the stable ranks' ratio (flows; programs), and both norms per margin over the least possible, (4,)."""
    problem, times = draw_factors(seed), np.array([1e100])
    a, b = factors(problem, times, np.random.default_rng(seed + 1000))
    product, merged_w = a[0] @ b[0].T, merged(problem, times)[0]
    constraints = problem.constraints(np.zeros(5, dtype=np.int64))
    nuclear, frobenius = least_nuclear(constraints), least_frobenius(constraints)

    def per_margin(w: FloatArray, norm: Literal["nuc", "fro"]) -> float:
        return float(np.linalg.norm(w, norm) / (constraints * w).sum((1, 2)).min())

    return np.array([
        np.log(stable_rank(product) / stable_rank(merged_w)), np.log(stable_rank(nuclear) / stable_rank(frobenius)),
        per_margin(product, "nuc") / per_margin(nuclear, "nuc"),
        per_margin(merged_w, "fro") / per_margin(frobenius, "fro"),
    ])  # fmt: skip


def stable_rank(w: FloatArray) -> float:
    return float(np.linalg.norm(w) ** 2 / np.linalg.norm(w, 2) ** 2)


def excess_rate(seed: int, decay: float = LAMBDA) -> float:
    """−d ln[½(‖A‖² + ‖B‖²) − ‖ABᵀ‖_*]/dt over the second half of the flow to 400."""
    times = np.array([200.0, 400.0])
    a, b = factors(draw_factors(seed), times, np.random.default_rng(seed + 1000), size=0.3, decay=decay)
    half = 0.5 * ((a**2).sum((1, 2)) + (b**2).sum((1, 2)))
    excess = half - np.linalg.svd(a @ b.transpose(0, 2, 1), compute_uv=False).sum(1)
    return float(-np.diff(np.log(excess))[0] / np.diff(times)[0])


def judge_factors(each: FloatArray) -> list[SurveyClaim]:
    """From (seeds, 4) of `measures`."""
    ratio, programs, nuclear, frobenius = each.T
    return [
        RANK.judge_values(ratio, predicted=float(programs.mean()), bound=-0.05, failure="the rank is no lower",
                   quantity="ln of the product's stable rank over the merged one's"),
        NUCLEAR.judge_values(nuclear, predicted=1.0, bound=1.1, failure="the norm is larger",
                      quantity="nuclear norm per margin over the least possible"),
        FROBENIUS.judge_values(frobenius, predicted=1.0, bound=1.1, failure="the norm is larger",
                        quantity="Frobenius norm per margin over the least possible"),
    ]  # fmt: skip


def judge_decay(rates: FloatArray) -> SurveyClaim:
    return DECAY.judge_values(
        rates / LAMBDA, predicted=2.0, bound=1.5, two_sided=True, failure="another rate, or none",
        quantity="rate at which ½(‖A‖² + ‖B‖²) − ‖ABᵀ‖_* falls, over λ",
    )  # fmt: skip


def _check_factors(effort: SurveyEffort) -> list[SurveyClaim]:
    seeds = range(effort.seeds)
    return [
        *judge_factors(np.array([measures(s) for s in seeds])),
        judge_decay(np.array([excess_rate(s) for s in seeds])),
    ]


FACTORS = SurveyCheck((RANK, NUCLEAR, FROBENIUS, DECAY), _check_factors)
