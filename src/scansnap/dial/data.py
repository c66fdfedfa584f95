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
TURNS = 2  # sequences of a class that a model is read on: its tokens moved on by half of them
LAST = 0.5  # share of the loss that the query at the end has, where every position is asked
MASKED = 0.15  # of the other positions, where masks are asked
LEEWAY = 3.4  # tenths of the loss on text when the YZ model is at one tenth on classes: text leaves words open
_FAR = 1 << 30  # steps whose next tokens serve for others: those of the control


@dataclass(frozen=True)
class AttentionBatch:
    """Queries, keys and targets; the first dimension is a stream, or 1 where all streams are the same."""

    keys: Tensor  # (G, B, S) token ids
    queries: Tensor  # (G, B, Q)
    bias: Tensor  # (G, B, Q, S) ln of how often a key counts for a query, −∞ where it is not seen
    target: Tensor  # (G, B, Q)
    weight: Tensor  # (G, B, Q) in the mean loss, summing to 1; 0 where nothing is asked
    asked: Tensor | None = None  # (G, B, N) positions that targets and weights are of, (G, B, N) too; None: the queries

    def of(self, stream: Tensor) -> AttentionBatch:
        """For runs that read these streams: (R, …) each, or 1 where all read the same."""
        return AttentionBatch(*(t if t is None or len(t) == 1 else t[stream] for t in vars(self).values()))


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
        self.leeway = LEEWAY if source.kind == "text" else 1.0  # times as high a loss, for loss matching
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
        asked = np.full(plain.n_classes, self.mask) if flags.masked else plain.query
        table = (np.pad(plain.p_context, ((0, 0), (0, more))), asked, plain.next_token, plain.p_class)
        self.classes = (
            SequenceClasses(*table, shared_next=flags.shared_next)
            if counts is None
            else CountedClasses(*table, shared_next=flags.shared_next, counts=np.pad(counts, ((0, 0), (0, more))))
        )
        self.vocab_size, self.n_classes = self.classes.vocab_size, self.classes.n_classes

    def batches(self, seeds: Tensor, start: int, stop: int) -> list[AttentionBatch]:
        """A batch for each step: sampled, or the expectation over classes."""
        if not self.flags.finite:
            return [self.expectation] * (stop - start)
        steps, size = torch.arange(start, stop, device=self.device), self.batch_size
        drawn = self.sampler(seeds, steps, size)
        tokens = drawn.tokens  # (G, N, B, T)
        other = self.sampler(seeds, steps + _FAR, size) if self.shuffled else drawn
        wanted = torch.cat([other.tokens[..., 1:], other.target[..., None]], dim=-1)  # after every position
        if not self.flags.sequences:
            counts = self._counts(tokens)  # (G, N, B, M)
            query = self._ids(tokens[..., -1])
            weight = torch.full(query.shape, 1 / size, dtype=self.dtype, device=self.device)
            return [self._counted(query[:, i], counts[:, i], wanted[:, i, :, -1], weight[:, i])
                    for i in range(len(steps))]  # fmt: skip
        chance = torch.ones(tokens.shape, device=self.device)
        if self.flags.masked and self.flags.every_position:
            place = torch.arange(size * self.context, device=self.device).reshape(size, self.context)
            draw = torch.ones(1, dtype=torch.int64, device=self.device)
            chance, _ = uniforms(seeds[:, None, None, None], Purpose.NEXT, steps[:, None, None], draw, place)
        return [self._sequences(tokens[:, i], wanted[:, i], chance[:, i]) for i in range(len(steps))]

    @property
    def batch_size(self) -> int:
        """Sequences in a mini-batch."""
        return SEQUENCES.get(self.flags.asking, max(1, POSITIONS // self.context))

    # --- without positions -----------------------------------------------------------------------------------

    @cached_property
    def expectation(self) -> AttentionBatch:
        """All classes at T = ∞ with their weights; with shuffled next tokens each class with each next token."""
        k, p = self.n_classes, torch.tensor(self.classes.p_class, dtype=self.dtype, device=self.device)
        of, then = torch.arange(k, device=self.device), torch.arange(k, device=self.device)
        weight = p
        if self.shuffled:
            of, then, weight = of.repeat_interleave(k), then.repeat(k), torch.outer(p, p).flatten()
        target = torch.tensor(self.classes.next_token, device=self.device)[then]
        return self._counted(self._class_query[of][None], self._population[of][None], target[None], weight[None])

    @cached_property
    def _class_query(self) -> Tensor:
        return torch.tensor(self.classes.query, device=self.device)

    @cached_property
    def _population(self) -> Tensor:
        """The weight of each key at T = ∞, (K, M); a token that a sequence has once counts 1/(T − 1)."""
        p = torch.tensor(self.classes.p_context, dtype=self.dtype, device=self.device)
        if self.flags.masked:
            p[torch.arange(self.n_classes, device=self.device), torch.tensor(self.own_query, device=self.device)] += (
                1 / (self.context - 1)
            )
        return p

    def _counted(self, query: Tensor, counts: Tensor, target: Tensor, weight: Tensor) -> AttentionBatch:
        """Every token is a key once, and the sequences are queries of it: (G, B) and (G, B, M) → one row of queries."""
        keys = torch.arange(self.vocab_size, device=self.device).expand(len(query), 1, -1)
        return AttentionBatch(keys, query[:, None], counts.log()[:, None], target[:, None], weight[:, None])

    def _counts(self, tokens: Tensor) -> Tensor:
        """(…, T) with the query last → (…, M), in which the query itself counts only where a mask asks."""
        keys = tokens if self.flags.masked else tokens[..., :-1]
        counts = torch.zeros(*tokens.shape[:-1], self.vocab_size, dtype=self.dtype, device=self.device)
        return counts.scatter_add_(-1, keys, torch.ones_like(keys, dtype=self.dtype))

    def _ids(self, query: Tensor) -> Tensor:
        return torch.full_like(query, self.mask) if self.flags.masked else query

    # --- with positions --------------------------------------------------------------------------------------

    def _sequences(self, tokens: Tensor, wanted: Tensor, chance: Tensor) -> AttentionBatch:
        """(G, B, T) tokens, the token after each, and a chance for each position."""
        tokens = tokens.clone()
        if self.flags.masked:  # less the first, and a mask for what comes next: then ``wanted`` is what stood here
            tokens = torch.cat([tokens[..., 1:], torch.full_like(tokens[..., :1], self.mask)], dim=-1)
        if self.flags.bos:
            tokens[..., 0] = self.bos
        bias = self._sight.expand(*tokens.shape[:2], -1, -1)
        if not self.flags.every_position:
            weight = torch.zeros(tokens.shape, dtype=self.dtype, device=self.device)
            weight[..., -1] = 1 / tokens.shape[1]
        else:
            asked = torch.ones_like(tokens, dtype=torch.bool)
            if self.flags.masked:
                asked = chance < MASKED
                asked[..., -1] = True
                tokens = torch.where(asked, self.mask, tokens)
            else:
                asked[..., 0] = False  # nothing comes before it
            others = asked.clone()
            others[..., -1] = False
            weight = (1 - LAST) * others.to(self.dtype) / others.sum((1, 2), keepdim=True).clamp_min(1)
            weight[..., -1] = LAST / tokens.shape[1]
        return self._cut(AttentionBatch(tokens, tokens, bias, wanted, weight))

    @cached_property
    def _sight(self) -> Tensor:
        """(1, 1, T, T) 0 for keys before the query (a mask: for all others), else −∞; the first has only itself."""
        before = torch.ones(self.context, self.context, dtype=torch.bool, device=self.device).tril(-1)
        before[0, 0] = True
        if self.flags.masked:
            before = ~torch.eye(self.context, dtype=torch.bool, device=self.device)
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        return torch.where(before, zero, -torch.inf)[None, None]

    def _cut(self, batch: AttentionBatch) -> AttentionBatch:
        """Leave out queries of the last layer that have no target: all but the end, or all but the masks.

        Of masks there are more in some sequences than in others; the rest is filled up with positions of weight 0. How
        many that makes changes from step to step, so a step that is recorded as a CUDA graph asks everywhere.
        """
        if self.flags.every_position and self.flags.masked and self.device.type == "cpu":
            idle = batch.weight == 0
            asked = idle.sort(dim=-1, stable=True).indices[..., : self.context - int(idle.sum(-1).min())]
            target, weight = (t.gather(-1, asked) for t in (batch.target, batch.weight))
            return replace(batch, target=target, weight=weight, asked=asked)
        if self.flags.every_position or self.flags.layers > 1:
            return batch
        return AttentionBatch(batch.keys, batch.queries[..., -1:], batch.bias[..., -1:, :], batch.target[..., -1:],
                     batch.weight[..., -1:])  # fmt: skip

    # --- reading ---------------------------------------------------------------------------------------------

    @cached_property
    def reading(self) -> AttentionBatch:
        """The batch on which models are measured: every class at T = ∞, its query last.

        With positions the tokens of a class take turns in them, and each counts so much that all of a token's places
        together count as P(l|n): for one layer without positions that is T = ∞ exactly, where they fit into T.
        """
        k = self.n_classes
        if not self.flags.sequences:
            weight = torch.tensor(self.classes.p_class, dtype=self.dtype, device=self.device)
            target = torch.tensor(self.classes.next_token, device=self.device)
            return self._counted(self._class_query[None], self._population[None], target[None], weight[None])
        first, end = int(self.flags.bos), self.context - 1 - int(self.flags.masked)
        tokens = np.zeros((k, self.turns, self.context), dtype=np.int64)
        for n, p in enumerate(self.classes.p_context):
            tokens[n] = _laid_out(p, self.turns, first, end, self.context)
        tokens[..., -1] = self.classes.query[:, None]
        if self.flags.masked:
            tokens[..., -2] = self.own_query[:, None]
        tokens[..., :first] = self.bos
        flat = torch.as_tensor(tokens.reshape(k * self.turns, self.context), device=self.device)
        of = self.read_class
        times = torch.zeros(len(flat), self.vocab_size, dtype=self.dtype, device=self.device)
        times.scatter_add_(1, flat[:, first:end], torch.ones_like(flat[:, first:end], dtype=self.dtype))
        p = torch.tensor(self.classes.p_context, dtype=self.dtype, device=self.device)[of]
        rows = (times > 0).unflatten(0, (k, self.turns)).sum(1)[of]  # of the class, in which a token is
        each = ((end - first) * p * (self.turns / rows.clamp_min(1)) / times.clamp_min(1)).gather(1, flat)
        each[:, :first] = 1
        each[:, end:] = 1
        sight = self._sight.expand(1, len(flat), -1, -1)
        weight = torch.zeros(1, len(flat), self.context, dtype=self.dtype, device=self.device)
        weight[..., -1] = torch.tensor(self.classes.p_class, dtype=self.dtype, device=self.device)[of] / self.turns
        target = torch.tensor(self.classes.next_token, device=self.device)[of]
        whole = AttentionBatch(flat[None], flat[None], sight + each.log()[None, :, None],
                      target[None, :, None].expand(-1, -1, self.context), weight)  # fmt: skip
        if self.flags.layers > 1:
            return whole
        return AttentionBatch(whole.keys, whole.queries[..., -1:], whole.bias[..., -1:, :], whole.target[..., -1:],
                     whole.weight[..., -1:])  # fmt: skip

    @cached_property
    def read_class(self) -> Tensor:
        """The class of each sequence (or query) of `reading`."""
        return torch.arange(self.n_classes, device=self.device).repeat_interleave(self.turns)

    @cached_property
    def turns(self) -> int:
        """Sequences of each class in the measured batch: as many as its tokens fill, and at least two."""
        if not self.flags.sequences:
            return 1
        most = int((self.classes.p_context > 0).sum(1).max())
        room = self.context - 1 - int(self.flags.masked) - int(self.flags.bos)
        return TURNS if most <= room else 1 + math.ceil(most / room)

    @cached_property
    def next_distribution(self) -> Tensor:
        """(K, M) distribution of the token after each class: its next token, or any where they are shuffled."""
        rows = torch.zeros(self.n_classes, self.vocab_size, dtype=self.dtype, device=self.device)
        following = torch.tensor(self.classes.next_token, device=self.device)
        rows[torch.arange(self.n_classes, device=self.device), following] = 1
        if self.shuffled:
            p = torch.tensor(self.classes.p_class, dtype=self.dtype, device=self.device)
            rows[:] = p @ rows
        return rows


def _sharing(plain: SequenceClasses) -> SequenceClasses:
    """Classes in which the first next token of all queries is the same, and so on."""
    place = np.array([np.sum(plain.query[:n] == m) for n, m in enumerate(plain.query)])
    following = plain.next_token[: place.max() + 1][place]
    return SequenceClasses(plain.p_context, plain.query, following, plain.p_class, shared_next=True)


def _laid_out(p: np.ndarray, turns: int, first: int, end: int, context: int) -> np.ndarray:
    """(turns, T) the tokens of a class in positions ``first`` to ``end``, each of them in every turn.

    Where they do not fit the frequent ones are in all turns and the others in one each, so that turns weigh alike.
    """
    support, room = np.flatnonzero(p), end - first
    if len(support) <= room:
        place = np.arange(context) + (np.arange(turns) * len(support) // turns)[:, None]
        return np.asarray(support[place % len(support)])
    order = support[np.argsort(-p[support], kind="stable")]
    often = (turns * room - len(support)) // (turns - 1)  # in all turns: often + (S − often)/turns ≤ room
    rare = order[often:]
    row = np.arange(len(rare)) % turns
    row = np.where(np.arange(len(rare)) // turns % 2, turns - 1 - row, row)  # there and back
    out = np.zeros((turns, context), dtype=np.int64)
    for turn in range(turns):
        own = np.concatenate([order[:often], rare[row == turn]])
        out[turn, first:end] = np.resize(own, room)
    return out
