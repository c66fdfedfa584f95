"""JoMA: attention integrates the value weights; with a nonlinear MLP it is first sparse, then dense again.

**Integral.** z = ½ Σ_k (v_k² − ‖v_k‖² b̄) + c. Our model without the norm is the source's with a linear layer: v_k is
column k of Y and b̄ the mean attention of the query, so that Σ_k v_k² is ‖Y_l‖² for token l, and from zero start

    z_l/η_Z = ½ (‖Y_l‖² − ‖Y‖² b̄_l)/η_Y

This is exact but for one step: Σ_n p_n c_nl (c_nᵀg_n) is replaced by b̄_l Σ_n p_n c_nᵀg_n with a constant b̄. So it
must hold as long as attention has moved little. b̄ is taken at the start, where the error is smaller than with its
present value (a test checks this). The measure is the relative error ‖z − its integral‖/‖z‖ at the end of the window,
at most a tenth as for every equation. A correlation would hide the failure; it is reported beside the error.

**Rebound.** With a nonlinear MLP the entropy of attention falls and then rebounds; with a linear one it only falls.
There are two settings. *Reduced*: the source's own dynamics, in which attention is integrated out and targets μ are
fixed, as we read it v̇ = (μ − v) ∘ e^{v²/2} (nonlinear) and v̇ = μ ∘ e^{v²/2} (linear), attention ∝ e^{v²/2}: ten
tokens with μ from 1 to 3. *Trained*: one layer in front of an MLP of width 4d, all trained with SGD on the
cross-entropy of Syn-Medium(1) (T = ∞, expectation over classes, η_Z ten times the rate of the MLP so that attention
moves at all), random initial weights.

    c_n ∝ P(·|n) e^{z},   logits = φ(c_n W_1 + b) W_2,   φ = ReLU or the identity

The measure is the rise of the entropy after its minimum as a share of its fall. A rebound exceeds a twentieth of the
fall; in the linear case it must be smaller. The reduced dynamics trains nothing, so that verdict is a *formula*."""

from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import solve_ivp

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
from scansnap.measure.entropy import entropy_of
from scansnap.theory import t_snap

JOMA = Citation(
    "Tian, Wang, Zhang, Chen and Du 2023",
    "JoMA: Demystifying Multilayer Transformers via JOint Dynamics of MLP and Attention", "2310.00535", "abstract",
)  # fmt: skip

# --- attention as an integral -----------------------------------------------------------------------------------

_TEXT = "attention logits are ½ Σ (v² − ‖v‖² b̄) + c of the value weights"


def _statement(name: str, ratio: int, end: str) -> SurveyStatement:
    return survey_statement(name, _TEXT, source=JOMA, setting=f"no norm, Syn-Medium(1), η_Y/η_Z = {ratio}, at {end} t₀")


EARLY = _statement("joma-integral", 50, "10")
LATE = _statement("joma-integral-late", 50, "1000")
EQUAL = _statement("joma-integral-equal-rates", 1, "10")


