"""With a nonlinear MLP the entropy of attention falls and then rebounds; with a linear one it only falls.

Two settings. *Reduced*: the source's own dynamics, in which attention is integrated out and targets μ are given, as we
read it v̇ = (μ − v) ∘ e^{v²/2} (nonlinear) and v̇ = μ ∘ e^{v²/2} (linear), attention ∝ e^{v²/2}: ten tokens with μ from
1 to 3. *Trained*: one layer in front of an MLP of width 4d, all of it trained with SGD on the cross-entropy of
Syn-Medium(1) (T = ∞, expectation over classes, η_Z ten times the rate of the MLP so that attention moves at all),
random initial weights.

    c_n ∝ P(·|n) e^{z},   logits = φ(c_n W_1 + b) W_2,   φ = ReLU or the identity

Judged by the rebound, the rise of the entropy after its minimum as a share of its fall. A rebound is one beyond a
twentieth of the fall; in the linear case there must be less. In the reduced dynamics nothing is trained, so that
verdict is a *formula*.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import solve_ivp

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Surveyed, surveyed
from scansnap.claims.survey.statements.joma import JOMA
from scansnap.claims.survey.yz import Data
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import entropy_of

LEAST = 0.05  # of the fall: below it nothing has come back
WIDTH = 4  # hidden units for each token

_SETTING = "no norm, one layer + {} MLP of width 4d trained by SGD on Syn-Medium(1), T = ∞"
REDUCED = surveyed(
    "joma-rebound-reduced", "entropy falls, then rebounds, in the dynamics with attention integrated out",
    source=JOMA, setting="v̇ = (μ − v)∘exp(v²/2), ten targets from 1 to 3", kind="formula",
)  # fmt: skip
RELU = surveyed(
    "joma-rebound", "with a nonlinear MLP the entropy of attention falls, then rebounds", source=JOMA,
    setting=_SETTING.format("ReLU"),
)  # fmt: skip
LINEAR = surveyed(
    "joma-linear", "with a linear MLP the entropy of attention does not rebound", source=JOMA,
    setting=_SETTING.format("linear"),
)  # fmt: skip
STATEMENTS = (REDUCED, RELU, LINEAR)


def rebound(entropy: FloatArray) -> FloatArray:
    """(end − least)/(start − least) along the first axis; 0 where the entropy never fell."""
    fall, back = entropy[0] - entropy.min(0), entropy[-1] - entropy.min(0)
    return np.where(fall > 1e-6, back / np.maximum(fall, 1e-6), 0.0)


def reduced(nonlinear: bool) -> FloatArray:
    """Entropy along the reduced dynamics, (times,)."""
    mu = np.linspace(1.0, 3.0, 10)

    def rates(_: float, v: FloatArray) -> FloatArray:
        return np.asarray((mu - v if nonlinear else mu) * np.exp(np.minimum(v**2 / 2, 50.0)))

    # linear v reaches infinity in finite time: stop where the largest passes 5, attention on one token long before
    def far(_: float, v: FloatArray) -> float:
        return float(v.max() - 5.0)

    far.terminal = True  # type: ignore[attr-defined]
    t = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 400)])
    run = solve_ivp(rates, (0.0, t[-1]), np.zeros(10), t_eval=t, events=far, method="LSODA", rtol=1e-8, atol=1e-10)
    weight = np.exp(run.y.T**2 / 2)
    return np.asarray(entropy_of(weight / weight.sum(1, keepdims=True)))


def trained(
    nonlinear: bool, seeds: int, steps: int, *, rate: float = 0.5, rate_z: float = 5.0, soft: float = 0.0
) -> FloatArray:
    """Mean entropy of attention at some 60 steps, (times, seeds); all seeds at once.

    With ``soft`` labels that share of the next tokens is drawn from all M, so that logits have a target to reach.
    """
    data = Data.of(SequenceClasses.syn_medium(n_queries=1))
    k, d = data.p_context.shape
    hidden = WIDTH * d
    log_p, log_copies = torch.log(torch.tensor(data.p_context)), torch.log(torch.tensor(data.copies))
    labels = torch.tensor((1 - soft) * data.labels + soft * data.copies / data.copies.sum())

    def drawn(seed: int, *shape: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5

    tables = [
        torch.stack([drawn(2 * seed, d, hidden) for seed in range(seeds)]),
        torch.stack([drawn(2 * seed + 1, hidden, k + 1) for seed in range(seeds)]),
        torch.zeros(seeds, 1, hidden, dtype=torch.float64),
        torch.zeros(seeds, 1, d, dtype=torch.float64),
    ]
    record, found = set(np.unique(np.geomspace(1, steps, 60).astype(int)).tolist()) | {0}, []
    for step in range(steps + 1):
        w_1, w_2, bias, z = tables = [table.detach().requires_grad_() for table in tables]
        c = torch.softmax(log_p + z, dim=2)  # (R, K, S)
        u = c @ w_1 + bias
        logits = (torch.relu(u) if nonlinear else u) @ w_2 + log_copies
        loss = -(labels * torch.log_softmax(logits, dim=2)).sum(2).mean(1)  # (R,)
        if step in record:
            found.append(entropy_of(c.detach().numpy()).mean(1))
        gradients = torch.autograd.grad(loss.sum(), tables)
        rates = (rate, rate, rate, rate_z)
        tables = [table.detach() - eta * g for table, g, eta in zip(tables, gradients, rates, strict=True)]
    return np.array(found)


def judge(statement: Surveyed, values: FloatArray | float) -> Finding:
    """A rebound is predicted, or none."""
    none = statement is LINEAR
    return statement.found(
        values, predicted=0.0 if none else 1.0, bound=LEAST,
        quantity="rise of the entropy after its minimum, as a share of its fall",
        where="it rebounds" if none else "it only falls",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    steps = 600 if sizes.quick else 2000
    return [
        judge(REDUCED, float(rebound(reduced(True)))),
        judge(RELU, rebound(trained(True, sizes.seeds, steps))),
        judge(LINEAR, rebound(trained(False, sizes.seeds, steps))),
    ]
