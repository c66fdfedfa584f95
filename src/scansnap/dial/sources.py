"""The data of a cell, by name: ``syn-medium``, ``zipf``, ``textbook``, ``text`` or ``text:CORPUS``.

``+bos`` at the end prepends a constant token to every sequence. The name determines the data.

Text: classes are pairs (query word, next word) counted in a corpus. P(l|n) counts the T − 1 words before the pair.
Models are trained on windows of the text that end with such a pair. No word occurs in one class only. Among the classes
of a query a word is

    distinct to n   if P(l|n) is at least ``TWICE`` as large as in each other class
    common          if it is distinct to none

and neither if it occurs fewer than ``LEAST`` times in the contexts of the query. A word that is distinct to another
class of the query is not in the support of n.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_choice
from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.classes import SequenceClasses
from scansnap.corpus import find_corpus, load_corpus
from scansnap.corpus.cooccurrence import Cooccurrence, cooccurrence
from scansnap.dial.components import Flags
from scansnap.sampling.counts import SamplingTable, sample_classes
from scansnap.sampling.philox import Purpose, uniforms
from scansnap.sampling.sampler import Sequences, digest, even

KINDS = ("syn-medium", "zipf", "textbook", "text")
BOS = "+bos"


@dataclass(frozen=True)
class DataSource:
    """The parts of a name; ``corpus`` is for text alone, a folder, a file or a name that ``find_corpus`` knows."""

    kind: str = "syn-medium"
    corpus: str | None = None
    bos: bool = False

    def __post_init__(self) -> None:
        check_choice("data", self.kind, KINDS)
        if self.corpus is not None and self.kind != "text":
            raise InputError("corpus", self.corpus, f"left out with the data {self.kind}: it is for text")
        if self.kind == "text":
            try:
                find_corpus(self.corpus)  # a missing corpus is refused before any work
            except InputError as error:
                raise error.with_field("corpus") from None

    @property
    def name(self) -> str:
        return self.kind + (f":{self.corpus}" if self.corpus else "") + BOS * self.bos

    @property
    def file(self) -> str:
        """The name as part of a file's."""
        short = f"-{hashlib.sha256(self.corpus.encode()).hexdigest()[:8]}" if self.corpus else ""
        return self.kind + short + BOS * self.bos

    @property
    def options(self) -> str:
        """As on the command line."""
        kind = f" --data {self.kind}" if self.kind != "syn-medium" else ""
        return kind + (f" --corpus {shlex.quote(self.corpus)}" if self.corpus else "") + " --bos" * self.bos

    @property
    def content(self) -> str:
        """Fingerprint of the text; empty if the name determines the data."""
        return find_corpus(self.corpus).fingerprint() if self.kind == "text" else ""

    def changes(self, flags: Flags) -> Flags:
        """A model's flags on these data: a first token has a position, so contexts are finite."""
        return replace(flags, finite=True, bos=True) if self.bos else flags


def parse_source(data: str) -> DataSource:
    """The source of a name."""
    if not isinstance(data, str):
        raise InputError("data", data, "one of " + ", ".join(KINDS))
    plain = data.removesuffix(BOS)
    kind, _, corpus = plain.partition(":")
    return DataSource(kind, corpus or None, plain != data)


def synthetic(kind: str) -> SequenceClasses:
    """Syn-Medium(3); the same with p_n ∝ 1/n; one common token and one query as in ``textbook``."""
    if kind == "textbook":  # with unit vectors for tokens the whole vocabulary of 2014 would be M × M numbers a run
        return SequenceClasses.synthetic(next_per_query=2, common=1, distinct=5, common_weight=0.8, unused=60)
    classes = SequenceClasses.syn_medium(n_queries=3)
    if kind != "zipf":
        return classes
    p = 1 / np.arange(1, classes.n_classes + 1)
    return SequenceClasses(classes.p_context, classes.query, classes.next_token, p / p.sum())


WORDS = 200  # M
QUERIES, NEXT = 3, 2
TWICE = 2.0
LEAST = 20


