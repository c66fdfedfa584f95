"""What it costs to represent a sink, and to represent attention to oneself.

Source (Lampert et al. 2026, as we read the abstract): sinks and diagonal patterns can both switch off the exchange
between tokens; representing a sink needs an alignment of the sink's embedding with all others, and costs less than a
diagonal, which is why pretrained transformers have sinks.

The cost is the Frobenius norm of the smallest W with logits x_iᵀ W x_j of margin 1: every token i prefers the sink to
all other tokens, or prefers itself (a quadratic program, solved exactly). Eight tokens and a sink, unit vectors in R¹⁶.
*Aligned*: normal vectors plus a common direction of the same mean length, as real embeddings have. *Tables*: orthogonal
vectors, as in our model. The measure is ln of the sink's cost over the diagonal's: cheaper by a twentieth or more. Each
seed draws the embeddings."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.separators import least_frobenius
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    survey_statement,
)

LAMPERT = Citation(
    "Lampert, López Amado, Mondelli and Súkeník 2026",
    "Sink vs. diagonal patterns as mechanisms for attention switch and oversmoothing prevention",
    "2605.08453", "abstract",
)  # fmt: skip
TOKENS, WIDTH = 8, 16
_TEXT = "a sink costs less to represent than a diagonal"
_SETTING = "smallest W of margin 1, 8 tokens and a sink, {}"
ALIGNED = survey_statement(
    "sink-cost", _TEXT, source=LAMPERT, setting=_SETTING.format("unit vectors in R¹⁶ with a common direction")
)
TABLES = survey_statement("sink-cost-tables", _TEXT, source=LAMPERT, setting=_SETTING.format("orthogonal embeddings"))


def embeddings(seed: int, *, common: float = 1.0) -> FloatArray:
    """Unit vectors, (tokens and sink, d); ``common`` is the length of the shared direction over that of the rest."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TOKENS + 1, WIDTH)) + common * rng.normal(size=WIDTH)
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def cost(x: FloatArray, *, sink: bool) -> float:
    """‖W‖_F of the smallest W by which every token but the last prefers the last, or itself, to all others."""
    preferred = [len(x) - 1] * (len(x) - 1) if sink else range(len(x) - 1)
    constraints = [
        np.outer(x[i], x[best] - x[j]) for i, best in enumerate(preferred) for j in range(len(x)) if j != best
    ]
    return float(np.linalg.norm(least_frobenius(np.array(constraints))))


def log_ratio(x: FloatArray) -> float:
    """ln of the sink's cost over the diagonal's."""
    return float(np.log(cost(x, sink=True) / cost(x, sink=False)))


def judge(statement: SurveyStatement, ratios: FloatArray | float) -> SurveyClaim:
    return statement.judge_values(
        ratios, predicted=-1.0, bound=-0.05, failure="it costs as much or more",
        quantity="ln of the least norm for a sink over that for a diagonal",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    aligned = np.array([log_ratio(embeddings(seed)) for seed in range(effort.seeds)])
    return [judge(ALIGNED, aligned), judge(TABLES, log_ratio(np.eye(TOKENS + 1)))]


COST = SurveyCheck((ALIGNED, TABLES), _check)
