"""One measurement: the statistics of every attention in one forward pass, transferred from the device at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.probe.capture import AttentionCall, AttentionRows
from scansnap.probe.capture.dataflow import HeadOutput, are_parallel
from scansnap.probe.capture.modules import Coverage
from scansnap.probe.corpus import TokenFacts
from scansnap.probe.schema import AGAINST, MAGNITUDES, STATISTICS, VARIABLES
from scansnap.probe.statistics import AttentionSums, StatisticsPlan, compute_sums
from scansnap.probe.statistics.magnitudes import measure_magnitudes, measure_output
from scansnap.probe.statistics.sampled import chance_deviation, rows_with_choice, total_variation

SAMPLE = 1 << 19  # weights of one attention that are stored, for movement and examples
RANKED = 1 << 17  # weights that are ranked, which costs more
WINDOWED = 16  # queries to find a sliding window from
SINK = 0.3  # mean attention to the first key above which a sequence has a sink (Gu et al. 2024)

LayerKey = tuple[str, int]  # path and call number of an attention
Samples = dict[LayerKey, Tensor]  # (B, H, q, S) float32


@dataclass(frozen=True)
class AttentionLayer:
    """One attention of the model; the same in all measurements."""

    path: str
    number: int
    kind: str
    heads: int


@dataclass(frozen=True)
class Measurement:
    """The results of one pass. ``values`` has arrays by variable, then by layer, with the variable's other dimensions
    in order (head; sequence, head; head, decile; …)."""

    layers: tuple[AttentionLayer, ...]
    values: dict[str, list[np.ndarray]]
    samples: Samples
    positions: dict[LayerKey, Tensor] = field(default_factory=dict)  # (q,) of the queries in the samples


@dataclass(frozen=True)
class LayerPlan:
    """What to measure in attention of one shape, the same in every pass; tensors are on its device."""

    plan: StatisticsPlan
    sampled: Tensor  # (q,) positions of the queries whose rows are stored
    ranked: Tensor  # (r,) indices into them of the queries whose keys are ranked
    ranked_positions: tuple[int, ...]  # known without a transfer from the device
    kind: str = "self"  # self, sliding (self-attention in a window) or cross


@dataclass
class AttentionCollector:
    """Computes the statistics of each attention as it is captured, without waiting for the device."""

    queries: int | None  # measured in each sequence; None: all
    tokens: Tensor | None  # (B, T) of the batch
    facts: TokenFacts | None = None
    padding: Tensor | None = None  # (B, T) 0 at padding
    plans: dict[tuple[Any, ...], LayerPlan] = field(default_factory=dict)  # by layer and by shape, for all passes
    results: dict[LayerKey, tuple[AttentionLayer, AttentionSums, LayerPlan]] = field(default_factory=dict)
    magnitudes: dict[LayerKey, dict[str, Tensor]] = field(default_factory=dict)  # (H,) by name
    groups: list[list[LayerKey]] = field(default_factory=list)  # of attentions that are one layer
    sample: int = SAMPLE  # weights of one attention to store
    sinks: Tensor | None = None  # (B, T) keys that count as sinks, beside the first
    _last: AttentionCall | None = None

    @property
    def is_on_gpu(self) -> bool:
        """Whether results arrive later."""
        return any(plan.sampled.is_cuda for *_, plan in self.results.values())

    def __call__(self, call: AttentionCall) -> None:
        of_one_layer = self._last is not None and are_parallel(self._last, call)
        self._last = call
        if of_one_layer:
            self.groups[-1].append((call.path, call.number))
        else:
            self.groups.append([(call.path, call.number)])
        if self.padding is not None and call.kind == "self" and tuple(self.padding.shape) == call.shape[::2]:
            call = call.without_padding(self.padding)
        key = (call.path, call.number, call.shape, call.kind, call.device)
        if key not in self.plans:
            first, kind = first_query(call), "sliding" if call.kind == "self" and is_sliding(call) else call.kind
            shared = first, kind, *key[2:]
            self.plans[key] = self.plans.get(shared) or self._make_plan(call, first, kind)
            self.plans[shared] = self.plans[key]
        plan = self.plans[key]
        layer = AttentionLayer(call.path, call.number, plan.kind, call.shape[1])
        self.results[call.path, call.number] = layer, compute_sums(call, plan.plan), plan
        self.magnitudes[call.path, call.number] = measure_magnitudes(call, plan.plan.queries)

    def add_output(self, output: HeadOutput) -> None:
        """What the heads of a captured attention add to the residual stream."""
        key = output.path, output.number
        plan = self.results[key][2].plan
        self.magnitudes[key] |= measure_output(output, plan.queries, plan.padding)

    def _make_plan(self, call: AttentionCall, first: int, kind: str) -> LayerPlan:
        b, h, n_queries, n_keys = call.shape
        queries = query_positions(first, n_queries, self.queries)
        n_sampled = max(1, min(len(queries), self.sample // (b * h * n_keys)))
        sampled = spread(len(queries), n_sampled)
        has_tokens = self.tokens is not None and call.kind == "self" and tuple(self.tokens.shape) == (b, n_keys)
        tokens = self.tokens.to(call.device) if has_tokens and self.tokens is not None else None
        ranked = spread(n_sampled, max(1, min(n_sampled, RANKED // (b * h * n_keys))))
        ranked_positions = tuple(queries[sampled[ranked]].tolist())
        queries, sampled, ranked = (indices.to(call.device) for indices in (queries, sampled, ranked))
        distinctness = decile = None
        if tokens is not None and self.facts is not None:
            distinctness, decile = self.facts.distinctness(tokens), self.facts.decile(tokens)
        start = None if call.padding is None or call.padding[:, 0].all() else (call.padding != 0).int().argmax(1)
        plan = StatisticsPlan(queries, sampled, tokens, distinctness, decile, start, call.padding,
                              None if tokens is None or self.sinks is None else self.sinks.to(call.device))  # fmt: skip
        return LayerPlan(plan, queries[sampled], ranked, ranked_positions, kind)

    def finish(self, last: Samples, first: Samples, fold: Samples | None = None) -> Callable[[], Measurement]:
        """Start the transfer of all statistics, with the movement since earlier samples; the result waits for it.

        ``fold`` are samples of an e-fold of steps ago.
        """
        keys, self._last = list(self.results), None
        last, first, fold = (split_heads(some, self.groups) for some in (last, first, fold or {}))
        samples = {key: sums.sample.p for key, (_, sums, _) in self.results.items()}
        by_plan: dict[int, list[LayerKey]] = {}  # layers of one plan are stacked, so that there are few launches
        for key, (*_, plan) in self.results.items():
            by_plan.setdefault(id(plan), []).append(key)
        tables = []
        for group in by_plan.values():
            table = sums_to_variables(torch.stack([self.results[key][1].sums for key in group]))
            for name in MAGNITUDES:
                unknown = table["sink_share"].new_full(table["sink_share"].shape[1:], torch.nan)
                table[name] = torch.stack([self.magnitudes[key].get(name, unknown) for key in group])
            table["n_nonfinite"] = torch.stack([self.results[key][1].n_nonfinite for key in group]).sum(1)
            tables.append(table | self._sample_variables(group, last, first, fold))
        wait = start_transfer([tensor for table in tables for tensor in table.values()])
        order = {key: i for i, key in enumerate(key for group in by_plan.values() for key in group)}
        variables = [variable for table in tables for variable in table]
        layers = tuple(self.results[key][0] for key in keys)
        positions = {key: plan.sampled for key, (*_, plan) in self.results.items()}

        def measurement() -> Measurement:
            values: dict[str, list[np.ndarray]] = {}
            for variable, array in zip(variables, wait(), strict=True):
                values.setdefault(variable, []).extend(array)  # by layer
            ordered = {variable: [by_layer[order[key]] for key in keys] for variable, by_layer in values.items()}
            return join_heads(Measurement(layers, ordered, samples, positions), self.groups)

        return measurement

    def _sample_variables(
        self, group: list[LayerKey], last: Samples, first: Samples, fold: Samples
    ) -> dict[str, Tensor]:
        """Variables (layer, head, …) from the stored rows of layers of one shape."""
        rows, plan = [self.results[key][1].sample for key in group], self.results[group[0]][2]
        if len(group) > 1 and not rows[0].p.is_cuda:  # one layer stays in the cache of a CPU
            of_layers = [self._sample_variables([key], last, first, fold) for key in group]
            return {name: torch.cat([of_layer[name] for of_layer in of_layers]) for name in of_layers[0]}
        visible = torch.broadcast_tensors(*(row.visible[(None,) * (4 - row.visible.ndim)] for row in rows))
        now = AttentionRows(_stack([row.p for row in rows]), _stack(list(visible)))
        counts, from_start = rows_with_choice(now), now.p - _samples_like(first, group, now.p)
        variables = {"moved": total_variation(now.p - _samples_like(last, group, now.p), counts),
                     "moved_from_start": total_variation(from_start, counts),
                     "moved_fold": total_variation(now.p - _samples_like(fold, group, now.p), counts)}  # fmt: skip
        if self.facts is None or plan.plan.tokens is None:
            unknown = now.p.new_full((len(group), now.p.shape[2], len(AGAINST)), torch.nan)
            return variables | {"scan_chance": unknown[..., 0], "rank_corr": unknown}
        variables["scan_chance"] = chance_deviation(from_start, counts, *self.facts.by_type(now.p.device))
        scores = self.facts.scores(plan.ranked_positions, now.p.device)
        ranked = now.p[..., plan.ranked, :], now.visible[..., plan.ranked, :]
        return variables | {"rank_corr": scores.correlation(*ranked)}


@dataclass(frozen=True)
class ForwardPass:
    """A measured forward pass."""

    collector: AttentionCollector
    loss: Tensor | None  # of the model, if its batch has labels
    is_finite: Tensor | None  # whether all values of the output are
    coverage: Coverage


def join_heads(measurement: Measurement, groups: list[list[LayerKey]]) -> Measurement:
    """The same with attentions of one layer as its heads: ``heads.0``, ``heads.1``, … are the heads of ``heads``."""
    if all(len(group) == 1 for group in groups):
        return measurement
    index = {(layer.path, layer.number): i for i, layer in enumerate(measurement.layers)}
    members = [[index[key] for key in group] for group in groups]
    layers = [replace(measurement.layers[some[0]], path=joined_key(group)[0],
                      heads=sum(measurement.layers[i].heads for i in some))
              for some, group in zip(members, groups, strict=True)]  # fmt: skip
    values = {}
    for name, arrays in measurement.values.items():
        axis = [dim for dim in VARIABLES[name].dims if dim != "layer"].index("head")
        values[name] = [np.concatenate([arrays[i] for i in some], axis) for some in members]
    samples = {joined_key(group): torch.cat([measurement.samples[key] for key in group], 1) for group in groups}
    positions = {joined_key(group): measurement.positions[group[0]] for group in groups}
    return Measurement(tuple(layers), values, samples, positions)


def split_heads(samples: Samples, groups: list[list[LayerKey]]) -> Samples:
    """The inverse of `join_heads` for samples."""
    apart = dict(samples)
    for group in groups:
        joined = samples.get(joined_key(group))
        if len(group) > 1 and joined is not None and joined.shape[1] == len(group):
            apart |= {key: joined[:, i : i + 1] for i, key in enumerate(group)}
    return apart


def joined_key(group: list[LayerKey]) -> LayerKey:
    """The path of the module around the modules of single heads."""
    path, number = group[0]
    return (path.rpartition(".")[0], number) if len(group) > 1 else (path, number)


def _samples_like(samples: Samples, group: list[LayerKey], like: Tensor) -> Tensor:
    """The samples of some layers; NaN for those without one of the same shape."""
    missing = like.new_tensor(torch.nan).expand(like.shape[1:])
    found = [samples.get(key, missing) for key in group]
    return _stack([sample.to(like.device) if sample.shape == missing.shape else missing for sample in found])


def _stack(tensors: list[Tensor]) -> Tensor:
    """``torch.stack``, of a single tensor without a copy."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(tensors)


