"""A layer with queries that must read their context and queries that cannot gain by it, trained for many runs at once.

    logits = B[m] + c Y,   c = softmax(ln k + Z[m])  or  k σ(Z[m] − ln T)

Sequences of T = 64: a first token that says nothing, T − 2 tokens of a class, the query m. Three *active* queries have
two classes each (ten distinct tokens to a class, no common ones), and the next token is the class; three *dormant*
queries see the same contexts, but their next token is drawn from a distribution of their own, which B can hold, as a
residual connection would. So every token but the first votes for something, and dormant queries can only lose by it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from scansnap.checks.arrays import FloatArray
from scansnap.classes import SequenceClasses

T, BATCH, DORMANT = 64, 64, 3


class Trained(NamedTuple):
    """What became of the first token, each (decays, seeds)."""

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
) -> Trained:
    """AdamW (β = 0.9 and 0.98) or SGD from normal(0.1); a seed draws the start and the sequences.

    ``decays`` are those of the votes (Y and B) and of Z. ``hold`` keeps the first token's value, or its logits, as they
    began. With ``dormant_reads`` dormant queries too must tell the classes of their contexts apart.
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
    found = (c[..., s].mean(1), late, tables[0][:, s].norm(dim=1))
    return Trained(*(x.double().reshape(len(decays), seeds).numpy() for x in found))


def _step(
    table: torch.Tensor,
    d: torch.Tensor,
    moments: tuple[torch.Tensor, torch.Tensor],
    step: int,
    rate: float,
    decay: torch.Tensor,
    sgd: bool,
) -> torch.Tensor:
    """One update; moments are changed in place."""
    if sgd:
        return table - rate * (d + decay * table)
    mean, square = moments
    mean.mul_(0.9).add_(d, alpha=0.1)
    square.mul_(0.98).addcmul_(d, d, value=0.02)
    change = mean / (1 - 0.9**step) / ((square / (1 - 0.98**step)).sqrt() + 1e-8)
    return table * (1 - rate * decay) - rate * change
