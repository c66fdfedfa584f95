"""One measurement: every attention of one forward pass, reduced where it is computed, fetched once at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from scansnap.probe.capture import AttentionCall
from scansnap.probe.corpus import Facts
from scansnap.probe.movement import by_chance, distance
from scansnap.probe.ranks import rank_correlation
from scansnap.probe.schema import AGAINST, STATISTICS
from scansnap.probe.statistics import Gathered, Plan, gather

SAMPLE = 1 << 19  # weights of one attention that are kept whole, for movement and examples
RANKED = 1 << 17  # … and ranked, which costs more
SINK = 0.3  # mean attention to the first key from which a sequence counts as having a sink (Gu et al. 2024)

Name = tuple[str, int]  # path and number of an attention
Samples = dict[Name, Tensor]  # (B, H, q, S) float32


@dataclass(frozen=True)
class Layer:
    """One attention of the model, as it is known from one measurement to the next."""

    path: str
    number: int
    kind: str
    heads: int


@dataclass(frozen=True)
class Measurement:
    """What one look found. ``values``: by variable, then by layer, arrays in the order of the variable's dimensions
    without ``layer`` (head; sequence, head; head, decile; …)."""

    layers: tuple[Layer, ...]
    values: dict[str, list[np.ndarray]]
    samples: Samples


@dataclass
class Look:
    """Takes every attention as it is computed."""

    queries: int | None  # looked at in each sequence; None: all
    tokens: Tensor | None  # (B, T) of the batch
    facts: Facts | None = None  # what a corpus says of the tokens
    found: dict[Name, tuple[Layer, Gathered, Plan]] = field(default_factory=dict)

    def __call__(self, call: AttentionCall) -> None:
        layer = Layer(call.path, call.number, call.kind, call.shape[1])
        plan = self._plan(call)
        self.found[call.path, call.number] = layer, gather(call, plan), plan

    def _plan(self, call: AttentionCall) -> Plan:
        b, h, n_queries, n_keys = call.shape
        queries = positions(n_queries, self.queries, call.kind == "self").to(call.device)
        n_sampled = max(1, min(len(queries), SAMPLE // (b * h * n_keys)))
        sampled = spread(len(queries), n_sampled).to(queries.device)
        own = self.tokens is not None and call.kind == "self" and tuple(self.tokens.shape) == (b, n_keys)
        tokens = self.tokens.to(queries.device) if own and self.tokens is not None else None
        if tokens is None or self.facts is None:
            return Plan(queries, sampled, tokens)
        return Plan(queries, sampled, tokens, self.facts.distinctness(tokens), self.facts.decile(tokens))

    def finish(self, last: Samples, first: Samples) -> Measurement:
        """Means over sequences, and how far attention moved since earlier looks."""
        values: dict[str, list[np.ndarray]] = {}
        samples: Samples = {}

        def put(name: str, tensor: Tensor) -> None:
            values.setdefault(name, []).append(tensor.double().cpu().numpy())

        for name, (_, one, plan) in self.found.items():
            for i, statistic in enumerate(STATISTICS):
                put(statistic, one.value[i].nanmean(0))
                put(f"{statistic}_uniform", one.uniform[i].nanmean(0))
            put("n_queries", one.n_queries.sum(0))
            sink = one.value[list(STATISTICS).index("sink")]
            put("sink_share", (sink > SINK).to(sink.dtype).where(sink.isfinite(), torch.nan).nanmean(0))
            put("mass_by_decile", one.mass.nanmean(1).T)
            put("uniform_by_decile", one.uniform_mass.nanmean(1).T)
            put("distinctness", one.distinctness)
            put("distinctness_uniform", one.uniform_distinctness)
            samples[name] = one.sample.p
            put("moved", distance(one.sample, last.get(name)))
            put("moved_from_start", distance(one.sample, first.get(name)))
            if self.facts is not None and plan.tokens is not None:
                types = self.facts.by_type(one.sample.p.device)
                put("scan_chance", by_chance(one.sample, first.get(name), *types))
                put("rank_corr", self._ranks(one, plan, self.facts))
            else:
                heads = one.value.shape[-1]
                put("scan_chance", torch.full((heads,), torch.nan))
                put("rank_corr", torch.full((heads, len(AGAINST)), torch.nan))
        return Measurement(tuple(layer for layer, *_ in self.found.values()), values, samples)

    def _ranks(self, one: Gathered, plan: Plan, facts: Facts) -> Tensor:
        """Rank correlations of some of the sample."""
        b, h, q, s = one.sample.p.shape
        some = spread(q, max(1, min(q, RANKED // (b * h * s)))).to(plan.queries.device)
        asked = tuple(plan.queries[plan.sampled[some]].tolist())
        visible = one.sample.visible.expand(one.sample.p.shape)[:, :, some]
        return rank_correlation(one.sample.p[:, :, some], visible, facts.scores(asked, one.sample.p.device))


def spread(n: int, k: int) -> Tensor:
    """k of n places, evenly spread from within: the first query has few keys, and after the last nothing comes."""
    return ((torch.arange(k) + 0.5) * n / k).long()


def positions(n_queries: int, wanted: int | None, to_itself: bool) -> Tensor:
    """Evenly spread; the first of a window that looks at itself has one key at most where it is causal."""
    first = 1 if to_itself and n_queries > 1 else 0
    n = n_queries - first if wanted is None else min(wanted, n_queries - first)
    return torch.linspace(first, n_queries - 1, n).round().long().unique()
