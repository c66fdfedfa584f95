"""A task that forces a sink on softmax attention, and not on ReLU attention.

Source (Ran-Milo 2026, as we read the abstract): if a trigger token is there, the output must be the mean of all
preceding token representations, else 0. Softmax attention needs a sink for this; ReLU attention, whose weights need not
sum to 1, does not.

Setting: the smallest such task. A context is a first token and 62 times one of three tokens; the query is the trigger
or another token, equally often. Representations of the tokens are unit vectors e_k, so the target is e_k or 0; squared
error. Values V of all tokens and logits Z of both queries are trained,

    output = c V,   c = softmax(ln counts + Z)   or   c = counts · ReLU(Z)/63

from V = 0 and uniform weights (Z = 0, for ReLU Z = 1), exact flow to 10⁶. The measure is the weight of the first token
for the query that is no trigger: more than 0.3 is a sink, as for the other sinks of the survey. Control: both queries
are triggers."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.sinks import THRESHOLD
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    integrate_in_log_time,
    survey_statement,
)
from scansnap.measure.entropy import attention_of

RAN_MILO = Citation(
    "Ran-Milo 2026",
    "Attention Sinks Are Provably Necessary in Softmax Transformers: Evidence from Trigger-Conditional Tasks",
    "2603.11487", "abstract",
)  # fmt: skip
KINDS, LENGTH, END = 3, 63.0, 1e6
COUNTS = np.hstack([62.0 * np.eye(KINDS), np.ones((KINDS, 1))])  # (contexts, tokens); the last is the first token

_SETTING = "{} attention, T = 64, read on a trigger and else output 0, squared error, flow to 10⁶"
SOFTMAX = survey_statement(
    "trigger-softmax", "reading on a trigger alone forces a sink", source=RAN_MILO, setting=_SETTING.format("softmax")
)
RELU = survey_statement(
    "trigger-relu", "ReLU attention reads on a trigger alone without a sink", source=RAN_MILO,
    setting=_SETTING.format("ReLU"),
)  # fmt: skip


def train(*, relu: bool, always: bool = False) -> tuple[float, float]:
    """The weight of the first token for the query that is no trigger, and the loss over that at the start."""
    target = np.stack([np.eye(KINDS), np.eye(KINDS) * always])  # (query, context, output)
    tokens = KINDS + 1

    def weights(z: FloatArray) -> FloatArray:
        if relu:
            return COUNTS * np.maximum(z, 0)[:, None] / LENGTH
        return attention_of(COUNTS, z[:, None])  # (query, context, token)

    def tables(state: FloatArray) -> tuple[FloatArray, FloatArray]:
        return state[: tokens * KINDS].reshape(tokens, KINDS), state[tokens * KINDS :].reshape(2, tokens)

    def rates(state: FloatArray) -> FloatArray:
        v, z = tables(state)
        c = weights(z)
        r = (target - c @ v) / (2 * KINDS)
        g = r @ v.T
        dz = g * COUNTS * (z > 0)[:, None] / LENGTH if relu else c * (g - (c * g).sum(-1, keepdims=True))
        return np.concatenate([np.einsum("qkl,qkj->lj", c, r).ravel(), dz.sum(1).ravel()])

    start = np.concatenate([np.zeros(tokens * KINDS), np.full(2 * tokens, float(relu))])
    v, z = tables(integrate_in_log_time(rates, start, np.array([END]))[-1])
    c = weights(z)
    return float(c[1, :, -1].mean()), float(((target - c @ v) ** 2).sum() / (target**2).sum())


def judge(statement: SurveyStatement, weight: float, loss: float) -> SurveyClaim:
    forms = statement is SOFTMAX
    return statement.judge_values(
        weight, predicted=1.0 if forms else 0.0, bound=THRESHOLD, failure="there is none" if forms else "there is one",
        quantity=f"weight of the first token without a trigger (loss at the end {loss:.1g} of its start)",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge(SOFTMAX, *train(relu=False)), judge(RELU, *train(relu=True))]


TRIGGER = SurveyCheck((SOFTMAX, RELU), _check)
