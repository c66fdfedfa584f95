"""How far one step moves attention logits when query and key weights are large.

Source (Anson and Aitchison 2025, as we read the abstract): query and key weights grow, and stability depends on the
*change* of the logits in a step. Rates of W_Q and W_K that depend on the parameters control this change.

With steps of a fixed size (sign descent, as a proxy of Adam), ΔZ = ΔW_Q W_Kᵀ + W_Q ΔW_Kᵀ + … is ∝ the size of the
weights. Our form of the rule divides the rate of each factor by the norm of the other. Setting: the data of
`scansnap.claims.survey.separators` (5 contexts of 4 random tokens in R⁶, fixed head), normal factors of size s from
0.1 to 10 (at 100 attention saturates and its gradient underflows to 0), one step of sign descent at rate 10⁻³ (so that
the product of both changes, which does not depend on s, is small). The measure is the exponent d ln max|Δlogit|/d ln s:
0, within a tenth. Each seed draws data and factors. The control is the same step without the rule."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.separators import draw_factors
from scansnap.claims.survey.statement import Citation, SurveyCheck, SurveyClaim, SurveyEffort, survey_statement

ANSON = Citation("Anson and Aitchison 2025", "Controlling changes to attention logits", "2511.21377", "abstract")
SIZES, RATE = np.geomspace(0.1, 10.0, 7), 1e-3

STEPS = survey_statement(
    "logit-steps", "with rates over the other factor's norm, a step changes logits alike however large W_Q and W_K are",
    source=ANSON, setting="fixed head, 5 contexts of 4 random tokens in R⁶, factors of size 0.1 to 10, one sign step",
)  # fmt: skip


def exponent(seed: int, *, rule: bool = True) -> float:
    """d ln max|Δlogit|/d ln size of one step, with or without the rule."""
    problem = draw_factors(seed)
    d = problem.x.shape[2]
    a, b = np.random.default_rng(seed + 1000).normal(size=(2, d, d))
    changes = []
    for size in SIZES:
        w_q, w_k = size * a, size * b
        g = problem.gradient(w_q @ w_k.T)
        rate_q, rate_k = (RATE / np.linalg.norm(w_k), RATE / np.linalg.norm(w_q)) if rule else (RATE, RATE)
        new = (w_q + rate_q * np.sign(g @ w_k)) @ (w_k + rate_k * np.sign(g.T @ w_q)).T
        changes.append(np.abs(np.einsum("ntd,de,ne->nt", problem.x, new - w_q @ w_k.T, problem.q)).max())
    return float(np.polyfit(np.log(SIZES), np.log(changes), 1)[0])


def judge(exponents: FloatArray) -> SurveyClaim:
    return STEPS.judge_values(
        exponents, predicted=0.0, bound=0.1, two_sided=True, quantity="d ln max|Δlogit|/d ln ‖W‖",
        failure="larger weights move further",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge(np.array([exponent(seed) for seed in range(effort.seeds)]))]


LOGIT_STEPS = SurveyCheck((STEPS,), _check)
