"""Does attention first focus on frequent tokens, and is this focus diluted later?

Source (Chen et al. 2026, as we read the abstract): in one layer on Markov data, embedding and projection first
condense to rank one while attention is frozen; attention then focuses on the tokens of high frequency; embeddings
follow and dilute this focus; then the cycle begins anew. The scan of the paper seems to say the opposite for the most
frequent tokens of all, the common ones: they lose attention. Both are tested.

**Tables.** The paper's model, Syn-Medium(3), l2 norm, equal rates, flow. The measure is Spearman's correlation of
Δz_l with the frequency of l in all contexts of the query, over the tokens in these contexts, at 10% loss, mean over
queries: at least 0.8, as for the scan order, which is the same correlation over the *distinct* tokens of one class.

**Embeddings.** The smallest model with the source's parts, at T = ∞ on a Markov chain of 6 tokens: contexts then have
the stationary frequencies π, and

    h_m = E_m + Σ_l c_ml E_l,   c_ml ∝ π_l exp(E_m W_Q W_Kᵀ E_lᵀ),   logits = h U,   targets P(·|m)

The chain draws the next token from 1/k frequencies with probability ½, else from a random permutation's neighbour, so
that there is something to learn beyond frequencies. d = 6, normal initial weights of size 0.05, exact flow of the
expected loss to t = 3000. *Focus*: when the mean KL divergence of c from π first exceeds 0.01 nats, Spearman's
correlation of the mean logit of a key and π: at least 0.8. *Dilution*: F is the mean of ln π over attended tokens
less that over π (F > 0 is attention to frequent tokens). The measure is the share of the largest F that is gone at
the end: at least 0.2. Each seed draws the chain and the start."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, softmax
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
TOKENS, WIDTH, SIZE, END = 6, 6, 0.05, 3000.0

_TEXT = "attention first turns to the most frequent tokens"
_MODEL = "one layer with embeddings, residual, W_Q and W_K, Markov chain of 6 tokens, T = ∞, flow from small weights"
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
        each.append(spearmanr(run.z.values[at, row, ids], frequency[ids]).statistic)
    return float(np.mean(each))


def chain(rng: np.random.Generator, *, uniform: bool = False) -> tuple[FloatArray, FloatArray]:
    """Transition matrix and stationary frequencies; all tokens equally frequent with ``uniform``."""
    base = np.ones(TOKENS) if uniform else 1 / np.arange(1, TOKENS + 1.0)
    neighbour = np.eye(TOKENS)[np.roll(rng.permutation(TOKENS), 1)]
    p = 0.5 * base / base.sum() + 0.5 * neighbour
    pi = np.linalg.matrix_power(p, 2000)[0]
    return p, pi / pi.sum()


def train(seed: int, times: FloatArray, *, uniform: bool = False, fixed_embeddings: bool = False) -> FloatArray:
    """Attention logits along the flow, (times, queries, keys); ``fixed_embeddings`` from the moment of focus."""
    rng = np.random.default_rng(seed)
    p, pi = chain(rng, uniform=uniform)
    start = SIZE * rng.normal(size=(4, TOKENS, WIDTH))  # E, Uᵀ, W_Q, W_K (WIDTH = TOKENS)

    def gradient(state: FloatArray) -> FloatArray:
        e, u, w_q, w_k = state.reshape(4, TOKENS, WIDTH)
        c = softmax(np.log(pi) + (e @ w_q) @ (e @ w_k).T, axis=1)
        h = e + c @ e
        g = pi[:, None] * (p - np.exp(log_softmax(h @ u.T, axis=1)))
        dh = g @ u
        dc = dh @ e.T
        ds = c * (dc - (c * dc).sum(1, keepdims=True))
        a, da = w_q @ w_k.T, e.T @ ds @ e
        de = dh + c.T @ dh + ds @ e @ a.T + ds.T @ e @ a
        return np.stack([de, g.T @ h, da @ w_k, da.T @ w_q])

    def run(state: FloatArray, at: FloatArray, moving: FloatArray) -> FloatArray:
        path = integrate_in_log_time(
            lambda x: (moving * gradient(x)).ravel(), state.ravel(), at, rtol=1e-6, atol=1e-9, method="RK45"
        )
        return path.reshape(-1, 4, TOKENS, WIDTH)

    everything = np.ones((4, 1, 1))
    path = run(start, times, everything)
    if fixed_embeddings:
        moved = np.flatnonzero(divergence(_logits(path), pi) > MOVED)
        first = path[moved[0]] if len(moved) else start
        path = run(first, times, everything * np.array([0, 0, 1, 1])[:, None, None])
    return _logits(path)


def _logits(path: FloatArray) -> FloatArray:
    e, w_q, w_k = path[:, 0], path[:, 2], path[:, 3]
    return np.asarray((e @ w_q) @ (e @ w_k).transpose(0, 2, 1))


def divergence(logits: FloatArray, pi: FloatArray) -> FloatArray:
    """The mean over queries of KL(c, π), (times,)."""
    log_c = log_softmax(np.log(pi) + logits, axis=-1)
    return np.asarray((np.exp(log_c) * (log_c - np.log(pi))).sum(-1) @ pi)


def focus(seed: int, **options: bool) -> tuple[float, float]:
    """The correlation when attention first moves (NaN if it never does), and the share of the focus gone at the end."""
    pi = chain(np.random.default_rng(seed), uniform=options.get("uniform", False))[1]
    logits = train(seed, np.geomspace(1.0, END, 400), **options)
    moved = np.flatnonzero(divergence(logits, pi) > MOVED)
    if not len(moved):
        return float("nan"), float("nan")
    order = -np.arange(TOKENS) if options.get("uniform") else pi  # equal frequencies have no order: that of the ids
    mean = pi @ logits[moved[0]]
    c = softmax(np.log(pi) + logits, axis=-1)
    towards = (c @ np.log(pi)) @ pi - pi @ np.log(pi)
    gone = (towards.max() - towards[-1]) / towards.max() if towards.max() > 0 else 0.0
    return float(spearmanr(mean, order).statistic), float(gone)


def judge_focus(statement: SurveyStatement, correlation: FloatArray | float) -> SurveyClaim:
    return statement.judge_values(
        correlation, predicted=1.0, bound=LEAST, failure="attention turns elsewhere",
        quantity="Spearman's correlation of attention logits and frequency",
    )  # fmt: skip


def judge_dilution(gone: FloatArray) -> SurveyClaim:
    return DILUTION.judge_values(
        gone, predicted=1.0, bound=LEAST_DILUTION, failure="the focus stays",
        quantity="share of the largest focus that is gone at the end",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    each = np.array([focus(seed) for seed in range(effort.seeds)])
    return [judge_focus(TABLES, table_correlation()), judge_focus(EMBEDDINGS, each[:, 0]), judge_dilution(each[:, 1])]


FOCUS = SurveyCheck((TABLES, EMBEDDINGS, DILUTION), _check)
