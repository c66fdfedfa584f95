"""Does attention first focus on frequent tokens, and is this focus diluted later?

Source (Chen et al. 2026, as we read the abstract): in one layer on Markov data, embedding and projection first
condense to rank one while attention is frozen; attention then focuses on the tokens of high frequency; embeddings
follow and dilute this focus; then the cycle begins again. The scan of the paper seems to say the opposite for the most
frequent tokens of all, the common ones: they lose attention. Both are tested.

**Tables.** The paper's model, Syn-Medium(3), l2 norm, equal rates, flow. The measure is Spearman's correlation of
Δz_l with the frequency of l in all contexts of the query, over the tokens in these contexts, at 10% loss, mean over
queries: at least 0.8, as for the scan order, which is the same correlation over the *distinct* tokens of one class.

**Embeddings.** The smallest model with the source's parts, at T = ∞ on a Markov chain of 6 tokens: contexts then have
the stationary frequencies π, and

    h_m = Σ_l c_ml E_l,   c_ml ∝ π_l exp(E_m W_Q W_Kᵀ E_lᵀ),   logits = h U,   targets P(·|m)

There is no residual connection, since with one (h_m + E_m) the embeddings learn the chain and attention stays where
it is, which decides nothing (a test shows it). The chain draws the next token from 1/k frequencies with probability
½, else from a random permutation's neighbour, so that there is something to learn beyond frequencies. d = 6, normal
initial weights of size 0.05, exact flow of the expected loss to t = 3000 (1000 if quick, which is early for the
dilution). *Focus*: when the mean KL divergence of c from π first exceeds 0.01 nats, Spearman's correlation of the mean
logit of a key and π: at least 0.8.
*Dilution*: F is the mean of ln π over attended tokens less that over π (F > 0 is attention to frequent tokens). The
measure is the share of the largest F that is gone at the end: at least 0.2. Each seed draws the chain and the start."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax
from scipy.stats import spearmanr

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    integrate_in_log_time,
    survey_statement,
)
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow

CHEN = Citation(
    "Chen, Lin, Xu and Luo 2026", "Focus and Dilution: The Multi-stage Learning Process of Attention", "2605.01199",
    "abstract",
)  # fmt: skip
LEAST, LEAST_DILUTION, MOVED = 0.8, 0.2, 0.01
TOKENS, WIDTH, SIZE = 6, 6, 0.05
END, QUICK_END = 3000.0, 1000.0

_TEXT = "attention first turns to the most frequent tokens"
_MODEL = "one layer with embeddings, W_Q and W_K, no residual, Markov chain of 6 tokens, T = ∞, flow from small weights"
TABLES = survey_statement(
    "focus-tables", _TEXT, source=CHEN, setting="l2 norm, Syn-Medium(3), equal rates, flow, at 10% loss"
)
EMBEDDINGS = survey_statement("focus-embeddings", _TEXT, source=CHEN, setting=_MODEL)
DILUTION = survey_statement(
    "focus-dilution", "the focus on frequent tokens is diluted later", source=CHEN, setting=f"{_MODEL} to 3000"
)


def table_correlation(*, distinct: bool = False) -> float:
    """Spearman's correlation of Δz and frequency at 10% loss, over all tokens or the distinct ones of class 0."""
    classes = SequenceClasses.syn_medium(n_queries=3)
    run = flow(classes, 1.0, 1.0, np.append(0.0, np.geomspace(0.1, 1e4, 200)), variables=("z", "loss"))
    at = int(np.flatnonzero(run.loss.values <= 0.1 * run.loss.values[0])[0])
    each = []
    for row, query in enumerate(classes.queries):
        own = classes.query == query
        frequency = classes.p_class[own] @ classes.p_context[own]
        ids = classes.distinct(int(np.flatnonzero(own)[0])) if distinct else np.flatnonzero(frequency)
        z = np.round(run.z.values[at, row, ids], 9)  # equal tokens differ by the integrator's rounding
        each.append(spearmanr(z, frequency[ids]).statistic)
    return float(np.mean(each))


def chain(rng: np.random.Generator, *, uniform: bool = False, structure: float = 0.5) -> tuple[FloatArray, FloatArray]:
    """Transition matrix and stationary frequencies; all tokens equally frequent with ``uniform``.

    ``structure`` is the probability that the next token is the neighbour of the last.
    """
    base = np.ones(TOKENS) if uniform else 1 / np.arange(1, TOKENS + 1.0)
    neighbour = np.eye(TOKENS)[np.roll(rng.permutation(TOKENS), 1)]
    p = (1 - structure) * base / base.sum() + structure * neighbour
    pi = np.linalg.matrix_power(p, 2000)[0]
    return p, pi / pi.sum()


