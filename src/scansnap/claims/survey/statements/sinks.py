"""Attention sinks: queries with nothing to look for attend to the first token. What decay, sigmoid and SGD do to it.

Sources: sinks form in every language model with softmax attention, weight decay encourages them, and sigmoid
attention has none (Gu et al.); softmax sinks and drained values reinforce each other under Adam, and SGD mitigates
them (Guo et al.). Setting: one layer at T = 64 whose first token (BOS) says nothing. Three *active* queries have two
classes each (ten distinct tokens to a class, no common ones) and must read their context; three *dormant* queries see
the same contexts, but their next token depends on the query alone, through a table of its own, as through a residual
connection. So every token but BOS votes for something, and dormant queries can only lose by attending to it.

    logits = B[m] + c Y,   c = softmax(ln k + Z[m])  or  k σ(Z[m] − ln T)

400 steps of AdamW (rate 0.1) or of SGD (rate 1, four times as long but with --quick, for the same loss), mini-batches
of 64 sampled sequences, normal(0.1) start; a seed draws both. A sink is more than 0.3 of the attention of dormant
queries on the first token, the threshold of the first source (as we read it); at the start it is 1/63. For sigmoid
attention it is the weight itself, which need not sum to 1. Decay 0.02 on all tables (rate × decay × steps = 0.8: what
is not used shrinks to less than half) promotes sinks if it adds 0.01 or more to the attention on the first token,
paired by seed.
"""

from __future__ import annotations

import numpy as np
import torch

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.classes import SequenceClasses

GU = Source(
    "Gu, Pang, Du, Liu, Zhang, Du, Wang and Lin 2024",
    "When Attention Sink Emerges in Language Models: An Empirical View",
    "2410.10781", "abstract",
)  # fmt: skip
GUO = Source(
    "Guo, Pai, Bai, Jiao, Jordan and Mei 2024",
    "Active-Dormant Attention Heads: Mechanistically Demystifying Extreme-Token Phenomena in LLMs",
    "2410.13835", "abstract",
)  # fmt: skip
T, BATCH, DORMANT, SINK = 64, 64, 3, 0.3
LAMBDA = 0.02
_SETTING = "one layer, BOS, T = 64, active and dormant queries, {}"

FORMS = surveyed("sink", "a sink forms on the first token", source=GU, setting=_SETTING.format("softmax, AdamW"))
SIGMOID = surveyed(
    "sink-sigmoid", "sigmoid attention has no sink", source=GU, setting=_SETTING.format("sigmoid, AdamW")
)
DECAY = surveyed(
    "sink-decay", "weight decay promotes the sink", source=GU, setting=_SETTING.format("AdamW, decay 0.02 against 0")
)
SGD = surveyed("sink-sgd", "with SGD in place of Adam there is no sink", source=GUO, setting=_SETTING.format("SGD"))
STATEMENTS = (FORMS, SIGMOID, DECAY, SGD)


