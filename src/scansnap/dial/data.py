"""The data that models are trained and measured on: sequence classes as sequences of tokens, or as counts of tokens.

A batch says which keys there are, how often each counts for which query (as a logarithm, added to the attention
logits), and what comes next. So T = ∞ (counts are probabilities), counts of sampled contexts, and sequences with
positions are one form, and one model reads them all.

    G streams of data (one a seed) · B sequences · Q queries of each · S keys of each · M tokens
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scansnap.classes import SequenceClasses
from scansnap.dial.chain import ChainSampler
from scansnap.dial.components import Flags
from scansnap.dial.sources import CountedClasses, TextSampler, count_classes, parse_source, synthetic
from scansnap.sampling.mixture import MixtureSampler
from scansnap.sampling.philox import Purpose, uniforms
from scansnap.sampling.sampler import Sampler

CONTEXT = 64  # T
SEQUENCES = {"counts": 32, "last": 16}  # in a mini-batch
POSITIONS = 256  # of a mini-batch, where all of them are computed
COPIES = 2  # sequences of a class in the evaluation batch; their tokens are shifted against each other
LAST = 0.5  # share of the loss of the last position, where every position has a target
MASKED = 0.15  # of the other positions, where a mask marks the targets
LEEWAY = 3.4  # factor on the loss of loss matching on text, where no context determines the next word
_FAR = 1 << 30  # offset of the steps from which a control takes its next tokens


@dataclass(frozen=True)
class AttentionBatch:
    """Queries, keys and targets; the first dimension is a stream, or 1 where all streams are the same."""

    keys: Tensor  # (G, B, S) token ids
    queries: Tensor  # (G, B, Q)
    bias: Tensor  # (G, B, Q, S) ln of how often a key counts for a query, −∞ where it is hidden
    target: Tensor  # (G, B, Q)
    weight: Tensor  # (G, B, Q) in the mean loss, summing to 1; 0 where there is no target
    positions: Tensor | None = None  # (G, B, N) queries that target and weight, (G, B, N) too, belong to; None: all

    def of(self, stream: Tensor) -> AttentionBatch:
        """For runs that read these streams: (R, …) each, or 1 where all read the same."""
        return AttentionBatch(*(t if t is None or len(t) == 1 else t[stream] for t in vars(self).values()))

    def last_query(self) -> AttentionBatch:
        """Without the queries before the last."""
        return AttentionBatch(self.keys, self.queries[..., -1:], self.bias[..., -1:, :], self.target[..., -1:],
                              self.weight[..., -1:])  # fmt: skip


class Task:
    """The classes in the form that a model takes: batches of a step, and the batch on which it is measured."""

    def __init__(
        self,
        flags: Flags,
        data: str,
        device: torch.device,
        dtype: torch.dtype,
        context: int = CONTEXT,
        *,
        shuffled: bool = False,
    ) -> None:
        self.flags, self.device, self.dtype, self.context = flags, device, dtype, context
        self.shuffled, source = shuffled, parse_source(data)
        self.leeway = LEEWAY if source.kind == "text" else 1.0
        counts: np.ndarray | None = None
        if source.kind == "text":
            counted, stream = count_classes(source.corpus, context, flags.shared_next)
            counts = counted.contexts.toarray()
            plain = SequenceClasses(**counted.table(), shared_next=flags.shared_next)
            self.sampler: Sampler = TextSampler(counted, stream, context)
        else:
            plain = _sharing(synthetic(source.kind)) if flags.shared_next else synthetic(source.kind)
            draws = ChainSampler if flags.every_position else MixtureSampler
            self.sampler = draws(plain.p_context, plain.query, context=context, next_token=plain.next_token,
                                 p_class=plain.p_class)  # fmt: skip
        size, more = plain.vocab_size, int(flags.bos) + int(flags.masked)
        self.bos, self.mask = (size if flags.bos else -1), (size + flags.bos if flags.masked else -1)
        self.own_query = plain.query
        query = np.full(plain.n_classes, self.mask) if flags.masked else plain.query
        table = (np.pad(plain.p_context, ((0, 0), (0, more))), query, plain.next_token, plain.p_class)
        if counts is None:
            self.classes = SequenceClasses(*table, shared_next=flags.shared_next)
        else:
            counts = np.pad(counts, ((0, 0), (0, more)))
            self.classes = CountedClasses(*table, shared_next=flags.shared_next, counts=counts)
        self.vocab_size, self.n_classes = self.classes.vocab_size, self.classes.n_classes

    def _floats(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device=self.device)

    def _ids(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values, device=self.device)

    @cached_property
    def p_class(self) -> Tensor:
        return self._floats(self.classes.p_class)

    @cached_property
    def next_token(self) -> Tensor:
        return self._ids(self.classes.next_token)

    def batches(self, seeds: Tensor, start: int, stop: int) -> list[AttentionBatch]:
        """A batch for each step: sampled, or the expectation over classes."""
        if not self.flags.finite:
            return [self.expectation] * (stop - start)
        steps, size = torch.arange(start, stop, device=self.device), self.batch_size
        drawn = self.sampler(seeds, steps, size)
        tokens = drawn.tokens  # (G, N, B, T)
        other = self.sampler(seeds, steps + _FAR, size) if self.shuffled else drawn
        following = torch.cat([other.tokens[..., 1:], other.target[..., None]], dim=-1)  # after every position
        if not self.flags.sequences:
            counts = self._count_tokens(tokens)  # (G, N, B, M)
            query = torch.full_like(tokens[..., -1], self.mask) if self.flags.masked else tokens[..., -1]
            weight = torch.full(query.shape, 1 / size, dtype=self.dtype, device=self.device)
            return [self._count_batch(query[:, i], counts[:, i], following[:, i, :, -1], weight[:, i])
                    for i in range(len(steps))]  # fmt: skip
        uniform = torch.ones(tokens.shape, device=self.device)
        if self.flags.masked and self.flags.every_position:
            place = torch.arange(size * self.context, device=self.device).reshape(size, self.context)
            draw = torch.ones(1, dtype=torch.int64, device=self.device)
            uniform, _ = uniforms(seeds[:, None, None, None], Purpose.NEXT, steps[:, None, None], draw, place)
        return [self._sequence_batch(tokens[:, i], following[:, i], uniform[:, i]) for i in range(len(steps))]

    @property
    def batch_size(self) -> int:
        """Sequences in a mini-batch."""
        return SEQUENCES.get(self.flags.asking, max(1, POSITIONS // self.context))

    # --- without positions -----------------------------------------------------------------------------------

    @cached_property
    def expectation(self) -> AttentionBatch:
        """All classes at T = ∞ with their weights; with shuffled next tokens each class with each next token."""
        k, weight = self.n_classes, self.p_class
        rows = following = torch.arange(k, device=self.device)
        if self.shuffled:
            rows, following, weight = rows.repeat_interleave(k), rows.repeat(k), torch.outer(weight, weight).flatten()
        query = self._ids(self.classes.query)[rows]
        return self._count_batch(query[None], self._population[rows][None], self.next_token[following][None],
                                 weight[None])  # fmt: skip

    @cached_property
    def _population(self) -> Tensor:
        """The weight of each key at T = ∞, (K, M); a token that a sequence has once counts 1/(T − 1)."""
        p = self._floats(self.classes.p_context)
        if self.flags.masked:
            p[torch.arange(self.n_classes, device=self.device), self._ids(self.own_query)] += 1 / (self.context - 1)
        return p

    def _count_batch(self, query: Tensor, counts: Tensor, target: Tensor, weight: Tensor) -> AttentionBatch:
        """Every token is a key once, and the sequences are queries of it: (G, B) and (G, B, M) → one row of queries."""
        keys = torch.arange(self.vocab_size, device=self.device).expand(len(query), 1, -1)
        return AttentionBatch(keys, query[:, None], counts.log()[:, None], target[:, None], weight[:, None])

    def _count_tokens(self, tokens: Tensor) -> Tensor:
        """(…, T) with the query last → (…, M); the query itself counts only where a mask takes its place."""
        keys = tokens if self.flags.masked else tokens[..., :-1]
        counts = torch.zeros(*tokens.shape[:-1], self.vocab_size, dtype=self.dtype, device=self.device)
        return counts.scatter_add_(-1, keys, torch.ones_like(keys, dtype=self.dtype))

    # --- with positions --------------------------------------------------------------------------------------

    def _sequence_batch(self, tokens: Tensor, following: Tensor, uniform: Tensor) -> AttentionBatch:
        """(G, B, T) tokens, the token after each, and a random number in [0, 1) for each position."""
        tokens = tokens.clone()
        if self.flags.masked:  # drop the first token and append a mask: ``following`` is then what the masks hide
            tokens = torch.cat([tokens[..., 1:], torch.full_like(tokens[..., :1], self.mask)], dim=-1)
        if self.flags.bos:
            tokens[..., 0] = self.bos
        bias = self._visibility.expand(*tokens.shape[:2], -1, -1)
        if not self.flags.every_position:
            weight = torch.zeros(tokens.shape, dtype=self.dtype, device=self.device)
            weight[..., -1] = 1 / tokens.shape[1]
        else:
            has_target = torch.ones_like(tokens, dtype=torch.bool)
            if self.flags.masked:
                has_target = uniform < MASKED
                has_target[..., -1] = True
                tokens = torch.where(has_target, self.mask, tokens)
            else:
                has_target[..., 0] = False  # nothing comes before it
            others = has_target.clone()
            others[..., -1] = False
            weight = (1 - LAST) * others.to(self.dtype) / others.sum((1, 2), keepdim=True).clamp_min(1)
            weight[..., -1] = LAST / tokens.shape[1]
        return self._drop_idle_queries(AttentionBatch(tokens, tokens, bias, following, weight))

    @cached_property
    def _visibility(self) -> Tensor:
        """(1, 1, T, T) 0 for keys before the query (a mask: for all others), else −∞; the first has only itself."""
        before = torch.ones(self.context, self.context, dtype=torch.bool, device=self.device).tril(-1)
        before[0, 0] = True
        if self.flags.masked:
            before = ~torch.eye(self.context, dtype=torch.bool, device=self.device)
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        return torch.where(before, zero, -torch.inf)[None, None]

    def _drop_idle_queries(self, batch: AttentionBatch) -> AttentionBatch:
        """Leave out queries of the last layer that have no target: all but the last, or all but the masks.

        Sequences differ in their number of masks; shorter ones are filled up with positions of weight 0. The largest
        number changes from step to step, so a step that is recorded as a CUDA graph computes all positions.
        """
        if self.flags.every_position and self.flags.masked and self.device.type == "cpu":
            idle = batch.weight == 0
            positions = idle.sort(dim=-1, stable=True).indices[..., : self.context - int(idle.sum(-1).min())]
            target, weight = (t.gather(-1, positions) for t in (batch.target, batch.weight))
            return replace(batch, target=target, weight=weight, positions=positions)
        return batch if self.flags.every_position or self.flags.layers > 1 else batch.last_query()

    # --- evaluation ------------------------------------------------------------------------------------------

    @cached_property
    def evaluation(self) -> AttentionBatch:
        """The batch on which models are measured: every class at T = ∞, its query last.

        With positions each class has several copies with shifted tokens, and each token counts so much that all its
        places together count as P(l|n): for one layer without positions that is T = ∞ exactly, where they fit into T.
        """
        k, copies = self.n_classes, self.copies
        if not self.flags.sequences:
            query = self._ids(self.classes.query)
            return self._count_batch(query[None], self._population[None], self.next_token[None], self.p_class[None])
        first, end = int(self.flags.bos), self.context - 1 - int(self.flags.masked)
        tokens = np.zeros((k, copies, self.context), dtype=np.int64)
        for n, p in enumerate(self.classes.p_context):
            tokens[n] = _place_tokens(p, copies, first, end, self.context)
        tokens[..., -1] = self.classes.query[:, None]
        if self.flags.masked:
            tokens[..., -2] = self.own_query[:, None]
        tokens[..., :first] = self.bos
        flat, rows = self._ids(tokens.reshape(k * copies, self.context)), self.evaluation_class
        counts = torch.zeros(len(flat), self.vocab_size, dtype=self.dtype, device=self.device)
        counts.scatter_add_(1, flat[:, first:end], torch.ones_like(flat[:, first:end], dtype=self.dtype))
        p = self._floats(self.classes.p_context)[rows]
        n_with = (counts > 0).unflatten(0, (k, copies)).sum(1)[rows]  # copies of the class that contain a token
        count = ((end - first) * p * (copies / n_with.clamp_min(1)) / counts.clamp_min(1)).gather(1, flat)
        count[:, :first] = 1
        count[:, end:] = 1
        bias = self._visibility.expand(1, len(flat), -1, -1) + count.log()[None, :, None]
        weight = torch.zeros(1, len(flat), self.context, dtype=self.dtype, device=self.device)
        weight[..., -1] = self.p_class[rows] / copies
        target = self.next_token[rows][None, :, None].expand(-1, -1, self.context)
        batch = AttentionBatch(flat[None], flat[None], bias, target, weight)
        return batch if self.flags.layers > 1 else batch.last_query()

    @cached_property
    def evaluation_class(self) -> Tensor:
        """The class of each sequence (or query) of `evaluation`."""
        return torch.arange(self.n_classes, device=self.device).repeat_interleave(self.copies)

    @cached_property
    def copies(self) -> int:
        """Sequences of each class in the evaluation batch: as many as its tokens fill, and at least two."""
        if not self.flags.sequences:
            return 1
        most = int((self.classes.p_context > 0).sum(1).max())
        room = self.context - 1 - int(self.flags.masked) - int(self.flags.bos)
        return COPIES if most <= room else 1 + math.ceil(most / room)

    @cached_property
    def next_distribution(self) -> Tensor:
        """(K, M) distribution of the token after each class: its next token, or any where they are shuffled."""
        rows = torch.zeros(self.n_classes, self.vocab_size, dtype=self.dtype, device=self.device)
        rows[torch.arange(self.n_classes, device=self.device), self.next_token] = 1
        return (self.p_class @ rows).expand(self.n_classes, -1) if self.shuffled else rows


def _sharing(plain: SequenceClasses) -> SequenceClasses:
    """Classes in which the first next token of all queries is the same, and so on."""
    place = np.array([np.sum(plain.query[:n] == m) for n, m in enumerate(plain.query)])
    following = plain.next_token[: place.max() + 1][place]
    return SequenceClasses(plain.p_context, plain.query, following, plain.p_class, shared_next=True)


def _place_tokens(p: np.ndarray, copies: int, first: int, end: int, context: int) -> np.ndarray:
    """(copies, T) the tokens of a class in positions ``first`` to ``end``, each of them in every copy.

    Where they do not fit, the frequent ones are in all copies and each of the others in one, so that copies weigh
    alike.
    """
    support, room = np.flatnonzero(p), end - first
    if len(support) <= room:
        place = np.arange(context) + (np.arange(copies) * len(support) // copies)[:, None]
        return np.asarray(support[place % len(support)])
    order = support[np.argsort(-p[support], kind="stable")]
    n_frequent = (copies * room - len(support)) // (copies - 1)  # in all copies: n + (S − n)/copies ≤ room
    rare = order[n_frequent:]
    row = np.arange(len(rare)) % copies
    row = np.where(np.arange(len(rare)) // copies % 2, copies - 1 - row, row)  # there and back
    out = np.zeros((copies, context), dtype=np.int64)
    for copy in range(copies):
        out[copy, first:end] = np.resize(np.concatenate([order[:n_frequent], rare[row == copy]]), room)
    return out
