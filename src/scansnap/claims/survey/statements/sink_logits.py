"""The logit of a sink grows like ln t: each step towards the first token makes the next one smaller.

Source: attention sinks and drained values reinforce each other in a small model whose dynamics is solved; the sink's
logit grows logarithmically there (as we read it). Why it must: a query that cannot gain by its context loses, to second
order, ½a²v²q(1 − q) by what it still attends to, a = 1 − c_sink, where v is how loudly the context votes for an output
of probability q. So d ln(1/a)/dt ∝ a², a ∝ t^{−1/2}, and the logit of the first token goes as ½ ln t.

Setting: the smallest model that has it. Contexts are a first token and 62 times the token of one of two classes; an
*active* query has the class as its next token, a *dormant* one draws it from a distribution of its own,

    logits = B[m] + c Y,   c = softmax(ln counts + Z[m]),

exact flow of the mean loss to 10⁹, all from 0. Judged by the slope in ln t, over the last two decades, of the dormant
query's logit of the first token less those of the others: ½, and at least 0.45. First with votes held at v = 3 for the
own class and 0 for the first token, then with all tables trained, where votes grow and the first token may vote too.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import log_softmax

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Surveyed, surveyed
from scansnap.claims.survey.statements.sinks import GUO
from scansnap.measure.entropy import attention_of

_SETTING = "first token, T = 64, one active and one dormant query, {}, flow to 10⁹"
HELD = surveyed("sink-logit", "the logit of a sink grows like ln t", source=GUO, setting=_SETTING.format("votes held"))
TRAINED = surveyed(
    "sink-logit-trained", "the logit of a sink grows like ln t", source=GUO, setting=_SETTING.format("all trained")
)
STATEMENTS = (HELD, TRAINED)

CLASSES, OUTPUTS, SINK = 2, 3, 2
COUNTS = np.array([[62.0, 0.0, 1.0], [0.0, 62.0, 1.0]])  # contexts × (two tokens, the first token)
OWN = np.array([0.5, 0.3, 0.2])  # what comes after the dormant query
VOTE = 3.0
T = 10.0 ** np.arange(1.0, 10.0)


def gap(*, held: bool, dormant_reads: bool = False) -> FloatArray:
    """The second query's logit of the first token less the mean of the others, at the times T.

    With ``dormant_reads`` the second query has its class as the next token too: then it must read.
    """
    own = np.eye(CLASSES, OUTPUTS) if dormant_reads else np.tile(OWN, (CLASSES, 1))
    target = np.stack([np.eye(CLASSES, OUTPUTS), own])  # (query, context, output)
    sizes = ((CLASSES + 1) * OUTPUTS, 2 * (CLASSES + 1), 2 * OUTPUTS)  # Y, Z, B
    votes = np.vstack([VOTE * np.eye(CLASSES, OUTPUTS), np.zeros((1, OUTPUTS))])
    known = np.stack([np.zeros(OUTPUTS), np.log(OWN)])  # what a dormant query would say by itself

    def rates(clock: float, state: FloatArray) -> FloatArray:
        y, z, b = np.split(state, np.cumsum(sizes)[:-1])
        y, z, b = y.reshape(-1, OUTPUTS), z.reshape(2, -1), b.reshape(2, OUTPUTS)
        c = attention_of(COUNTS, z[:, None])  # (query, context, token)
        r = target - np.exp(log_softmax(b[:, None] + c @ y, axis=-1))
        g = r @ y.T  # what each token's vote is worth
        dz = (c * (g - (c * g).sum(-1, keepdims=True))).sum(1)
        dy, db = np.einsum("qkl,qkj->lj", c, r), r.sum(1)
        if held:
            dy, db = np.zeros_like(dy), np.zeros_like(db)
        return np.exp(clock) * np.concatenate([dy.ravel(), dz.ravel(), db.ravel()]) / (2 * CLASSES)

    start = np.zeros(sum(sizes))
    if held:
        start = np.concatenate([votes.ravel(), start[sizes[0] : sizes[0] + sizes[1]], known.ravel()])
    run = solve_ivp(rates, (-8.0, np.log(T[-1])), start, t_eval=np.log(T), method="LSODA", rtol=1e-9, atol=1e-12)
    if not run.success:
        raise RuntimeError(f"the flow of the sink stopped: {run.message}")
    z = run.y[sizes[0] : sizes[0] + sizes[1]].T.reshape(-1, 2, CLASSES + 1)[:, 1]
    return np.asarray(z[:, SINK] - z[:, :SINK].mean(1))


def judge(statement: Surveyed, curve: FloatArray) -> Finding:
    slope = (curve[-1] - curve[-3]) / np.log(T[-1] / T[-3])
    return statement.found(
        float(slope), predicted=0.5, bound=0.45, where="it does not grow like ln t",
        quantity=f"d logit/d ln t of the first token at the end (where it is {curve[-1]:.1f} above the others)",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    return [judge(HELD, gap(held=True)), judge(TRAINED, gap(held=False))]
