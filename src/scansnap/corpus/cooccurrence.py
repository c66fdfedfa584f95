"""Co-occurrence counts of a corpus, from which sequence classes are made.

At position i the query is x_i, the next word x_{i+1}, and the context x_{i−window} … x_{i−1}: the query does not
attend to itself. A class is a pair (query, next word); P(l|n) is the frequency of l in the contexts of the pair.

**One class per next word.** In the theory the next token determines its query. In text it does not ("of the", "in
the"), and `scansnap.classes.SequenceClasses` refuses two classes with the same next token. Pairs are therefore chosen
greedily by their count, and a next word belongs to one query (``disjoint=True``). ``share`` is the share of the
queries' occurrences that the chosen pairs cover. With ``disjoint=False`` a next word may be in several pairs, which is
enough for measures of distinctness.

**Lines.** Contexts cross <eos> by default, as the windows of language models do. With ``cross_eos=False`` they stop at
the start of the line.

The stream is read twice in blocks, so memory does not depend on its length.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from scansnap.checks import InputError, check_choice, check_integer, check_keys
from scansnap.checks.arrays import IntArray
from scansnap.corpus.corpus import Corpus, load_corpus
from scansnap.corpus.encoding import split_into_blocks
from scansnap.corpus.sources import SPLITS, TextSource
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.progress import Progress

CONTEXT_BLOCK = 2**22  # context tokens gathered at a time
DENSE_CELLS = 2**22  # tables up to this size are counted densely (32 MiB)


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """Counts of K pairs over the ``top`` most frequent words."""

    query: IntArray  # (K,) word ids
    next_token: IntArray  # (K,)
    pair_counts: IntArray  # (K,) how often the query is followed by the next word
    contexts: Any  # (K, top) sparse: how often each word occurs in the pair's contexts
    query_total: int  # occurrences of the queries before any word
    window: int
    cross_eos: bool
    words: tuple[str, ...]  # of the top columns

    @property
    def share(self) -> float:
        """Share of the queries' occurrences that the pairs cover."""
        return float(self.pair_counts.sum() / self.query_total)

    def table(self) -> dict[str, Any]:
        """The arguments of ``SequenceClasses``: P(l|n) from the contexts, p_n from the pair counts, and the words."""
        totals = self.contexts.sum(axis=1)
        if not totals.all():
            n = int(np.flatnonzero(totals == 0)[0])
            pair = f"{self.words[self.query[n]]} {self.words[self.next_token[n]]}"
            expected = "a pair with context words among the top words"
            raise InputError("queries", pair, expected, f"increase top (now {len(self.words)})")
        table = sparse.csr_array(self.contexts / totals[:, None])
        p_class = self.pair_counts / self.pair_counts.sum()
        return {"p_context": table, "query": self.query, "next_token": self.next_token, "p_class": p_class,
                "words": self.words}  # fmt: skip


def cooccurrence(
    corpus: Corpus,
    *,
    queries: int | Sequence[str] = 10,
    next_per_query: int = 2,
    top: int | None = 1000,
    window: int = 35,
    cross_eos: bool = True,
    disjoint: bool = True,
    split: str = "train",
    progress: Progress | None = None,
) -> Cooccurrence:
    """Count the contexts of the most frequent pairs of a corpus.

    ``queries``: a number of the most frequent words (without <unk> and <eos>), or the words themselves. Each gets its
    ``next_per_query`` most frequent next words, or fewer. Queries, next words
    and contexts are all among the ``top`` most frequent words (None: all). ``progress(done, total)`` in tokens.
    """
    tokens, vocabulary = corpus.split(check_choice("split", split, SPLITS)), corpus.vocabulary
    top = len(vocabulary) if top is None else min(check_integer("top", top, least=1), len(vocabulary))
    check_integer("next_per_query", next_per_query, least=1)
    check_integer("window", window, least=1)

    def blocks(first_pass: bool) -> Iterator[np.ndarray]:
        done = 0 if first_pass else tokens.size
        for block in split_into_blocks(tokens):
            yield block
            done += len(block)
            if progress is not None:
                progress(done, 2 * tokens.size)

    ids = _query_ids(queries, vocabulary, top)
    pairs = pair_counts(blocks(first_pass=True), ids, len(vocabulary))
    row, token, n = _choose(pairs, [vocabulary.unk, vocabulary.eos], top, next_per_query, disjoint)
    for i, word in enumerate(ids):
        if i not in row:
            expected = f"words before one of the {top} most frequent words that no other query has"
            raise InputError("queries", vocabulary.words[word], expected)
    eos = None if cross_eos else vocabulary.eos
    contexts = context_counts(blocks(first_pass=False), ids[row], token, top=top, window=window, eos=eos)
    return Cooccurrence(ids[row], token, n, contexts, int(pairs.sum()), window, cross_eos, vocabulary.words[:top])


def of_text(corpus: Corpus | TextSource | Path | str | None = None, **settings: Any) -> Cooccurrence:
    """The counts of a corpus, or of a text that `scansnap.corpus.corpus.load_corpus` reads."""
    known = inspect.signature(cooccurrence).parameters
    check_keys("from_corpus", settings, [name for name in known if name not in ("corpus", "disjoint")])
    return cooccurrence(corpus if isinstance(corpus, Corpus) else load_corpus(corpus), **settings)