def errors(ratio: float, end: float, *, present: bool = False) -> tuple[float, float]:
    """Relative error of the integral, and its correlation with z, at ``end`` t₀; ``present`` takes b̄ of that time."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    snap = float(t_snap(eta_y=1.0, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    run = flow(classes, 1.0, 1 / ratio, [0.0, end * snap], norm="none", variables=("attention", "z", "y"))
    y, z = run.y.values[1], run.z.values[1, 0]
    b = classes.p_class @ run.attention.values[1 if present else 0]  # (M,)
    integral = 0.5 * ((y**2).sum(1) - (y**2).sum() * b) / ratio
    used = classes.p_context.sum(0) > 0
    z, integral = z[used], integral[used]
    return float(np.linalg.norm(integral - z) / np.linalg.norm(z)), float(np.corrcoef(integral, z)[0, 1])


def judge_integral(statement: SurveyStatement, error: float, correlation: float) -> SurveyClaim:
    return statement.judge_values(
        error, predicted=0.0, bound=0.1, failure=f"although the correlation is {correlation:.3f}",
        quantity=f"relative error of the integral (correlation {correlation:.3f})",
    )  # fmt: skip


def _check_integral(effort: SurveyEffort) -> list[SurveyClaim]:
    cases = ((EARLY, 50.0, 10.0), (LATE, 50.0, 1e3), (EQUAL, 1.0, 10.0))
    return [judge_integral(statement, *errors(ratio, end)) for statement, ratio, end in cases]


INTEGRAL = SurveyCheck((EARLY, LATE, EQUAL), _check_integral)

# --- the rebound of the entropy -----------------------------------------------------------------------------------

LEAST = 0.05  # of the fall: a smaller rise is no rebound
WIDTH = 4  # hidden units for each token

_SETTING = "no norm, one layer + {} MLP of width 4d trained by SGD on Syn-Medium(1), T = ∞"
REDUCED = survey_statement(
    "joma-rebound-reduced", "entropy falls, then rebounds, in the dynamics with attention integrated out",
    source=JOMA, setting="v̇ = (μ − v)∘exp(v²/2), ten targets from 1 to 3", kind="formula",
)  # fmt: skip
RELU = survey_statement(
    "joma-rebound", "with a nonlinear MLP the entropy of attention falls, then rebounds", source=JOMA,
    setting=_SETTING.format("ReLU"),
)  # fmt: skip
LINEAR = survey_statement(
    "joma-linear", "with a linear MLP the entropy of attention does not rebound", source=JOMA,
    setting=_SETTING.format("linear"),
)  # fmt: skip


def rebound(entropy: FloatArray) -> FloatArray:
    """(end − least)/(start − least) along the first axis; 0 where the entropy never fell."""
    fall, back = entropy[0] - entropy.min(0), entropy[-1] - entropy.min(0)
    return np.where(fall > 1e-6, back / np.maximum(fall, 1e-6), 0.0)


def reduced(nonlinear: bool) -> FloatArray:
    """Entropy along the reduced dynamics, (times,)."""
    mu = np.linspace(1.0, 3.0, 10)

    def rates(_: float, v: FloatArray) -> FloatArray:
        return np.asarray((mu - v if nonlinear else mu) * np.exp(np.minimum(v**2 / 2, 50.0)))

    # linear v diverges in finite time: stop where the largest entry passes 5, after attention is on one token
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
    classes = SequenceClasses.syn_medium(n_queries=1)
    p = classes.p_context[:, classes.p_context.sum(0) > 0]
    k, d = p.shape
    hidden = WIDTH * d
    copies = np.append(np.ones(k), classes.vocab_size - k)  # (K + 1,) outputs that each column stands for
    log_p, log_copies = torch.tensor(p).log(), torch.tensor(copies).log()
    labels = torch.tensor((1 - soft) * np.eye(k, k + 1) + soft * copies / copies.sum())

    def draw(seed: int, *shape: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5

    tables = [
        torch.stack([draw(2 * seed, d, hidden) for seed in range(seeds)]),
        torch.stack([draw(2 * seed + 1, hidden, k + 1) for seed in range(seeds)]),
        torch.zeros(seeds, 1, hidden, dtype=torch.float64),
        torch.zeros(seeds, 1, d, dtype=torch.float64),
    ]
    record, entropies = set(np.unique(np.geomspace(1, steps, 60).astype(int)).tolist()) | {0}, []
    for step in range(steps + 1):
        w_1, w_2, bias, z = tables = [table.detach().requires_grad_() for table in tables]
        c = torch.softmax(log_p + z, dim=2)  # (R, K, S)
        u = c @ w_1 + bias
        logits = (torch.relu(u) if nonlinear else u) @ w_2 + log_copies
        loss = -(labels * torch.log_softmax(logits, dim=2)).sum(2).mean(1)  # (R,)
        if step in record:
            entropies.append(entropy_of(c.detach().numpy()).mean(1))
        gradients = torch.autograd.grad(loss.sum(), tables)
        rates = (rate, rate, rate, rate_z)
        tables = [table.detach() - eta * g for table, g, eta in zip(tables, gradients, rates, strict=True)]
    return np.array(entropies)


def judge_rebound(statement: SurveyStatement, values: FloatArray | float) -> SurveyClaim:
    """A rebound is predicted, except for the linear MLP."""
    no_rebound = statement is LINEAR
    return statement.judge_values(
        values, predicted=0.0 if no_rebound else 1.0, bound=LEAST,
        quantity="rise of the entropy after its minimum, as a share of its fall",
        failure="it rebounds" if no_rebound else "it only falls",
    )  # fmt: skip


def _check_rebound(effort: SurveyEffort) -> list[SurveyClaim]:
    steps = 600 if effort.quick else 2000
    return [
        judge_rebound(REDUCED, float(rebound(reduced(True)))),
        judge_rebound(RELU, rebound(trained(True, effort.seeds, steps))),
        judge_rebound(LINEAR, rebound(trained(False, effort.seeds, steps))),
    ]


REBOUND = SurveyCheck((REDUCED, RELU, LINEAR), _check_rebound)