def train(
    seeds: int,
    times: FloatArray,
    *,
    uniform: bool = False,
    structure: float = 0.5,
    size: float = SIZE,
    residual: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Attention logits of all seeds, (times, seeds, queries, keys), and π, (seeds, tokens)."""
    draws = [np.random.default_rng(seed) for seed in range(seeds)]
    p, pi = (
        np.array(part)
        for part in zip(*(chain(rng, uniform=uniform, structure=structure) for rng in draws), strict=True)
    )
    start = size * np.array([rng.normal(size=(4, TOKENS, WIDTH)) for rng in draws])  # E, Uᵀ, W_Q, W_K
    weight, log_pi = pi[:, :, None], np.log(pi)[:, None]

    def gradient(state: FloatArray) -> FloatArray:
        e, u, w_q, w_k = state.reshape(seeds, 4, TOKENS, WIDTH).transpose(1, 0, 2, 3)
        c = _softmax(log_pi + (e @ w_q) @ (e @ w_k).mT)
        h = residual * e + c @ e
        g = weight * (p - _softmax(h @ u.mT))
        dh = g @ u
        dc = dh @ e.mT
        ds = c * (dc - (c * dc).sum(-1, keepdims=True))
        a, da = w_q @ w_k.mT, e.mT @ ds @ e
        de = residual * dh + c.mT @ dh + ds @ e @ a.mT + ds.mT @ e @ a
        return np.stack([de, g.mT @ h, da @ w_k, da.mT @ w_q], axis=1)

    path = integrate_in_log_time(
        lambda x: gradient(x).ravel(), start.ravel(), times, rtol=1e-6, atol=1e-9, method="RK45"
    ).reshape(-1, seeds, 4, TOKENS, WIDTH)
    e, w_q, w_k = (path[:, :, i] for i in (0, 2, 3))
    return (e @ w_q) @ (e @ w_k).mT, pi


def _softmax(logits: FloatArray) -> FloatArray:
    """As SciPy's, in a fifth of the time for a few entries."""
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def first_above(values: FloatArray, bound: float) -> FloatArray:
    """The first index along the first axis at which each column is above the bound; −1 for never."""
    above = values > bound
    return np.where(above.any(0), above.argmax(0), -1)


def divergence(logits: FloatArray, pi: FloatArray) -> FloatArray:
    """The mean over queries of KL(c, π), (times, seeds)."""
    log_c = log_softmax(np.log(pi)[:, None] + logits, axis=-1)
    return np.einsum("tsml,sm->ts", np.exp(log_c) * (log_c - np.log(pi)[:, None]), pi)


def focus(seeds: int, end: float = END, **options: float) -> tuple[FloatArray, FloatArray]:
    """The correlation when attention first moves, and the share of the focus gone at the end; NaN if it never moves."""
    logits, pi = train(seeds, np.geomspace(1.0, end, 400), **options)  # type: ignore[arg-type]
    moved = first_above(divergence(logits, pi), MOVED)
    # equal frequencies have no order: that of the ids
    order = np.tile(-np.arange(TOKENS), (seeds, 1)) if options.get("uniform") else pi
    mean = np.einsum("sml,sm->sl", logits[moved, np.arange(seeds)], pi)
    correlation = np.array([spearmanr(*pair).statistic for pair in zip(mean, order, strict=True)])
    return np.where(moved < 0, np.nan, correlation), np.where(moved < 0, np.nan, dilution(logits, pi))


def dilution(logits: FloatArray, pi: FloatArray) -> FloatArray:
    """The share of the largest F that is gone at the end, of each seed."""
    c, log_pi = _softmax(np.log(pi)[:, None] + logits), np.log(pi)
    towards = np.einsum("tsml,sl,sm->ts", c, log_pi, pi) - (pi * log_pi).sum(1)
    most = towards.max(0)  # at most 0: never towards frequent tokens, so nothing is diluted
    return np.where(most > 0, (most - towards[-1]) / np.maximum(most, 1e-12), 0.0)


def judge_focus(statement: SurveyStatement, correlation: FloatArray | float) -> SurveyClaim:
    if np.isnan(correlation).any():
        return statement.judge_not_applicable("attention does not move")
    return statement.judge_values(
        correlation, predicted=1.0, bound=LEAST, failure="attention turns elsewhere",
        quantity="Spearman's correlation of attention logits and frequency",
    )  # fmt: skip


def judge_dilution(gone: FloatArray) -> SurveyClaim:
    if np.isnan(gone).any():
        return DILUTION.judge_not_applicable("attention does not move")
    return DILUTION.judge_values(
        gone, predicted=1.0, bound=LEAST_DILUTION, failure="the focus stays",
        quantity="share of the largest focus that is gone at the end",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    correlation, gone = focus(effort.seeds, QUICK_END if effort.quick else END)
    return [judge_focus(TABLES, table_correlation()), judge_focus(EMBEDDINGS, correlation), judge_dilution(gone)]


FOCUS = SurveyCheck((TABLES, EMBEDDINGS, DILUTION), _check)