def count_classes(corpus: str | None, context: int, shared: bool) -> tuple[Cooccurrence, IntArray]:
    """The counts of a corpus and its training stream; with ``shared`` queries may have the same next words."""
    return _count_classes(corpus, find_corpus(corpus).fingerprint(), context, shared)


@lru_cache(maxsize=4)
def _count_classes(corpus: str | None, content: str, context: int, shared: bool) -> tuple[Cooccurrence, IntArray]:
    text = load_corpus(corpus, max_words=WORDS)
    queries = [word for word in text.words if word.isalpha()][:QUERIES]
    if len(queries) < QUERIES:
        raise InputError("corpus", str(corpus), f"a text with at least {QUERIES} words of letters alone")
    counts = cooccurrence(text, queries=queries, next_per_query=NEXT, top=None, window=context - 1, disjoint=not shared)
    stream = text.train.astype(np.int64)
    for query, after in zip(counts.query, counts.next_token, strict=True):
        if not len(places(stream, query, after, context)):
            pair = f"{counts.words[query]} {counts.words[after]}"
            raise InputError("corpus", str(corpus), f"a text with {context} words before some {pair!r}")
    return counts, stream


def places(stream: IntArray, query: int, after: int, context: int) -> IntArray:
    """Positions of the query that are followed by the next word and have T − 1 words before them."""
    return context - 1 + np.flatnonzero((stream[context - 1 : -1] == query) & (stream[context:] == after))


class CountedClasses(SequenceClasses):
    """Classes whose distinct and common tokens are decided by counts, among the classes of a query."""

    def __init__(self, *args: Any, counts: FloatArray, **options: Any) -> None:
        super().__init__(*args, **options)
        p = self.p_context
        same = (self.query[:, None] == self.query) & ~np.eye(self.n_classes, dtype=bool)
        highest = np.stack([np.max(p[others], axis=0, initial=0.0) for others in same])  # elsewhere, (K, M)
        times = np.stack([counts[self.query == m].sum(0) for m in self.query])
        own = (p > 0) & (p >= TWICE * highest) & (times >= LEAST)
        elsewhere = np.stack([own[others].any(0) for others in same])
        self._own, self._shared = own, (p > 0) & ~own & ~elsewhere & (times >= LEAST)

    def distinct(self, n: int, local: bool = False) -> IntArray:
        """Distinct tokens of class n, which here are always local to its query."""
        return np.flatnonzero(self._own[n])

    def common_of(self, n: int, local: bool = False) -> IntArray:
        """Common tokens of class n and the others of its query."""
        return np.flatnonzero(self._shared[n])

    def support(self, n: int) -> tuple[IntArray, FloatArray]:
        """The distinct and common tokens of class n with their P(l|n), which sum to less than 1."""
        tokens = np.flatnonzero(self._own[n] | self._shared[n])
        return tokens, self.p_context[n, tokens]


class TextSampler:
    """Windows of a text, each ending with the query of a class; the class by p_n, then any of its places."""

    def __init__(self, counts: Cooccurrence, stream: IntArray, context: int) -> None:
        self.context, self.vocab_size = context, len(counts.words)
        at = [places(stream, *pair, context) for pair in zip(counts.query, counts.next_token, strict=True)]
        self.stream, self.next_token = stream, counts.next_token
        self.places, self.first = np.concatenate(at), np.cumsum([0, *map(len, at)])
        self.table = SamplingTable(counts.pair_counts / counts.pair_counts.sum(), np.ones((len(at), 1)))

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        cls = sample_classes(self.table, seeds, steps, batch_size)  # (G, N, B)
        stream, places, first, following = (
            torch.as_tensor(a, device=seeds.device) for a in (self.stream, self.places, self.first, self.next_token)
        )
        sample = torch.arange(batch_size, device=seeds.device)
        u, _ = uniforms(seeds[:, None, None], Purpose.TOKEN, steps[:, None], torch.zeros_like(sample), sample)
        end = places[first[cls] + (u * (first[cls + 1] - first[cls])).long()]
        tokens = stream[end[..., None] + torch.arange(1 - self.context, 1, device=seeds.device)]
        return Sequences(tokens, following[cls], even(tokens))

    def describe(self) -> str:
        return f"windows of {self.context} words {digest(self.stream, self.places)}"
