"""Query and key weights from a small start: static at first, then of rank one.

Source (Chen and Luo 2025, as we read the abstract and a summary): with small initial weights, query and key are static
while the other weights condense; in a second stage they move, and the normalised matrices tend to rank one (if the
matrix that drives them has a unique largest singular value).

Setting: our model with separate factors, Z = W_Q W_Kᵀ, and a decoder Y from 0; no norm; three queries with two classes
each, of probabilities ½, 0.3 and 0.2 together, one distinct token per class, and one common token, of all queries or of
each its own; normal initial factors of size 0.001, equal rates, exact flow to 10⁸. Each seed draws the factors.

*Static*: ‖Z − Z(0)‖/‖Z(0)‖ when the loss has fallen to half: at most a tenth. *Rank*: the stable rank ‖Z‖_F²/‖Z‖₂² at
the end: 1, at most 1.1 (three queries: at most 3). Control: equally frequent queries that share no token, so that no
singular value is the largest."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.separators import stable_rank
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
from scansnap.measure.entropy import attention_of

LUO = Citation(
    "Chen and Luo 2025", "From Condensation to Rank Collapse: A Two-Stage Analysis of Transformer Training Dynamics",
    "2510.06954", "abstract",
)  # fmt: skip
WEIGHTS, SIZE = (0.5, 0.3, 0.2), 1e-3
TIMES = np.geomspace(0.1, 1e8, 400)

_SETTING = "no norm, Z = W_Q W_Kᵀ from 0.001, three unequal queries{}, Y from zero, equal rates, flow to 10⁸"
STATIC = survey_statement(
    "collapse-static",
    "query and key weights are static while the other weights learn",
    source=LUO,
    setting=_SETTING.format(" with one common token"),
)
_RANK = "query and key weights then tend to rank one"
RANK = survey_statement("collapse-rank", _RANK, source=LUO, setting=_SETTING.format(" with one common token"))
RANK_OWN = survey_statement(
    "collapse-rank-own", _RANK, source=LUO, setting=_SETTING.format(" with a common token each")
)


def factored_flow(
    seed: int, weights: tuple[float, ...] = WEIGHTS, *, own: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Loss and Z = W_Q W_Kᵀ along the flow; with ``own`` every query has a common token of its own."""
    plain = SequenceClasses.synthetic(
        n_queries=3, next_per_query=2, common=0 if own else 1, common_per_query=1 if own else 0, distinct=1
    )
    p = plain.p_context[:, plain.p_context.sum(0) > 0]  # (K, S)
    k, s = p.shape
    p_class, query = np.repeat(weights, 2) / 2, np.repeat(np.arange(3), 2)
    rng = np.random.default_rng(seed)
    start = np.concatenate([np.zeros(s * k), SIZE * rng.normal(size=9), SIZE * rng.normal(size=3 * s)])

    def tables(state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        y, w_q, w_k = np.split(state, [s * k, s * k + 9])
        return y.reshape(s, k), w_q.reshape(3, 3), w_k.reshape(s, 3)

    def log_alpha(y: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        c = attention_of(p, z[query])
        return c, log_softmax(c @ y, axis=1)

    def rates(state: FloatArray) -> FloatArray:
        y, w_q, w_k = tables(state)
        c, log_a = log_alpha(y, w_q @ w_k.T)
        r = p_class[:, None] * (np.eye(k) - np.exp(log_a))
        g = r @ y.T
        dz = np.zeros((3, s))
        np.add.at(dz, query, c * (g - (c * g).sum(1, keepdims=True)))
        return np.concatenate([(c.T @ r).ravel(), (dz @ w_k).ravel(), (dz.T @ w_q).ravel()])

    loss, z = [], []
    for state in integrate_in_log_time(rates, start, np.append(1e-2, TIMES), rtol=1e-7, atol=1e-10):
        y, w_q, w_k = tables(state)
        z.append(w_q @ w_k.T)
        loss.append(-p_class @ log_alpha(y, z[-1])[1].diagonal())
    return np.array(loss), np.array(z)


def measures(
    seed: int, weights: tuple[float, ...] = WEIGHTS, *, own: bool = False, share: float = 0.5
) -> tuple[float, float]:
    """The relative change of Z at this share of the loss, and its stable rank at the end."""
    loss, z = factored_flow(seed, weights, own=own)
    at = int(np.flatnonzero(loss <= share * loss[0])[0])
    return float(np.linalg.norm(z[at] - z[0]) / np.linalg.norm(z[0])), stable_rank(z[-1])


def judge_static(change: FloatArray) -> SurveyClaim:
    return STATIC.judge_values(
        change, predicted=0.0, bound=0.1, quantity="‖Z − Z(0)‖/‖Z(0)‖ at half of the loss", failure="they have moved"
    )


def judge_rank(statement: SurveyStatement, rank: FloatArray) -> SurveyClaim:
    return statement.judge_values(
        rank, predicted=1.0, bound=1.1, quantity="stable rank of W_Q W_Kᵀ at the end", failure="the rank is higher"
    )


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    each = np.array([measures(seed) for seed in range(effort.seeds)])
    own = np.array([measures(seed, own=True)[1] for seed in range(effort.seeds)])
    return [judge_static(each[:, 0]), judge_rank(RANK, each[:, 1]), judge_rank(RANK_OWN, own)]


COLLAPSE = SurveyCheck((STATIC, RANK, RANK_OWN), _check)
