"""Under gradient descent the loss of class k falls like 1/(π_k t); sign descent does not see π_k.

Source: for a linear model on a simple imbalanced problem, ℓ_k(t) = Θ(1/(π_k t)) under gradient flow, and sign descent
reduces all classes alike. Theirs has no attention. Here it moves: one query, K = 30 classes with p_k ∝ 1/k, ten common
tokens and five distinct ones each, equal rates, the paper's l2 norm.

Judged by the slope of ln ℓ_k against ln π_k over the classes: −1 for gradient flow at 100 times the time in which the
rarest class is learned (within 0.1, as equations are), and 0 for sign descent when the mean loss has fallen to 10⁻³
of its start (as near to 0 as −1 is asked to be near). Sign descent is judged without common tokens, as in the source,
where classes share nothing and the sign of a gradient cannot know π_k; and with them: their rows of Y have the sign
of a sum over classes, in which frequent ones outvote rare ones.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.simulate import simulate
from scansnap.theory import t_snap

KUNSTNER = Source(
    "Kunstner, Yadav, Milligan, Schmidt and Bietti 2024",
    "Heavy-Tailed Class Imbalance and Why Adam Outperforms Gradient Descent on Language Models",
    "2402.19449", "abstract",
)  # fmt: skip
K = 30
TOLERANCE = 0.1

DESCENT = surveyed(
    "class-losses-gd", "under gradient descent class losses are ∝ 1/(π_k t)", source=KUNSTNER,
    setting=f"l2 norm, moving attention, {K} classes with π ∝ 1/k, equal rates, flow",
)  # fmt: skip
_SIGN = f"l2 norm, moving attention, {K} classes with π ∝ 1/k, {{}} common tokens, sign descent, expected gradients"
SIGN = surveyed("class-losses-sign", "sign descent does not see π_k", source=KUNSTNER, setting=_SIGN.format("no"))
SHARED = surveyed(
    "class-losses-sign-common", "sign descent does not see π_k where classes share tokens", source=KUNSTNER,
    setting=_SIGN.format("ten"),
)  # fmt: skip
STATEMENTS = (DESCENT, SIGN, SHARED)


def heavy_tailed(exponent: float = 1.0, common: int = 10) -> SequenceClasses:
    """K classes of one query, the k-th with probability ∝ k^−exponent."""
    plain = SequenceClasses.synthetic(n_queries=1, next_per_query=K, common=common, distinct=5)
    p = np.arange(1, K + 1.0) ** -exponent
    return SequenceClasses(plain.p_context, plain.query, plain.next_token, p / p.sum())


def losses(classes: SequenceClasses, attention: FloatArray, y: FloatArray) -> FloatArray:
    """−ln α of each class's next token, (K,), precise however small, for the l2 norm."""
    logits = attention / np.linalg.norm(attention, axis=1, keepdims=True) @ y  # (K, M)
    right = logits[np.arange(K), classes.next_token][:, None]
    others = np.where(np.arange(logits.shape[1]) == classes.next_token[:, None], -np.inf, logits - right)
    return np.log1p(np.exp(logsumexp(others, axis=1)))


def slope(p: FloatArray, loss: FloatArray) -> float:
    """d ln ℓ/d ln π by least squares."""
    return float(np.polyfit(np.log(p), np.log(loss), 1)[0])


def by_descent(classes: SequenceClasses) -> tuple[float, float]:
    """The slope in the flow, and the largest over the smallest of ℓ_k π_k t."""
    rarest = float(t_snap(eta_y=1.0, n_classes=1 / classes.p_class.min(), vocab_size=classes.vocab_size))
    run = flow(classes, 1.0, 1.0, [100 * rarest], variables=("attention", "y"))
    loss = losses(classes, run.attention.values[0], run.y.values[0])
    level = loss * classes.p_class
    return slope(classes.p_class, loss), float(level.max() / level.min())


def by_sign(classes: SequenceClasses, rate: float = 0.02) -> float:
    """The slope under sign descent when the mean loss is 10⁻³ of its start."""
    steps = int(4 / rate)
    run = simulate(
        classes, eta_y=rate, eta_z=rate, steps=steps, batch_size=None, context=np.inf, optimizer="sign", init="zero",
        record=range(0, steps, int(0.1 / rate)), variables=("attention", "y", "loss"), dtype="float64", device="cpu",
    )  # fmt: skip
    mean = run.loss.values[0]
    at = int(np.flatnonzero(mean <= 1e-3 * mean[0])[0])
    return slope(classes.p_class, losses(classes, run.attention.values[0, at], run.y.values[0, at]))


def judge_descent(measured: float, spread: float) -> Finding:
    return DESCENT.found(
        measured, predicted=-1.0, bound=-1.0 + TOLERANCE, both_sides=True, where="the slope is another",
        quantity=f"d ln ℓ_k/d ln π_k (ℓ_k π_k t is the same for all classes up to a factor {spread:.2f})",
    )  # fmt: skip


def judge_sign(statement: Surveyed, measured: float) -> Finding:
    return statement.found(
        measured, predicted=0.0, bound=TOLERANCE, both_sides=True, quantity="d ln ℓ_k/d ln π_k",
        where="frequent classes are learned at another pace",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    classes = heavy_tailed()
    return [
        judge_descent(*by_descent(classes)), judge_sign(SIGN, by_sign(heavy_tailed(common=0))),
        judge_sign(SHARED, by_sign(classes)),
    ]  # fmt: skip
