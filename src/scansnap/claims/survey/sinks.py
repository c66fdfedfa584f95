"""Attention sinks: dormant queries, which cannot gain by reading, attend to the first token.

**Sinks.** Sources: sinks form in every language model with softmax attention, weight decay encourages them, and
sigmoid attention has none (Gu et al.); sinks and drained values reinforce each other, and SGD in place of Adam
mitigates both (Guo et al.). The layer is

    logits = B[m] + c Y,   c = softmax(ln k + Z[m])  or  k σ(Z[m] − ln T)

Sequences of T = 64: a first token without information, T − 2 tokens of a class, the query m. Three *active* queries
have two classes each (ten distinct tokens per class, no common ones), and the next token is the class. Three
*dormant* queries see the same contexts, but their next token is drawn from a distribution of their own, which B can
represent, as a residual connection would. So every token but the first votes for an output, and dormant queries can
only lose by reading. 400 steps of AdamW (rate 0.1), or of SGD (rate 1, four times as many unless quick, for the same
loss), mini-batches of 64.

A sink is more than 0.3 of the attention of dormant queries on the first token, the threshold of Gu et al. (as we read
it); at the start it is 1/63. For sigmoid attention it is the weight itself; weights need not sum to 1. Decay 0.02 on
all tables (rate × decay × steps = 0.8: unused entries shrink to less than half) promotes sinks if it adds 0.01 or
more to the attention on the first token, paired by seed. Sinks drain values if ‖Y‖ of the first token is smaller by a
tenth or more than where its logits are fixed at their start; drained values strengthen sinks if fixing the value at
its small start adds 0.01 or more.

**The logit of a sink** grows like ln t: each step towards the first token makes the next one smaller. Source: the
sink's logit grows logarithmically in a small model whose dynamics Guo et al. solve (as we read it). Reason: a query
that cannot gain by its context loses, to second order, ½a²v²q(1 − q) by the attention a = 1 − c_sink that it still
gives to others, where v is the context's vote for an output of probability q. So d ln(1/a)/dt ∝ a², a ∝ t^{−1/2}, and
the logit of the first token grows as ½ ln t. Setting: the smallest such model. Contexts are a first token and 62
times the token of one of two classes; an active query has the class as its next token, a dormant one draws it from a
distribution of its own,

    logits = B[m] + c Y,   c = softmax(ln counts + Z[m]),

exact flow of the mean loss to 10⁹, all from 0. The measure is the slope in ln t, over the last two decades, of the
dormant query's logit of the first token minus those of the others: ½, at least 0.45. First with votes fixed at v = 3
for the own class and 0 for the first token, then with all tables trained, where votes grow and the first token may
vote too."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.special import log_softmax

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
from scansnap.measure.entropy import attention_of

GU = Citation(
    "Gu, Pang, Du, Liu, Zhang, Du, Wang and Lin 2024",
    "When Attention Sink Emerges in Language Models: An Empirical View",
    "2410.10781", "abstract",
)  # fmt: skip
GUO = Citation(
    "Guo, Pai, Bai, Jiao, Jordan and Mei 2024",
    "Active-Dormant Attention Heads: Mechanistically Demystifying Extreme-Token Phenomena in LLMs",
    "2410.13835", "abstract",
)  # fmt: skip

# --- a layer with active and dormant queries ----------------------------------------------------------------------

T, BATCH, DORMANT = 64, 64, 3


class SinkRuns(NamedTuple):
    """The first token at the end of training, each (decays, seeds)."""

    weight: FloatArray  # for dormant queries; of softmax attention its share, of sigmoid attention the weight itself
    loss: FloatArray  # of the last 50 mini-batches
    value: FloatArray  # ‖Y‖ of the first token


def train(
    decays: tuple[tuple[float, float], ...],
    seeds: int,
    *,
    steps: int = 400,
    rate: float = 0.1,
    sigmoid: bool = False,
    sgd: bool = False,
    hold: Literal["value", "logit"] | None = None,
    dormant_reads: bool = False,
) -> SinkRuns:
    """AdamW (β = 0.9 and 0.98) or SGD from normal(0.1); a seed draws the start and the sequences.

    ``decays`` are those of the votes (Y and B) and of Z. ``hold`` fixes the first token's value, or its logits, at
    their start. With ``dormant_reads`` dormant queries too must distinguish the classes of their contexts.
    """
    classes = SequenceClasses.synthetic(n_queries=3, next_per_query=2, common=0, distinct=10)
    p = torch.tensor(classes.p_context[:, classes.p_context.sum(0) > 0], dtype=torch.float32)  # (K, S)
    k, s = p.shape
    runs, q, j = len(decays) * seeds, 3 + DORMANT, k + DORMANT
    query = torch.cat([torch.arange(k) // 2, 3 + torch.arange(DORMANT)])  # of a class, then of each dormant query
    own = torch.softmax(2 * torch.randn(DORMANT, j, generator=torch.Generator().manual_seed(5)), dim=1)
    votes, logits = torch.tensor(np.repeat(decays, seeds, axis=0).T, dtype=torch.float32)[..., None, None]  # (R, 1, 1)

    def start(rows: int, columns: int, part: int) -> torch.Tensor:
        each = [
            torch.randn(rows, columns, generator=torch.Generator().manual_seed(3 * seed + part))
            for seed in range(seeds)
        ]
        return 0.1 * torch.stack(each).repeat(len(decays), 1, 1)

    tables = [start(s + 1, j, 0), start(q, s + 1, 1), start(q, j, 2)]  # Y, Z, B
    moments = [(torch.zeros_like(table), torch.zeros_like(table)) for table in tables]
    draws = [torch.Generator().manual_seed(1000 + seed) for seed in range(seeds)]
    late = torch.zeros(runs)
    for step in range(1, steps + 1):
        kind = torch.stack([torch.randint(0, j, (BATCH,), generator=g) for g in draws])  # (seeds, B)
        cls = torch.stack([torch.randint(0, k, (BATCH,), generator=g) for g in draws])
        cls = torch.where(kind < k, kind, cls)
        context = torch.stack([torch.multinomial(p[a], T - 2, replacement=True, generator=g)
                            for a, g in zip(cls, draws, strict=True)])  # fmt: skip
        counts = torch.zeros(seeds, BATCH, s + 1).scatter_add_(
            2, context, torch.ones_like(context, dtype=torch.float32)
        )
        counts[..., s] = 1.0
        drawn = torch.stack([torch.multinomial(own[(n - k).clamp_min(0)], 1, generator=g)[:, 0]
                             for n, g in zip(kind, draws, strict=True)])  # fmt: skip
        target = torch.where(kind < k, kind, cls if dormant_reads else drawn)
        kind, counts, target = (x.repeat(len(decays), *[1] * (x.ndim - 1)) for x in (kind, counts, target))
        y, z, b = tables = [table.requires_grad_() for table in tables]
        row = query[kind][..., None]  # (R, B, 1)
        logit = z.gather(1, row.expand(-1, -1, s + 1))
        c = counts * torch.sigmoid(logit - np.log(T)) if sigmoid else torch.softmax(counts.log() + logit, dim=2)
        out = c @ y + b.gather(1, row.expand(-1, -1, j))
        loss = -torch.log_softmax(out, dim=2).gather(2, target[..., None]).mean((1, 2))
        gradients = torch.autograd.grad(loss.sum(), tables)
        if hold == "value":
            gradients[0][:, s] = 0.0
        elif hold == "logit":
            gradients[1][:, :, s] = 0.0
        late += loss.detach() / 50 if step > steps - 50 else 0
        with torch.no_grad():
            tables = [_step(table.detach(), d, m, step, rate, decay, sgd) for table, d, m, decay in
                      zip(tables, gradients, moments, (votes, logits, votes), strict=True)]  # fmt: skip
    z = tables[1][:, 3:]  # (R, dormant, S + 1)
    expected = torch.cat([p.mean(0) * (T - 2), torch.ones(1)])
    c = expected * torch.sigmoid(z - np.log(T)) if sigmoid else torch.softmax(expected.log() + z, dim=2)
    results = (c[..., s].mean(1), late, tables[0][:, s].norm(dim=1))
    return SinkRuns(*(x.double().reshape(len(decays), seeds).numpy() for x in results))


def _step(
    table: torch.Tensor,
    d: torch.Tensor,
    moments: tuple[torch.Tensor, torch.Tensor],
    step: int,
    rate: float,
    decay: torch.Tensor,
    sgd: bool,
) -> torch.Tensor:
    """One update; changes the moments in place."""
    if sgd:
        return table - rate * (d + decay * table)
    mean, square = moments
    mean.mul_(0.9).add_(d, alpha=0.1)
    square.mul_(0.98).addcmul_(d, d, value=0.02)
    change = mean / (1 - 0.9**step) / ((square / (1 - 0.98**step)).sqrt() + 1e-8)
    return table * (1 - rate * decay) - rate * change


# --- whether sinks form ------------------------------------------------------------------------------------------

THRESHOLD, LAMBDA = 0.3, 0.02
_SETTING = "one layer, BOS, T = 64, active and dormant queries, {}"

FORMS = survey_statement(
    "sink", "a sink forms on the first token", source=GU, setting=_SETTING.format("softmax, AdamW")
)
SIGMOID = survey_statement(
    "sink-sigmoid", "sigmoid attention has no sink", source=GU, setting=_SETTING.format("sigmoid, AdamW")
)
DECAY = survey_statement(
    "sink-decay", "weight decay promotes the sink", source=GU, setting=_SETTING.format("AdamW, decay 0.02 against 0")
)
SGD = survey_statement(
    "sink-sgd", "with SGD in place of Adam there is no sink", source=GUO, setting=_SETTING.format("SGD")
)
DRAINS = survey_statement(
    "sink-drains", "a sink drains the value of its token", source=GUO, setting=_SETTING.format("softmax, AdamW")
)
DRAINED = survey_statement(
    "sink-drained", "a drained value strengthens the sink", source=GUO, setting=_SETTING.format("softmax, AdamW")
)

# Quantity, prediction, bound, and the reason where the statement fails.
_RULES = {
    FORMS.name: ("weight of the first token", 1.0, THRESHOLD, "there is none"),
    SIGMOID.name: ("weight of the first token", 0.0, THRESHOLD, "there is one"),
    DECAY.name: ("attention on the first token with decay less that without", 0.1, 0.01, "decay weakens it"),
    SGD.name: ("weight of the first token", 0.0, THRESHOLD, "there is one"),
    DRAINS.name: (
        "ln of the first token's ‖Y‖ with the sink over that with its logits held",
        -1.0,
        np.log(0.9),
        "it is no smaller",
    ),
    DRAINED.name: (
        "attention on the first token with its value held less that without",
        0.1,
        0.01,
        "it is no stronger",
    ),
}


def judge_sink(statement: SurveyStatement, values: FloatArray, note: str = "") -> SurveyClaim:
    quantity, predicted, bound, where = _RULES[statement.name]
    what = f"{quantity} ({note})" if note else quantity
    return statement.judge_values(values, predicted=predicted, bound=bound, quantity=what, failure=where)


def _check_sinks(effort: SurveyEffort) -> list[SurveyClaim]:
    none, seeds = ((0.0, 0.0),), effort.seeds
    softmax = train((*none, (LAMBDA, LAMBDA), (LAMBDA, 0.0), (0.0, LAMBDA)), seeds)
    sigmoid = train(none, seeds, sigmoid=True)
    sgd = train(none, seeds, sgd=True, rate=1.0, steps=400 if effort.quick else 1600)
    no_sink, no_value = train(none, seeds, hold="logit"), train(none, seeds, hold="value")
    weight = softmax.weight
    on_y, on_z = (weight[2:] - weight[0]).mean(1)
    return [
        judge_sink(FORMS, weight[0], f"training loss {softmax.loss[0].mean():.2f}"),
        judge_sink(SIGMOID, sigmoid.weight[0], f"training loss {sigmoid.loss.mean():.2f}"),
        judge_sink(DECAY, weight[1] - weight[0], f"on the votes alone {on_y:+.2f}, on Z alone {on_z:+.2f}"),
        judge_sink(SGD, sgd.weight[0], f"training loss {sgd.loss.mean():.2f}"),
        judge_sink(DRAINS, np.log(softmax.value[0] / no_sink.value[0])),
        judge_sink(DRAINED, no_value.weight[0] - weight[0]),
    ]


SINKS = SurveyCheck((FORMS, SIGMOID, DECAY, SGD, DRAINS, DRAINED), _check_sinks)

# --- how fast their logit grows ----------------------------------------------------------------------------------

_LOGIT_SETTING = "first token, T = 64, one active and one dormant query, {}, flow to 10⁹"
HELD = survey_statement(
    "sink-logit", "the logit of a sink grows like ln t", source=GUO, setting=_LOGIT_SETTING.format("votes held")
)
TRAINED = survey_statement(
    "sink-logit-trained",
    "the logit of a sink grows like ln t",
    source=GUO,
    setting=_LOGIT_SETTING.format("all trained"),
)

CLASSES, OUTPUTS, SINK = 2, 3, 2
COUNTS = np.array([[62.0, 0.0, 1.0], [0.0, 62.0, 1.0]])  # contexts × (two tokens, the first token)
OWN = np.array([0.5, 0.3, 0.2])  # what comes after the dormant query
VOTE = 3.0
TIMES = 10.0 ** np.arange(1.0, 10.0)


def gap(*, held: bool, dormant_reads: bool = False) -> FloatArray:
    """The second query's logit of the first token less the mean of the others, at TIMES.

    With ``dormant_reads`` the second query has its class as the next token too: then it must read.
    """
    own = np.eye(CLASSES, OUTPUTS) if dormant_reads else np.tile(OWN, (CLASSES, 1))
    target = np.stack([np.eye(CLASSES, OUTPUTS), own])  # (query, context, output)
    sizes = ((CLASSES + 1) * OUTPUTS, 2 * (CLASSES + 1), 2 * OUTPUTS)  # Y, Z, B
    votes = np.vstack([VOTE * np.eye(CLASSES, OUTPUTS), np.zeros((1, OUTPUTS))])
    bias = np.stack([np.zeros(OUTPUTS), np.log(OWN)])  # the dormant query's own distribution

    def rates(state: FloatArray) -> FloatArray:
        y, z, b = np.split(state, np.cumsum(sizes)[:-1])
        y, z, b = y.reshape(-1, OUTPUTS), z.reshape(2, -1), b.reshape(2, OUTPUTS)
        c = attention_of(COUNTS, z[:, None])  # (query, context, token)
        r = target - np.exp(log_softmax(b[:, None] + c @ y, axis=-1))
        g = r @ y.T
        dz = (c * (g - (c * g).sum(-1, keepdims=True))).sum(1)
        dy, db = np.einsum("qkl,qkj->lj", c, r), r.sum(1)
        if held:
            dy, db = np.zeros_like(dy), np.zeros_like(db)
        return np.concatenate([dy.ravel(), dz.ravel(), db.ravel()]) / (2 * CLASSES)

    start = np.zeros(sum(sizes))
    if held:
        start = np.concatenate([votes.ravel(), start[sizes[0] : sizes[0] + sizes[1]], bias.ravel()])
    path = integrate_in_log_time(rates, start, TIMES, first=np.exp(-8.0))
    z = path[:, sizes[0] : sizes[0] + sizes[1]].reshape(-1, 2, CLASSES + 1)[:, 1]
    return np.asarray(z[:, SINK] - z[:, :SINK].mean(1))


def judge_logit(statement: SurveyStatement, curve: FloatArray) -> SurveyClaim:
    slope = (curve[-1] - curve[-3]) / np.log(TIMES[-1] / TIMES[-3])
    return statement.judge_values(
        float(slope), predicted=0.5, bound=0.45, failure="it does not grow like ln t",
        quantity=f"d logit/d ln t of the first token at the end (where it is {curve[-1]:.1f} above the others)",
    )  # fmt: skip


def _check_logits(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge_logit(HELD, gap(held=True)), judge_logit(TRAINED, gap(held=False))]


SINK_LOGITS = SurveyCheck((HELD, TRAINED), _check_logits)
