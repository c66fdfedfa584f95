"""How fast rare classes are learned under gradient descent, sign descent, Adam and Muon.

The measure is the slope d ln ℓ_k/d ln π_k of class losses against class frequencies; 0 within 0.1 is balanced.

**Class losses.** Source: for a linear model on a simple imbalanced problem, ℓ_k(t) = Θ(1/(π_k t)) under gradient
flow, and sign descent reduces all classes alike. The source has no attention. Here it moves: one query, K = 30
classes with p_k ∝ 1/k, ten common tokens and five distinct ones each, equal rates, the paper's l2 norm. The slope is
−1 for gradient flow at 100 times the time in which the rarest class is learned (within 0.1), and 0 for sign descent
when the mean loss has fallen to 10⁻³ of its start. Sign descent is tested without common tokens, as in the source,
where classes share nothing and the sign of a gradient is independent of π_k; and with them: their rows of Y have the
sign of a sum over classes, in which frequent ones outvote rare ones.

**Balance.** Source: in a one-layer associative memory under class imbalance, Muon balances classes for any embedding;
Adam can leave large disparities. Logits are E W Oᵀ with K = 100 classes, π_k ∝ 1/k, expected gradients from W = 0, E
and O one-hot or random rotations (one per seed), until the mean loss is a tenth of its start. A disparity is a slope
of −0.5 or less: the rarest class then has ten times the loss of the most frequent one. Muon is judged twice: with the
exact polar factor of the gradient, and with the usual five Newton–Schulz steps. These leave singular values anywhere
from 0.7 to 1.2, and smaller still where the gradient's are small, and small singular values belong to the rare
classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import logsumexp

from scansnap.checks.arrays import FloatArray
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
from scansnap.dynamics.optimizers import Optimizer, orthogonalize
from scansnap.dynamics.simulate import simulate
from scansnap.theory import t_snap

TOLERANCE = 0.1


def slope(p: FloatArray, loss: FloatArray) -> float:
    """d ln ℓ/d ln π by least squares."""
    return float(np.polyfit(np.log(p), np.log(loss), 1)[0])


# --- class losses -----------------------------------------------------------------------------------------------

KUNSTNER = Citation(
    "Kunstner, Yadav, Milligan, Schmidt and Bietti 2024",
    "Heavy-Tailed Class Imbalance and Why Adam Outperforms Gradient Descent on Language Models",
    "2402.19449", "abstract",
)  # fmt: skip
K = 30

DESCENT = survey_statement(
    "class-losses-gd", "under gradient descent class losses are ∝ 1/(π_k t)", source=KUNSTNER,
    setting=f"l2 norm, moving attention, {K} classes with π ∝ 1/k, equal rates, flow",
)  # fmt: skip
_SIGN = f"l2 norm, moving attention, {K} classes with π ∝ 1/k, {{}} common tokens, sign descent, expected gradients"
SIGN = survey_statement(
    "class-losses-sign", "sign descent does not see π_k", source=KUNSTNER, setting=_SIGN.format("no")
)
SHARED = survey_statement(
    "class-losses-sign-common", "sign descent does not see π_k where classes share tokens", source=KUNSTNER,
    setting=_SIGN.format("ten"),
)  # fmt: skip


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


def judge_descent(measured: float, spread: float) -> SurveyClaim:
    return DESCENT.judge_values(
        measured, predicted=-1.0, bound=-1.0 + TOLERANCE, two_sided=True, failure="the slope is another",
        quantity=f"d ln ℓ_k/d ln π_k (ℓ_k π_k t is the same for all classes up to a factor {spread:.2f})",
    )  # fmt: skip


def judge_sign(statement: SurveyStatement, measured: float) -> SurveyClaim:
    return statement.judge_values(
        measured, predicted=0.0, bound=TOLERANCE, two_sided=True, quantity="d ln ℓ_k/d ln π_k",
        failure="frequent classes are learned at another pace",
    )  # fmt: skip


def _check_losses(effort: SurveyEffort) -> list[SurveyClaim]:
    classes = heavy_tailed()
    return [
        judge_descent(*by_descent(classes)), judge_sign(SIGN, by_sign(heavy_tailed(common=0))),
        judge_sign(SHARED, by_sign(classes)),
    ]  # fmt: skip


CLASS_LOSSES = SurveyCheck((DESCENT, SIGN, SHARED), _check_losses)

# --- balance of an associative memory -----------------------------------------------------------------------------

WANG = Citation(
    "Wang, Zhang, Li, Du, Du, Pang, Yang, Hong and Tan 2025",
    "Muon Outperforms Adam in Tail-End Associative Memory Learning",
    "2509.26030", "abstract",
)  # fmt: skip
MEMORY_CLASSES = 100
_SETTING = "associative memory, K = 100, π ∝ 1/k, {} embeddings, at a tenth of the loss"

MUON = survey_statement(
    "muon-balances", "Muon (exact polar factor) learns all classes alike whatever the embedding", source=WANG,
    setting=_SETTING.format("rotated"),
)  # fmt: skip
MUON_AS_USED = survey_statement(
    "muon-balances-as-used", "Muon with five Newton–Schulz steps learns all classes alike", source=WANG,
    setting=_SETTING.format("rotated"),
)  # fmt: skip
ADAM = survey_statement(
    "adam-balances-one-hot", "Adam learns all classes alike where embeddings are one-hot", source=WANG,
    setting=_SETTING.format("one-hot"),
)  # fmt: skip
ADAM_ROTATED = survey_statement(
    "adam-disparity-rotated", "Adam leaves large disparities where embeddings are rotated", source=WANG,
    setting=_SETTING.format("rotated"),
)  # fmt: skip

Update = Callable[[torch.Tensor, int], torch.Tensor]  # gradient and step → what is added to W


def polar(rate: float = 0.3) -> Update:
    """The orthogonal factor of the gradient, over its range."""

    def update(d: torch.Tensor, _: int) -> torch.Tensor:
        u, s, v = torch.linalg.svd(d)
        return rate * (u * (s > 1e-9 * s[0])) @ v

    return update


def newton_schulz(rate: float = 0.3) -> Update:
    """Muon as `scansnap.dynamics.optimizers` has it."""
    return lambda d, _: rate * orthogonalize(d[None])[0]


def descent(rate: float = 50.0) -> Update:
    """Plain gradient descent."""
    return lambda d, _: rate * d


def adam(rate: float = 0.02) -> Update:
    """Adam as `scansnap.dynamics.optimizers` has it."""
    rule, none = Optimizer(name="adam"), torch.zeros(1, dtype=torch.float64)
    moments = rule.start(torch.zeros(1, MEMORY_CLASSES, MEMORY_CLASSES, dtype=torch.float64))

    def update(d: torch.Tensor, step: int) -> torch.Tensor:
        nonlocal moments
        moved, moments = rule.update(
            torch.zeros_like(d)[None], d[None], moments, step=step, eta=none + rate, momentum=none, weight_decay=none
        )
        return moved[0]

    return update


def imbalance(update: Update, seed: int | None, most_steps: int = 2000) -> float:
    """d ln ℓ_k/d ln π_k when the mean loss is a tenth of its start; one-hot embeddings without a seed."""
    identity = torch.eye(MEMORY_CLASSES, dtype=torch.float64)
    e, o = (identity, identity) if seed is None else (_rotation(2 * seed), _rotation(2 * seed + 1))
    p = torch.arange(1, MEMORY_CLASSES + 1, dtype=torch.float64) ** -1.0
    p = p / p.sum()
    w = torch.zeros_like(identity)
    for step in range(most_steps):
        log_alpha = torch.log_softmax(e @ w @ o.mT, dim=1)
        loss = -log_alpha.diagonal()
        if p @ loss <= 0.1 * np.log(MEMORY_CLASSES):
            break
        w = w + update(e.mT @ (p[:, None] * (identity - log_alpha.exp())) @ o, step)
    return slope(p.numpy(), loss.numpy())


def judge_balance(statement: SurveyStatement, slopes: FloatArray | float) -> SurveyClaim:
    balanced = statement is not ADAM_ROTATED
    return statement.judge_values(
        slopes, predicted=0.0 if balanced else -1.0, bound=-0.1 if balanced else -0.5, two_sided=balanced,
        quantity="d ln ℓ_k/d ln π_k", failure="rare classes lag behind" if balanced else "classes are learned alike",
    )  # fmt: skip


def _check_balance(effort: SurveyEffort) -> list[SurveyClaim]:
    def each(make: Callable[[], Update]) -> FloatArray:
        return np.array([imbalance(make(), seed) for seed in range(effort.seeds)])

    return [
        judge_balance(MUON, each(polar)), judge_balance(MUON_AS_USED, each(newton_schulz)),
        judge_balance(ADAM, imbalance(adam(), None)), judge_balance(ADAM_ROTATED, each(adam)),
    ]  # fmt: skip


def _rotation(seed: int) -> torch.Tensor:
    return torch.tensor(np.linalg.qr(np.random.default_rng(seed).normal(size=(MEMORY_CLASSES, MEMORY_CLASSES)))[0])


BALANCE = SurveyCheck((MUON, MUON_AS_USED, ADAM, ADAM_ROTATED), _check_balance)