def first_token(
    decays: tuple[tuple[float, float], ...],
    seeds: int,
    *,
    steps: int = 400,
    rate: float = 0.1,
    sigmoid: bool = False,
    sgd: bool = False,
    dormant_reads: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Weight of the first token for dormant queries after training, and the loss of the last 50 steps, (decays, seeds).

    All runs are trained at once; ``decays`` are those of the votes (Y and B) and of Z.
    ``dormant_reads`` is the control: then dormant queries too must tell the classes of their contexts apart.
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
        about = torch.stack([torch.randint(0, k, (BATCH,), generator=g) for g in draws])
        about = torch.where(kind < k, kind, about)
        seen = torch.stack([torch.multinomial(p[a], T - 2, replacement=True, generator=g)
                            for a, g in zip(about, draws, strict=True)])  # fmt: skip
        counts = torch.zeros(seeds, BATCH, s + 1).scatter_add_(2, seen, torch.ones_like(seen, dtype=torch.float32))
        counts[..., s] = 1.0
        drawn = torch.stack([torch.multinomial(own[(n - k).clamp_min(0)], 1, generator=g)[:, 0]
                             for n, g in zip(kind, draws, strict=True)])  # fmt: skip
        target = torch.where(kind < k, kind, about if dormant_reads else drawn)
        kind, counts, target = (x.repeat(len(decays), *[1] * (x.ndim - 1)) for x in (kind, counts, target))
        y, z, b = tables = [table.requires_grad_() for table in tables]
        here = query[kind][..., None]  # (R, B, 1)
        logit = z.gather(1, here.expand(-1, -1, s + 1))
        c = counts * torch.sigmoid(logit - np.log(T)) if sigmoid else torch.softmax(counts.log() + logit, dim=2)
        out = c @ y + b.gather(1, here.expand(-1, -1, j))
        loss = -torch.log_softmax(out, dim=2).gather(2, target[..., None]).mean((1, 2))
        gradients = torch.autograd.grad(loss.sum(), tables)
        late += loss.detach() / 50 if step > steps - 50 else 0
        with torch.no_grad():
            tables = [_step(table.detach(), d, m, step, rate, decay, sgd) for table, d, m, decay in
                      zip(tables, gradients, moments, (votes, logits, votes), strict=True)]  # fmt: skip
    z = tables[1][:, 3:]  # (R, dormant, S + 1)
    expected = torch.cat([p.mean(0) * (T - 2), torch.ones(1)])
    c = expected * torch.sigmoid(z - np.log(T)) if sigmoid else torch.softmax(expected.log() + z, dim=2)
    weight, spent = (x.double().reshape(len(decays), seeds).numpy() for x in (c[..., s].mean(1), late))
    return weight, spent


def judge(statement: Surveyed, values: FloatArray, note: str) -> Finding:
    """What a dormant query gives to the first token, or how much more with decay."""
    predicted, bound = {FORMS.name: (1.0, SINK), DECAY.name: (0.1, 0.01)}.get(statement.name, (0.0, SINK))
    what = (
        "attention on the first token with decay less that without"
        if statement is DECAY
        else "weight of the first token"
    )
    return statement.found(
        values, predicted=predicted, bound=bound, quantity=f"{what} ({note})",
        where={FORMS.name: "there is none", DECAY.name: "decay weakens it"}.get(statement.name, "there is one"),
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    softmax, loss = first_token(((0.0, 0.0), (LAMBDA, LAMBDA), (LAMBDA, 0.0), (0.0, LAMBDA)), sizes.seeds)
    sigmoid, its_loss = first_token(((0.0, 0.0),), sizes.seeds, sigmoid=True)
    sgd, sgd_loss = first_token(((0.0, 0.0),), sizes.seeds, sgd=True, rate=1.0, steps=400 if sizes.quick else 1600)
    on_y, on_z = (softmax[2:] - softmax[0]).mean(1)
    return [
        judge(FORMS, softmax[0], f"training loss {loss[0].mean():.2f}"),
        judge(SIGMOID, sigmoid[0], f"training loss {its_loss.mean():.2f}"),
        judge(DECAY, softmax[1] - softmax[0], f"on the votes alone {on_y:+.2f}, on Z alone {on_z:+.2f}"),
        judge(SGD, sgd[0], f"training loss {sgd_loss.mean():.2f}"),
    ]


def _step(
    table: torch.Tensor,
    d: torch.Tensor,
    moments: tuple[torch.Tensor, torch.Tensor],
    step: int,
    rate: float,
    decay: torch.Tensor,
    sgd: bool,
) -> torch.Tensor:
    """AdamW with β = (0.9, 0.98), or plain SGD; moments are updated in place."""
    if sgd:
        return table - rate * (d + decay * table)
    mean, square = moments
    mean.mul_(0.9).add_(d, alpha=0.1)
    square.mul_(0.98).addcmul_(d, d, value=0.02)
    change = mean / (1 - 0.9**step) / ((square / (1 - 0.98**step)).sqrt() + 1e-8)
    return table * (1 - rate * decay) - rate * change
