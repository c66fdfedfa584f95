"""Muon learns all classes alike whatever the embedding; Adam only where embeddings are along the axes.

Source: a one-layer associative memory under class imbalance; Muon balances classes regardless of the embeddings, Adam
can leave large disparities. Setting: logits = E W Oᵀ with K = 100 classes, π_k ∝ 1/k, expected gradients from W = 0,
E and O one-hot or random rotations (a seed draws them), until the mean loss is a tenth of its start. Judged by d ln
ℓ_k/d ln π_k: 0 within 0.1 is balanced (as for sign descent in class_losses.py), −0.5 and below is not: the rarest
class then has ten times the loss of the most frequent one.

Muon is judged twice: with the exact polar factor of the gradient, and with the five Newton–Schulz steps that everyone
uses for it. They leave singular values anywhere from 0.7 to 1.2 and smaller still where the gradient's are small, and
small singular values are the rare classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.dynamics.optimizers import Optimizer, orthogonalize

WANG = Source(
    "Wang, Zhang, Li, Du, Du, Pang, Yang, Hong and Tan 2025",
    "Muon Outperforms Adam in Tail-End Associative Memory Learning",
    "2509.26030", "abstract",
)  # fmt: skip
K = 100
_SETTING = "associative memory, K = 100, π ∝ 1/k, {} embeddings, at a tenth of the loss"

MUON = surveyed(
    "muon-balances", "Muon (exact polar factor) learns all classes alike whatever the embedding", source=WANG,
    setting=_SETTING.format("rotated"),
)  # fmt: skip
MUON_AS_USED = surveyed(
    "muon-balances-as-used", "Muon with five Newton–Schulz steps learns all classes alike", source=WANG,
    setting=_SETTING.format("rotated"),
)  # fmt: skip
ADAM = surveyed(
    "adam-balances-one-hot", "Adam learns all classes alike where embeddings are one-hot", source=WANG,
    setting=_SETTING.format("one-hot"),
)  # fmt: skip
ADAM_ROTATED = surveyed(
    "adam-disparity-rotated", "Adam leaves large disparities where embeddings are rotated", source=WANG,
    setting=_SETTING.format("rotated"),
)  # fmt: skip
STATEMENTS = (MUON, MUON_AS_USED, ADAM, ADAM_ROTATED)

Update = Callable[[torch.Tensor, int], torch.Tensor]  # gradient and step → what is added to W


def polar(rate: float = 0.3) -> Update:
    """The orthogonal factor of the gradient, over its range."""

    def update(d: torch.Tensor, _: int) -> torch.Tensor:
        u, s, v = torch.linalg.svd(d)
        return rate * (u * (s > 1e-9 * s[0])) @ v

    return update


def newton_schulz(rate: float = 0.3) -> Update:
    """Our Muon."""
    return lambda d, _: rate * orthogonalize(d[None])[0]


def descent(rate: float = 50.0) -> Update:
    """Plain gradient descent."""
    return lambda d, _: rate * d


def adam(rate: float = 0.02) -> Update:
    """Our Adam."""
    rule, none = Optimizer(name="adam"), torch.zeros(1, dtype=torch.float64)
    moments = rule.start(torch.zeros(1, K, K, dtype=torch.float64))

    def update(d: torch.Tensor, step: int) -> torch.Tensor:
        nonlocal moments
        moved, moments = rule.update(
            torch.zeros_like(d)[None], d[None], moments, step=step, eta=none + rate, momentum=none, weight_decay=none
        )
        return moved[0]

    return update


def imbalance(update: Update, seed: int | None, most_steps: int = 2000) -> float:
    """d ln ℓ_k/d ln π_k when the mean loss is a tenth of its start; one-hot embeddings without a seed."""
    one = torch.eye(K, dtype=torch.float64)
    e, o = (one, one) if seed is None else (_rotation(2 * seed), _rotation(2 * seed + 1))
    p = torch.arange(1, K + 1, dtype=torch.float64) ** -1.0
    p = p / p.sum()
    w = torch.zeros_like(one)
    for step in range(most_steps):
        log_alpha = torch.log_softmax(e @ w @ o.mT, dim=1)
        loss = -log_alpha.diagonal()
        if p @ loss <= 0.1 * np.log(K):
            break
        w = w + update(e.mT @ (p[:, None] * (one - log_alpha.exp())) @ o, step)
    return float(np.polyfit(np.log(p.numpy()), np.log(loss.numpy()), 1)[0])


def judge(statement: Surveyed, slopes: FloatArray | float) -> Finding:
    balanced = statement is not ADAM_ROTATED
    return statement.found(
        slopes, predicted=0.0 if balanced else -1.0, bound=-0.1 if balanced else -0.5, both_sides=balanced,
        quantity="d ln ℓ_k/d ln π_k", where="rare classes lag behind" if balanced else "classes are learned alike",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    def each(make: Callable[[], Update]) -> FloatArray:
        return np.array([imbalance(make(), seed) for seed in range(sizes.seeds)])

    return [
        judge(MUON, each(polar)), judge(MUON_AS_USED, each(newton_schulz)),
        judge(ADAM, imbalance(adam(), None)), judge(ADAM_ROTATED, each(adam)),
    ]  # fmt: skip


def _rotation(seed: int) -> torch.Tensor:
    return torch.tensor(np.linalg.qr(np.random.default_rng(seed).normal(size=(K, K)))[0])
