"""The hand-written flows of the newer statements against small steps of torch.autograd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from scansnap.claims.survey import drops, rank_collapse, trigger
from scansnap.claims.survey.speed import focus
from scansnap.classes import SequenceClasses

STEP = 2e-3


def descend(start: list[np.ndarray], loss: Callable[..., torch.Tensor], t: float) -> list[torch.Tensor]:
    """Plain gradient descent to time t."""
    tables = [torch.tensor(x) for x in start]
    for _ in range(round(t / STEP)):
        tables = [x.detach().requires_grad_() for x in tables]
        gradients = torch.autograd.grad(loss(*tables), tables)
        tables = [x - STEP * g for x, g in zip(tables, gradients, strict=True)]
    return [x.detach() for x in tables]


@pytest.mark.parametrize("separate", [True, False])
def test_linear_attention(separate: bool) -> None:
    d, t = 4, 1.5
    times, path = drops.linear_loss(3, separate=separate)
    start = 0.01 * np.random.default_rng(3).normal(size=d + 2 * d * d if separate else d + d**3)
    parts = np.split(start, [d, d + d * d] if separate else [d])
    shapes = [(d,), (d, d), (d, d)] if separate else [(d,), (d, d, d)]
    cov = torch.diag(torch.tensor(drops.VARIANCES, dtype=torch.float64))

    def loss(v: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        w = torch.einsum("hi,hj->hij", *rest) if separate else rest[0]
        r = torch.eye(d) - torch.einsum("h,hij->ij", v, w) @ cov
        return 0.5 * torch.trace(r.mT @ cov @ r)

    end = descend([x.reshape(shape) for x, shape in zip(parts, shapes, strict=True)], loss, t)
    assert float(loss(*end)) == pytest.approx(np.interp(t, times, path), rel=0.01)


def test_separate_factors_in_the_table_model() -> None:
    classes = SequenceClasses.synthetic(n_queries=3, next_per_query=2, common=1, distinct=1)
    p = torch.tensor(classes.p_context[:, classes.p_context.sum(0) > 0])
    k, s = p.shape
    weight, query = torch.tensor(np.repeat(rank_collapse.WEIGHTS, 2) / 2), np.repeat(np.arange(3), 2)
    rng = np.random.default_rng(0)
    w_q = rank_collapse.SIZE * rng.normal(size=9).reshape(3, 3)
    w_k = rank_collapse.SIZE * rng.normal(size=3 * s).reshape(s, 3)

    def loss(y: torch.Tensor, w_q: torch.Tensor, w_k: torch.Tensor) -> torch.Tensor:
        c = torch.softmax(p.log() + (w_q @ w_k.mT)[query], dim=1)
        return -(weight * torch.log_softmax(c @ y, dim=1).diagonal()).sum()

    t = float(rank_collapse.TIMES[80])
    y, w_q, w_k = descend([np.zeros((s, k)), w_q, w_k], loss, t)
    losses, z = rank_collapse.factored_flow(0)
    assert float(loss(y, w_q, w_k)) == pytest.approx(losses[81], rel=1e-3)
    np.testing.assert_allclose((w_q @ w_k.mT).numpy(), z[81], rtol=0.02, atol=1e-9)


@pytest.mark.parametrize("relu", [False, True])
def test_trigger(relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, kinds = torch.tensor(trigger.COUNTS), trigger.KINDS
    target = torch.stack([torch.eye(kinds, dtype=torch.float64), torch.zeros(kinds, kinds, dtype=torch.float64)])

    def weights(z: torch.Tensor) -> torch.Tensor:
        return counts * torch.relu(z)[:, None] / 63 if relu else torch.softmax(counts.log() + z[:, None], dim=-1)

    def loss(v: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((target - weights(z) @ v) ** 2).sum() / (2 * kinds)

    v, z = descend([np.zeros((kinds + 1, kinds)), np.full((2, kinds + 1), float(relu))], loss, 6.0)
    monkeypatch.setattr(trigger, "END", 6.0)
    weight, share = trigger.train(relu=relu)
    assert weight == pytest.approx(float(weights(z)[1, :, -1].mean()), rel=1e-3)
    assert share == pytest.approx(float(loss(v, z)) * 4 * kinds / float((target**2).sum()), rel=2e-3)


@pytest.mark.parametrize("residual", [False, True])
def test_embeddings_on_a_markov_chain(residual: bool) -> None:
    rng = np.random.default_rng(0)
    p, pi = (torch.tensor(x) for x in focus.chain(rng))
    start = focus.SIZE * rng.normal(size=(4, focus.TOKENS, focus.WIDTH))

    def loss(e: torch.Tensor, u: torch.Tensor, w_q: torch.Tensor, w_k: torch.Tensor) -> torch.Tensor:
        c = torch.softmax(pi.log() + (e @ w_q) @ (e @ w_k).mT, dim=1)
        log_alpha = torch.log_softmax((residual * e + c @ e) @ u.mT, dim=1)
        return -(pi[:, None] * p * log_alpha).sum()

    e, _, w_q, w_k = descend(list(start), loss, 5.0)
    logits, _ = focus.train(1, np.array([1.0, 5.0]), residual=residual)
    np.testing.assert_allclose(((e @ w_q) @ (e @ w_k).mT).numpy(), logits[-1, 0], rtol=0.02, atol=1e-6)
