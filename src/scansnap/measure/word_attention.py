"""What a query's attention to words has to do with how those words are distributed.

A query m has logits z_ml for words l. What one occurrence of a word gets is e^z, what the word gets over the contexts
in which m stands is c_ml ∝ k_ml e^{z_ml}, k the counts. The first is compared by rank with

    cooccurrence   k_ml
    pmi            ln k_ml k / (k_m k_l), how much more often l stands before m than before the other queries
    idf            ln N/|Ω(l)|, Ω(l) the next words in whose contexts l stands, of N
    distinctness   1 − H(n|l)/ln N, from the entropy of the next word n given that l stands in its context
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.measure.distinctness import distinctness
from scansnap.measure.entropy import attention_of

MEASURES = ("distinctness", "idf", "pmi", "cooccurrence")


@dataclass(frozen=True, eq=False)
class QueryWords:
    """Q queries and the words in their contexts, of M; ``used`` says which words are frequent enough to look at."""

    queries: IntArray  # (Q,) word ids
    counts: FloatArray  # (Q, M)
    used: Any  # (Q, M) bool
    by_word: dict[str, FloatArray]  # idf and distinctness, (M,), NaN for words that are never seen

    def measure(self, name: str) -> FloatArray:
        """(Q, M), NaN where the word is not used."""
        if name == "pmi":
            rows, columns = self.counts.sum(1, keepdims=True), self.counts.sum(0, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.log(self.counts * self.counts.sum() / (rows * columns))
        else:
            values = self.counts if name == "cooccurrence" else np.broadcast_to(self.by_word[name], self.counts.shape)
        return np.where(self.used, values, np.nan)

    def attention(self, z: FloatArray) -> FloatArray:
        """c_ml ∝ k_ml e^{z_ml} over the used words, (…, Q, M)."""
        return attention_of(np.where(self.used, self.counts, 0.0), z)


def query_words(query: IntArray, next_token: IntArray, contexts: Any, *, least: int, leave_out: Any = ()) -> QueryWords:
    """From the contexts (K, M) of pairs (query, next word), as counted by ``corpus.cooccurrence``.

    Words are used with a query where they stand in its contexts at least ``least`` times; ``leave_out`` never are.
    A query with fewer than three such words is left out.
    """
    queries, row = np.unique(query, return_inverse=True)
    counts = np.asarray(_summed(row, len(queries), contexts).todense(), dtype=np.float64)
    nexts, of = np.unique(next_token, return_inverse=True)
    degrees = distinctness(_summed(of, len(nexts), contexts))
    used = counts >= least
    used[:, list(leave_out)] = False
    enough = used.sum(1) >= 3
    return QueryWords(queries[enough], counts[enough], used[enough],
                      {"idf": degrees.idf, "distinctness": 1 - degrees.normalised_entropy})  # fmt: skip


def deciles(values: FloatArray, leave_out: Any = (), n: int = 10) -> IntArray:
    """Groups 0 … n − 1 of equally many words from the smallest value to the largest; −1 for NaN and those left out."""
    groups = np.full(len(values), -1, dtype=np.int64)
    known = np.isfinite(values)
    known[list(leave_out)] = False
    order = np.flatnonzero(known)[np.argsort(values[known], kind="stable")]
    groups[order] = np.arange(len(order)) * n // max(len(order), 1)
    return groups


def distance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Total variation between distributions in the last dimension."""
    return np.asarray(np.abs(a - b).sum(-1) / 2)


def _summed(row: IntArray, n: int, contexts: Any) -> Any:
    """Rows of a table added up where they have the same number."""
    k = len(row)
    return sparse.csr_array((np.ones(k), (row, np.arange(k))), shape=(n, k)) @ sparse.csr_array(contexts)