def spread(n: int, k: int) -> Tensor:
    """k of n indices, evenly spread, without the ends: the first query has few keys, the last no next token."""
    return ((torch.arange(k) + 0.5) * n / k).long()


def sums_to_variables(sums: Tensor) -> dict[str, Tensor]:
    """Variables (layer, …) from the sums (layer, line, B, H, 3) of layers of one shape."""
    n_statistics = len(STATISTICS)
    value, uniform = (
        sums[..., 0] / sums[..., 2],
        sums[..., 1] / sums[..., 2],
    )  # (layer, line, B, H); 0/0 without queries
    means, baseline = value.nanmean(2), uniform.nanmean(2)  # (layer, line, H)
    variables = {}
    for i, statistic in enumerate(STATISTICS):
        variables[statistic], variables[f"{statistic}_uniform"] = means[:, i], baseline[:, i]
    sink = value[:, list(STATISTICS).index("sink")]
    variables["n_queries"] = sums[:, 0, ..., 2].sum(1)
    variables["sink_share"] = (sink > SINK).to(sink.dtype).where(sink.isfinite(), torch.nan).nanmean(1)
    variables["mass_by_decile"] = means[:, n_statistics:-1].mT
    variables["uniform_by_decile"] = baseline[:, n_statistics:-1].mT
    variables["distinctness"], variables["distinctness_uniform"] = value[:, -1], uniform[:, -1]
    return variables


