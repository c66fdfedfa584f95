"""Soft labels: logit gaps inside the support of the next token go to its log-odds, those to the outside to infinity.

Source: for linear models with fixed context embeddings, gradient descent makes the differences of in-support logits
equal to the log-odds, while the rest diverges in a max-margin direction. Setting: four contexts of one query, three
common and four distinct tokens each, next tokens among six outputs with probabilities ½, ⅓ and ⅙ on three of them;
the paper's l2 norm, attention frozen (their case) and moving with equal rates, flow to 10⁶. Judged inside by the
largest distance of a gap from its log-odds (0, up to a tenth of ln 3, the largest); outside by the growth of the
least gap to an output without probability, d gap/d ln t: 1, since the gap closes its own gradient (within a tenth).
"""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey import yz
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.classes import SequenceClasses

THRAMPOULIDIS = Source(
    "Thrampoulidis 2024",
    "Implicit Optimization Bias of Next-token Prediction in Linear Models",
    "2402.18551",
    "abstract",
)
_SETTING = "l2 norm, four contexts with soft labels on 3 of 6 outputs, {} attention, flow to 10⁶"
_IN = "logit gaps inside the support go to the log-odds"
_OUT = "logit gaps to outputs outside the support grow like ln t"

FROZEN, MOVING = (surveyed(f"log-odds-{how}", _IN, source=THRAMPOULIDIS, setting=_SETTING.format(how))
                  for how in ("frozen", "moving"))  # fmt: skip
OUT_FROZEN, OUT_MOVING = (surveyed(f"outside-support-{how}", _OUT, source=THRAMPOULIDIS, setting=_SETTING.format(how))
                          for how in ("frozen", "moving"))  # fmt: skip
STATEMENTS = (FROZEN, OUT_FROZEN, MOVING, OUT_MOVING)

T = np.array([1e4, 1e6])
ODDS = np.array([[3.0, 2, 1, 0, 0, 0], [0, 3, 2, 1, 0, 0], [0, 0, 0, 3, 2, 1], [2, 0, 0, 0, 1, 3]]) / 6


def data(*, same_contexts: bool = False) -> yz.Data:
    """The contexts; all alike in the control, where no model can tell their labels apart."""
    p = SequenceClasses.synthetic(n_queries=1, next_per_query=4, common=3, distinct=4).p_context
    p = p[:, p.sum(0) > 0]
    if same_contexts:
        p = np.tile(p.mean(0), (4, 1))
    return yz.Data(p, np.zeros(4, dtype=np.int64), ODDS, np.full(4, 0.25), np.ones(6))


def logits(contexts: yz.Data, eta_z: float) -> FloatArray:
    """At the times T, (2, 4, 6)."""
    return yz.flow(contexts, T, eta_y=1.0, eta_z=eta_z).logits


def judge_inside(statement: Surveyed, found: FloatArray) -> Finding:
    inside = ODDS > 0
    distance = found[-1] - np.log(np.where(inside, ODDS, 1.0))
    far = max(float(np.ptp(row[there])) for row, there in zip(distance, inside, strict=True))
    return statement.found(
        far, predicted=0.0, bound=0.1 * np.log(3), quantity="largest distance of a gap from its log-odds",
        where="the gaps are others",
    )  # fmt: skip


def judge_outside(statement: Surveyed, found: FloatArray) -> Finding:
    least = np.where(ODDS > 0, found, np.inf).min(2) - np.where(ODDS > 0, -np.inf, found).max(2)  # (2, 4)
    growth = (least[1] - least[0]) / np.log(T[1] / T[0])
    return statement.found(
        float(growth[np.abs(growth - 1).argmax()]), predicted=1.0, bound=0.9, both_sides=True,
        quantity="d gap/d ln t of the least gap to the outside, of the context where it is farthest from 1",
        where="the gap grows otherwise",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    frozen, moving = logits(data(), 0.0), logits(data(), 1.0)
    return [
        judge_inside(FROZEN, frozen), judge_outside(OUT_FROZEN, frozen),
        judge_inside(MOVING, moving), judge_outside(OUT_MOVING, moving),
    ]  # fmt: skip
