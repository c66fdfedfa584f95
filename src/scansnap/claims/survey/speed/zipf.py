"""How many steps a vocabulary of d words needs when word frequencies follow Zipf's law.

Source: in a linear bigram model with squared loss and frequencies π_k ∝ 1/k, gradient descent needs a number of steps
almost linear in d for a small relative error, and sign descent only √d. The measure is the exponent d ln N/d ln d of
the number of steps N until the loss is a tenth of its start. *Linear* and *square root* are told apart by the middle:
an exponent agrees if it is nearer to the predicted one than to the next multiple of a half (bound 1/4).

**Source's model**, by its closed forms, d from 10³ to 10⁵ (as we read it, rows and columns both follow the law):

    gradient descent   error(t) = Σ_k π_k (1 − π_k/π_1)^{2t}                 with the largest stable rate 1/π_1
    sign descent       error(t) = Σ_k (δ_k(t)/δ_k(0))² δ_k(0)²/Σδ², δ_k(0) ∝ 1/k, every δ moves by η towards 0

A coordinate that sign descent has brought below η jumps over 0 and back, so the larger of two consecutive errors
counts. η is the best for each d.

**Our model**, where the loss is the cross-entropy and attention moves: K classes of one query with p_k ∝ 1/k, two
common tokens and two distinct ones each, l2 norm, equal rates, K from 10 to 80. Gradient descent is the flow; the
largest stable step is ∝ 1/p_1, so N = t p_1. Sign descent has the rate 0.02 for every K. With a separable softmax it
has no error floor, so no K needs a smaller rate: N ∝ 1/η with the same factor for all K."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from scansnap.checks.arrays import IntArray
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    survey_statement,
)
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.simulate import simulate

BACH = Citation(
    "Kunstner and Bach 2025",
    "Scaling Laws for Gradient Descent and Sign Descent for Linear Bigram Models under Zipf's Law",
    "2505.19227", "abstract",
)  # fmt: skip
ERROR, TOLERANCE = 0.1, 0.25
WORDS, CLASSES = 10 ** np.arange(3, 6), np.array([10, 20, 40, 80])

_LINEAR = "linear bigram model, squared loss, d = 10³ to 10⁵, π ∝ 1/k, to a tenth of the loss"
_OURS = "l2 norm, moving attention, 10 to 80 classes, p ∝ 1/k, to a tenth of the loss"
DESCENT_LINEAR = survey_statement(
    "zipf-gd-linear", "on Zipf data gradient descent needs a number of steps ∝ d", source=BACH, setting=_LINEAR,
    kind="formula",
)  # fmt: skip
SIGN_LINEAR = survey_statement(
    "zipf-sign-linear", "on Zipf data sign descent needs a number of steps ∝ √d", source=BACH, setting=_LINEAR,
    kind="formula",
)  # fmt: skip
DESCENT = survey_statement(
    "zipf-gd", "on Zipf data gradient descent needs a number of steps ∝ d", source=BACH, setting=f"{_OURS}, flow"
)
SIGN = survey_statement(
    "zipf-sign", "on Zipf data sign descent needs a number of steps ∝ √d", source=BACH,
    setting=f"{_OURS}, sign descent at rate 0.02, expected gradients",
)  # fmt: skip


def linear_descent(d: int, exponent: float = 1.0) -> float:
    """Steps of gradient descent in the source's model, π_k ∝ k^−exponent."""
    p = np.arange(1, d + 1.0) ** -exponent
    p, decay = p / p.sum(), np.log1p(-np.minimum(p / p[0], 1 - 1e-12))
    return float(np.exp(brentq(lambda s: p @ np.exp(2 * np.exp(s) * decay) - ERROR, np.log(1e-6), np.log(1e3 * d))))


def linear_sign(d: int) -> float:
    """Steps of sign descent in the source's model at the best rate."""
    start = 1 / np.arange(1, d + 1.0)
    total = (start**2).sum()

    def error(t: int, eta: float) -> float:
        steps = np.minimum(np.floor(start / eta), t)  # towards 0
        rest = start - steps * eta
        jumps = (t - steps) % 2  # then over it and back
        return float((np.where(jumps == 1, eta - rest, rest) ** 2).sum() / total)

    def steps_to(eta: float) -> float:
        low, high = 0, int(np.ceil(1 / eta)) + 2
        if max(error(high, eta), error(high + 1, eta)) > ERROR:
            return np.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if max(error(middle, eta), error(middle + 1, eta)) <= ERROR else (middle, high)
        return high

    return min(steps_to(eta) for eta in np.geomspace(0.1, 10, 41) / np.sqrt(d))


def heavy_tailed(k: int, *, uniform: bool = False) -> SequenceClasses:
    """k classes of one query with p ∝ 1/k, or all alike."""
    plain = SequenceClasses.synthetic(n_queries=1, next_per_query=k, common=2, distinct=2)
    p = np.ones(k) if uniform else 1 / np.arange(1, k + 1.0)
    return SequenceClasses(plain.p_context, plain.query, plain.next_token, p / p.sum())


def descent_steps(k: int, *, uniform: bool = False) -> float:
    """t p_1 at which the flow has a tenth of the loss."""
    classes = heavy_tailed(k, uniform=uniform)
    t = np.append(0.0, np.geomspace(1.0, 1e3 * k, 120))
    loss = flow(classes, 1.0, 1.0, t, variables=("loss",)).loss.values
    at = np.interp(-np.log(ERROR * loss[0]), -np.log(loss[1:]), np.log(t[1:]))
    return float(np.exp(at) * classes.p_class.max())


def sign_steps(k: int, rate: float = 0.02, *, uniform: bool = False) -> float:
    """Steps of sign descent until a tenth of the loss."""
    run = simulate(
        heavy_tailed(k, uniform=uniform), eta_y=rate, eta_z=rate, steps=int(10 / rate), batch_size=None,
        context=np.inf, optimizer="sign", init="zero", record=range(int(10 / rate) + 1), variables=("loss",),
        dtype="float64", device="cpu",
    )  # fmt: skip
    loss = run.loss.values[0]
    at = np.flatnonzero(loss <= ERROR * loss[0])
    return float(at[0]) if len(at) else np.nan


def fitted(sizes: IntArray, steps: list[float]) -> float:
    """d ln steps/d ln size."""
    return float(np.polyfit(np.log(sizes), np.log(steps), 1)[0])


def judge(statement: SurveyStatement, exponent: float) -> SurveyClaim:
    predicted = 0.5 if statement in (SIGN, SIGN_LINEAR) else 1.0
    return statement.judge_values(
        exponent, predicted=predicted, bound=predicted - TOLERANCE, two_sided=True,
        quantity="d ln steps/d ln (number of words)", failure="another power",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    words, classes = (WORDS[:-1], CLASSES[:-1]) if effort.quick else (WORDS, CLASSES)
    return [
        judge(DESCENT_LINEAR, fitted(words, [linear_descent(d) for d in words])),
        judge(SIGN_LINEAR, fitted(words, [linear_sign(d) for d in words])),
        judge(DESCENT, fitted(classes, [descent_steps(k) for k in classes])),
        judge(SIGN, fitted(classes, [sign_steps(k) for k in classes])),
    ]


ZIPF = SurveyCheck((DESCENT_LINEAR, SIGN_LINEAR, DESCENT, SIGN), _check)
