"""One measurement: every attention of one forward pass, reduced where it is computed, fetched once at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.probe.capture import AttentionCall, Rows
from scansnap.probe.corpus import Facts
from scansnap.probe.coverage import Coverage
from scansnap.probe.schema import AGAINST, STATISTICS
from scansnap.probe.statistics import Gathered, Plan, gather
from scansnap.probe.statistics.movement import by_chance, distance
from scansnap.probe.statistics.ranks import rank_correlation

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
    positions: dict[Name, Tensor] = field(default_factory=dict)  # (q,) of the queries in the samples


@dataclass(frozen=True)
class Chosen:
    """What is looked at in attention of one shape, the same in every measurement; all but ``asked`` on its device."""

    plan: Plan
    sampled: Tensor  # (q,) positions of the queries that are kept whole
    ranked: Tensor  # (r,) places among them of those whose keys are ranked
    asked: tuple[int, ...]  # their positions, known without asking the device


@dataclass
class Look:
    """Takes every attention as it is computed.

    Nothing waits for the device until the numbers are asked for, so that it works while Python goes on.
    """

    queries: int | None  # looked at in each sequence; None: all
    tokens: Tensor | None  # (B, T) of the batch
    facts: Facts | None = None  # what a corpus says of the tokens
    chosen: dict[tuple[Any, ...], Chosen] = field(default_factory=dict)  # by shape, from one look to the next
    found: dict[Name, tuple[Layer, Gathered, Chosen]] = field(default_factory=dict)

    def __call__(self, call: AttentionCall) -> None:
        layer = Layer(call.path, call.number, call.kind, call.shape[1])
        kind = (call.shape, call.kind, call.device)
        if kind not in self.chosen:
            self.chosen[kind] = self._choose(call)
        self.found[call.path, call.number] = layer, gather(call, self.chosen[kind].plan), self.chosen[kind]

    def _choose(self, call: AttentionCall) -> Chosen:
        b, h, n_queries, n_keys = call.shape
        queries = positions(n_queries, self.queries, call.kind == "self")
        n_sampled = max(1, min(len(queries), SAMPLE // (b * h * n_keys)))
        sampled = spread(len(queries), n_sampled)
        own = self.tokens is not None and call.kind == "self" and tuple(self.tokens.shape) == (b, n_keys)
        tokens = self.tokens.to(call.device) if own and self.tokens is not None else None
        ranked = spread(n_sampled, max(1, min(n_sampled, RANKED // (b * h * n_keys))))
        asked = tuple(queries[sampled[ranked]].tolist())
        queries, sampled, ranked = (places.to(call.device) for places in (queries, sampled, ranked))
        told = (
            () if tokens is None or self.facts is None else (self.facts.distinctness(tokens), self.facts.decile(tokens))
        )
        return Chosen(Plan(queries, sampled, tokens, *told), queries[sampled], ranked, asked)

    def finish(self, last: Samples, first: Samples, fold: Samples | None = None) -> Callable[[], Measurement]:
        """Means over sequences, and how far attention moved since earlier looks: ``fold`` is an e-fold ago.

        The numbers are on their way; who calls the answer waits for them.
        """
        names = list(self.found)
        samples = {name: one.sample.p for name, (_, one, _) in self.found.items()}
        alike: dict[int, list[Name]] = {}  # layers of one plan can be stacked: few launches, whatever the depth
        for name, (*_, plan) in self.found.items():
            alike.setdefault(id(plan), []).append(name)
        tables = []
        for some in alike.values():
            table = _over_sequences(torch.stack([self.found[name][1].sums for name in some]))
            tables.append(table | self._of_samples(some, last, first, fold or {}))
        arrive = fetching([tensor for table in tables for tensor in table.values()])
        order = {name: i for i, name in enumerate(name for some in alike.values() for name in some)}
        variables = [variable for table in tables for variable in table]
        layers = tuple(self.found[name][0] for name in names)
        places = {name: chosen.sampled for name, (*_, chosen) in self.found.items()}

        def arrived() -> Measurement:
            values: dict[str, list[np.ndarray]] = {}
            for variable, array in zip(variables, arrive(), strict=True):
                values.setdefault(variable, []).extend(array)  # by layer
            found = {variable: [by_layer[order[name]] for name in names] for variable, by_layer in values.items()}
            return Measurement(layers, found, samples, places)

        return arrived

    def _of_samples(self, some: list[Name], last: Samples, first: Samples, fold: Samples) -> dict[str, Tensor]:
        """What is known from the rows that are kept whole, of layers of one shape: (layer, head, …) each."""
        kept, chosen = [self.found[name][1].sample for name in some], self.found[some[0]][2]
        now = Rows(torch.stack([one.p for one in kept]), torch.stack([one.visible.expand(one.p.shape) for one in kept]))
        start = _stacked(first, some, now.p)
        found = {"moved": distance(now, _stacked(last, some, now.p)), "moved_from_start": distance(now, start),
                 "moved_fold": distance(now, _stacked(fold, some, now.p))}  # fmt: skip
        if self.facts is None or chosen.plan.tokens is None:
            unknown = now.p.new_full((len(some), now.p.shape[2], len(AGAINST)), torch.nan)
            return found | {"scan_chance": unknown[..., 0], "rank_corr": unknown}
        found["scan_chance"] = by_chance(now, start, *self.facts.by_type(now.p.device))
        scores = self.facts.scores(chosen.asked, now.p.device)
        ranked = now.p[..., chosen.ranked, :], now.visible[..., chosen.ranked, :]
        return found | {"rank_corr": rank_correlation(*ranked, scores)}


@dataclass(frozen=True)
class Pass:
    """A forward pass that was looked at."""

    look: Look
    loss: Tensor | None  # the model's own, where its batch has labels
    coverage: Coverage


def _stacked(samples: Samples, some: list[Name], like: Tensor) -> Tensor:
    """Those of some layers, NaN where there is none of the same shape."""
    none = like.new_full(like.shape[1:], torch.nan)
    kept = [samples.get(name, none) for name in some]
    return torch.stack([one.to(like.device) if one.shape == none.shape else none for one in kept])


def spread(n: int, k: int) -> Tensor:
    """k of n places, evenly spread from within: the first query has few keys, and after the last nothing comes."""
    return ((torch.arange(k) + 0.5) * n / k).long()


def _over_sequences(sums: Tensor) -> dict[str, Tensor]:
    """Variables (layer, …) from the sums (layer, line, B, H, 3) of layers of one shape."""
    n_statistics = len(STATISTICS)
    value, uniform = sums[..., 0] / sums[..., 2], sums[..., 1] / sums[..., 2]  # (layer, line, B, H); 0/0 if none counts
    means, baseline = value.nanmean(2), uniform.nanmean(2)  # (layer, line, H)
    found = {}
    for i, statistic in enumerate(STATISTICS):
        found[statistic], found[f"{statistic}_uniform"] = means[:, i], baseline[:, i]
    sink = value[:, list(STATISTICS).index("sink")]
    found["n_queries"] = sums[:, 0, ..., 2].sum(1)
    found["sink_share"] = (sink > SINK).to(sink.dtype).where(sink.isfinite(), torch.nan).nanmean(1)
    found["mass_by_decile"] = means[:, n_statistics:-1].mT
    found["uniform_by_decile"] = baseline[:, n_statistics:-1].mT
    found["distinctness"], found["distinctness_uniform"] = value[:, -1], uniform[:, -1]
    return found


def fetching(tensors: list[Tensor]) -> Callable[[], list[np.ndarray]]:
    """Starts one transfer, or one each where they are on several devices; the answer waits for it."""
    if len({tensor.device for tensor in tensors}) != 1:
        return lambda: [tensor.double().cpu().numpy() for tensor in tensors]
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    ends, shapes = np.cumsum([tensor.numel() for tensor in tensors])[:-1], [tensor.shape for tensor in tensors]
    wait = lambda: None  # noqa: E731
    if flat.is_cuda:
        there = torch.empty_like(flat, device="cpu", pin_memory=True).copy_(flat, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(flat.device))
        wait = event.synchronize
    else:
        there = flat.cpu()

    def arrived() -> list[np.ndarray]:
        wait()
        parts = np.split(there.double().numpy(), ends)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    return arrived


def positions(n_queries: int, wanted: int | None, to_itself: bool) -> Tensor:
    """Evenly spread; the first of a window that looks at itself has one key at most where it is causal."""
    first = 1 if to_itself and n_queries > 1 else 0
    n = n_queries - first if wanted is None else min(wanted, n_queries - first)
    return torch.linspace(first, n_queries - 1, n, dtype=torch.float64).round().long().unique()