def start_transfer(tensors: list[Tensor]) -> Callable[[], list[np.ndarray]]:
    """Start one transfer of all tensors to the CPU; the result waits for it. Several devices take one each."""
    if len({tensor.device for tensor in tensors}) != 1:
        return lambda: [tensor.double().cpu().numpy() for tensor in tensors]
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    ends, shapes = np.cumsum([tensor.numel() for tensor in tensors])[:-1], [tensor.shape for tensor in tensors]
    wait = lambda: None  # noqa: E731
    if flat.is_cuda:
        target = torch.empty_like(flat, device="cpu", pin_memory=True).copy_(flat, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(flat.device))
        wait = event.synchronize
    else:
        target = flat.cpu()

    def arrays() -> list[np.ndarray]:
        wait()
        parts = np.split(target.double().numpy(), ends)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    return arrays


def first_query(call: AttentionCall) -> int:
    """1 if the first query of self-attention sees one key at most, as if causal; it has no choice. Else 0."""
    if call.kind != "self" or call.shape[2] == 1:
        return 0
    return int(call.rows(torch.zeros(1, dtype=torch.long, device=call.device)).visible.sum(-1).max() < 2)


def is_sliding(call: AttentionCall) -> bool:
    """Whether every query of self-attention sees keys up to one distance back, and not all earlier ones."""
    n = call.shape[2]
    if n < 3:
        return False
    some = torch.linspace(1, n - 1, min(n - 1, WINDOWED), device=call.device).long().unique()
    visible = call.rows(some).visible
    if visible.ndim < 4:
        visible = visible[(None,) * (4 - visible.ndim)]
    visible = visible.any(1)  # (B, q, S), in any head
    back = some - visible.int().argmax(-1)  # to the first visible key
    back = back.masked_fill(~visible.any(-1), -1)
    window = int(back.max())
    inside = (some > window) & (back >= 0)  # with more keys before than the window has
    return bool(inside.any()) and bool((back[inside] == window).all())


def query_positions(first: int, n_queries: int, wanted: int | None) -> Tensor:
    """Evenly spread positions from ``first`` on."""
    n = n_queries - first if wanted is None else min(wanted, n_queries - first)
    return torch.linspace(first, n_queries - 1, n, dtype=torch.float64).round().long().unique()