def pair_counts(blocks: Iterable[np.ndarray], queries: IntArray, vocab_size: int) -> Any:
    """(Q, M) sparse: how often each word follows each query in the stream."""
    table = _Table(len(queries), vocab_size)
    row_of = np.full(vocab_size, -1, np.int32)
    row_of[queries] = np.arange(len(queries))
    last = np.zeros(0, np.int32)
    for block in blocks:
        stream = np.concatenate([last, block])
        row = row_of[stream[:-1]]
        at = np.flatnonzero(row >= 0)
        table.add(row[at].astype(np.int64) * vocab_size + stream[at + 1])
        last = stream[-1:]
    return table.sparse()


def context_counts(
    blocks: Iterable[np.ndarray],
    query: IntArray,
    next_token: IntArray,
    *,
    top: int,
    window: int = 35,
    eos: int | None = None,
) -> Any:
    """(K, top) sparse: how often each word occurs in the ``window`` tokens before each pair (query, next token).

    Words from ``top`` on are not counted; with ``eos`` given, contexts stop after its last occurrence.
    """
    width = top + 1  # the last column is for words that do not count
    table = _Table(len(query), width)
    span = int(max(query.max(), next_token.max())) + 1
    keys = query * span + next_token
    by_key = np.argsort(keys)
    keys = keys[by_key]
    is_query = np.zeros(span + 1, dtype=bool)
    is_query[query] = True
    step = max(1, CONTEXT_BLOCK // window)
    stream = np.full(window, -1, np.int64)  # nothing before the beginning
    for block in blocks:
        stream = np.concatenate([stream, block])  # with up to window + 1 tokens before the block
        at = window + np.flatnonzero(is_query[np.minimum(stream[window:-1], span)])
        at = at[stream[at + 1] < span]
        pair = stream[at] * span + stream[at + 1]
        index = np.minimum(np.searchsorted(keys, pair), len(keys) - 1)
        is_pair = keys[index] == pair
        at, row = at[is_pair], by_key[index[is_pair]]
        counted = np.where((stream < 0) | (stream >= top), top, stream)
        before = np.lib.stride_tricks.sliding_window_view(counted, window)  # before[i]: stream[i : i + window]
        start = None if eos is None else _line_start(stream, eos)
        for a in range(0, len(at), step):
            some = at[a : a + step]
            context = before[some - window]  # (n, window)
            if start is not None:
                context = np.where(some[:, None] + np.arange(-window, 0) >= start[some, None], context, top)
            table.add((context + row[a : a + step, None] * width).ravel())
        stream = stream[-window - 1 :]
    return table.sparse()[:, :top]


def _line_start(stream: IntArray, eos: int) -> IntArray:
    """For each position the start of its line: after the last <eos> before it, or 0."""
    after = np.where(stream == eos, np.arange(1, len(stream) + 1), 0)
    return np.concatenate([[0], np.maximum.accumulate(after)[:-1]])


def _query_ids(queries: int | Sequence[str], vocabulary: Vocabulary, top: int) -> IntArray:
    if not isinstance(queries, Sequence):
        n = check_integer("queries", queries, least=1)
        ids = [i for i in range(min(top, n + 2)) if i not in (vocabulary.unk, vocabulary.eos)][:n]
        if len(ids) < n:
            raise InputError("queries", n, f"an integer from 1 to {len(ids)}, the number of words")
        return np.array(ids, dtype=np.int64)
    if isinstance(queries, str) or not queries:
        raise InputError("queries", queries, "a number or a list of words")
    ids = [vocabulary.id(word) for word in queries]
    for i, word in zip(ids, queries, strict=True):
        if i >= top:
            raise InputError("queries", word, f"one of the {top} most frequent words (it is number {i + 1})")
    if len(set(ids)) < len(ids):
        raise InputError("queries", list(queries), "different words")
    return np.array(ids, dtype=np.int64)


def _choose(
    pairs: Any, special: list[int], top: int, next_per_query: int, disjoint: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Rows, next words and counts of the chosen pairs: greedily by count; ties by query, then by word."""
    table = pairs.tocoo()
    row, token, n = table.row.astype(np.int64), table.col.astype(np.int64), table.data
    fits = (token < top) & ~np.isin(token, special)
    row, token, n = row[fits], token[fits], n[fits]
    order = np.lexsort([token, row, -n])
    room = np.full(pairs.shape[0], next_per_query)
    is_free = np.ones(top, dtype=bool)
    chosen = []
    for i in order:
        if room[row[i]] and is_free[token[i]]:
            chosen.append(i)
            room[row[i]] -= 1
            is_free[token[i]] = not disjoint
            if not room.any():
                break
    at = np.array(chosen, dtype=np.int64)
    at = at[np.argsort(row[at], kind="stable")]  # classes of a query side by side, the most frequent first
    return row[at], token[at], n[at].astype(np.int64)


class _Table:
    """Counts of cells (row · columns + column): a dense array if it is small, else a sum of sparse arrays."""

    def __init__(self, rows: int, columns: int) -> None:
        self.shape = (rows, columns)
        self.dense = np.zeros(rows * columns, np.int64) if rows * columns <= DENSE_CELLS else None
        self.total = sparse.csr_array(self.shape, dtype=np.int64)

    def add(self, cells: IntArray) -> None:
        if self.dense is not None:
            self.dense += np.bincount(cells, minlength=self.dense.size)
            return
        cell, times = np.unique(cells, return_counts=True)
        row, column = np.divmod(cell, self.shape[1])
        self.total += sparse.csr_array((times, (row, column)), shape=self.shape)

    def sparse(self) -> Any:
        return self.total if self.dense is None else sparse.csr_array(self.dense.reshape(self.shape))
