"""Which tokens stand before which: how often l is among the tokens before n, for chosen n and l.

At each occurrence of n the ``window`` tokens before it are counted, those of its own document. With k_nl these counts,

    PMI(n, l) = ln k_nl k / (k_n k_l)        k_n = Σ_l k_nl, k_l = Σ_n k_nl, k = Σ k_nl over all tokens of the corpus

k_l and k follow from the occurrences alone: what stands at a place is counted once for each of the places after it.
A frequent n is counted at some of its occurrences, evenly spread, which changes neither PMI nor the order of k_nl.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.probe.corpus.documents import Documents

WINDOW = 128  # tokens before the next one, or the length of the batch's sequences where that is less
TOKENS = 1 << 21  # of the corpus that are counted
_LOOKS = 1 << 25  # pairs of a next token and one before it that are looked at: about a second
_BLOCK = 1 << 14  # occurrences at a time


@dataclass(frozen=True, eq=False)
class Before:
    """Counts for N next tokens and L tokens before them."""

    counts: FloatArray  # (N, L) k_nl
    pmi: FloatArray  # (N, L); −∞ where k_nl is 0, NaN where n or l is never seen
    seen: FloatArray  # (L,) k_l


def before(corpus: Documents, nexts: IntArray, keys: IntArray, window: int) -> Before:
    """Count ``keys`` (L,) before ``nexts`` (N,), ids that are each there once."""
    corpus = corpus.some(TOKENS)
    ids, n = corpus.ids, len(corpus.ids)
    edges = np.array([0, n]) if corpus.stream else corpus.starts
    start, end = (np.repeat(edge, np.diff(edges)) for edge in (edges[:-1], edges[1:]))  # of each place's document
    at = np.arange(n)
    size = max([corpus.vocab_size, *(int(some.max()) + 1 for some in (nexts, keys) if len(some))])
    after = np.bincount(ids, weights=np.minimum(window, end - 1 - at), minlength=size)  # k_l of all tokens

    row_of, column_of = np.full((2, size), -1)
    row_of[nexts], column_of[keys] = np.arange(len(nexts)), np.arange(len(keys))
    row = row_of[ids]
    places = np.flatnonzero(row >= 0)
    places = places[np.argsort(row[places], kind="stable")]  # by next token, in order
    places = places[_spread(np.bincount(row[places], minlength=len(nexts)), _LOOKS // (window * max(len(nexts), 1)))]
    column = np.append(column_of[ids], -1)  # the last stands for no token
    counts, totals = np.zeros((len(nexts), len(keys))), np.zeros(len(nexts))
    for first in range(0, len(places), _BLOCK):
        some = places[first : first + _BLOCK]
        looked = some[:, None] - np.arange(1, window + 1)
        inside = looked >= start[some][:, None]
        key = column[np.where(inside, looked, n)]
        own = row[some]
        low, high = int(own[0]), int(own[-1]) + 1
        np.add.at(totals, own, inside.sum(1))
        cells = ((own - low)[:, None] * len(keys) + key)[key >= 0]
        found = np.bincount(cells, minlength=(high - low) * len(keys))
        counts[low:high] += found.reshape(high - low, len(keys))
    seen = after[keys].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        pmi = np.log(counts * after.sum() / (totals[:, None] * seen))
    pmi[totals == 0], pmi[:, seen == 0] = np.nan, np.nan
    return Before(counts, pmi, seen)


def _spread(sizes: IntArray, most: int) -> np.ndarray:
    """Which of the members of groups, one group after the other, are kept: at most so many of each, evenly spread."""
    most = max(most, 1)
    size = np.repeat(sizes, sizes)
    rank = np.arange(len(size)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray((size <= most) | ((rank + 1) * most // np.maximum(size, 1) > rank * most // np.maximum(size, 1)))
