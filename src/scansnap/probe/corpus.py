"""What a corpus says about the tokens of a batch: how distinct they are, and which precede which.

A corpus given as documents (rows of a table, a list) keeps them; a stream is cut into windows as long as the batch's
sequences. Ids below 0 are padding. With N documents, df(l) of which contain the token l,

    IDF(l) = ln N/df(l)
    distinctness(l)  share of the corpus's occurrences on tokens with a smaller IDF, and half of those with the same:
                     0 for the most common token, 1 for the rarest, mean ½ over the corpus
    PMI(n, l) = ln k_nl k / (k_n k_l)        k_nl occurrences of l in the ``window`` tokens before n, in one document;
                                             k_n = Σ_l k_nl, k_l = Σ_n k_nl, k = Σ k_nl over all tokens of the corpus

Distinctness is a percentile by occurrence: each decile has a tenth of the text, up to ties. Without a corpus the batch
is the corpus, so that its values are coarse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError
from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.corpus import Corpus
from scansnap.probe.schema import AGAINST, DECILES
from scansnap.probe.statistics.sampled import KeyScores

MOST = 1 << 25  # tokens to read of a longer corpus
LARGEST_ID = 1 << 27  # tables have an entry for each id up to the largest
_PIECE = 1 << 16  # consecutive tokens, if not all are read
_EXPECTED = "token ids: one row, a table, a list of documents, or a scansnap corpus"


@dataclass(frozen=True, eq=False)
class TokenDocuments:
    """Token ids of documents, concatenated."""

    ids: IntArray  # (n,)
    starts: IntArray  # (documents + 1,) start of each, and the end
    stream: bool  # whether documents are windows of a stream
    name: str  # for messages

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return int(self.ids.max()) + 1 if len(self.ids) else 0

    def sample(self, most: int) -> TokenDocuments:
        """Evenly spread documents with about ``most`` tokens in total; all if there are no more."""
        if len(self.ids) <= most:
            return self
        n = len(self.starts) - 1
        if self.stream:  # long pieces, so that most contexts are whole
            length = max(1, _PIECE // max(int(self.starts[1]), 1))
            first = np.linspace(0, n - length, max(1, most // _PIECE)).astype(np.int64)
            chosen = np.unique((first[:, None] + np.arange(length)).ravel())
        else:
            chosen = np.arange(0, n, -(-len(self.ids) // most))
        lengths = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        place = np.arange(starts[-1]) + np.repeat(self.starts[:-1][chosen] - starts[:-1], lengths)
        return TokenDocuments(self.ids[place], starts, self.stream, self.name)


def to_documents(corpus: Any, length: int) -> TokenDocuments:
    """The documents of a corpus in any form; a stream is cut into windows of ``length``."""
    name = f"the corpus {corpus.name}" if isinstance(corpus, Corpus) else "the corpus given"
    source = corpus.train if isinstance(corpus, Corpus) else corpus
    in_parts = isinstance(source, Sequence) and not isinstance(source, str | bytes) and len(source) > 0
    if in_parts and not np.isscalar(source[0]) and getattr(source[0], "ndim", 1) > 0:
        rows = [_ids(row) for row in source]
        if any(row.ndim != 1 for row in rows):
            raise InputError("corpus", "a list of tables", _EXPECTED)
        return documents_from_rows(rows, name)
    ids = _ids(source)
    if ids.ndim == 2:
        return documents_from_rows(list(ids), name)
    if ids.ndim != 1:
        raise InputError("corpus", f"shape {ids.shape}", _EXPECTED)
    if len(ids) > MOST:  # do not read a file of billions
        first = np.linspace(0, len(ids) - _PIECE, MOST // _PIECE).astype(np.int64)
        ids = np.concatenate([np.asarray(ids[start : start + _PIECE]) for start in first])
    tokens = _without_padding(ids)
    starts = np.append(np.arange(0, len(tokens), length), len(tokens))
    return TokenDocuments(tokens, starts, True, name)


def documents_from_rows(rows: list[np.ndarray], name: str) -> TokenDocuments:
    """Documents from their token ids."""
    documents = [_without_padding(row) for row in rows]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in documents])]).astype(np.int64)
    return TokenDocuments(np.concatenate([*documents, np.zeros(0, np.int64)]), starts, False, name).sample(MOST)


def _ids(source: Any) -> np.ndarray:
    try:
        array = source.detach().cpu().numpy() if isinstance(source, Tensor) else np.asarray(source)
    except (TypeError, ValueError):
        raise InputError("corpus", type(source).__name__, _EXPECTED) from None
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError("corpus", f"{type(source).__name__} of {array.dtype}", _EXPECTED)
    return array


def _without_padding(ids: np.ndarray) -> IntArray:
    tokens = ids[ids >= 0].astype(np.int64)
    if len(tokens) and int(tokens.max()) >= LARGEST_ID:
        raise InputError("corpus", f"token id {int(tokens.max())}", f"token ids below {LARGEST_ID}")
    return np.asarray(tokens)


WINDOW = 128  # tokens before the next one, at most the length of the batch's sequences
TOKENS = 1 << 21  # of the corpus, to count
_PAIRS = 1 << 25  # pairs of a next token and one before it: about a second
_OCCURRENCES = 1 << 14  # at a time


@dataclass(frozen=True, eq=False)
class PrecedingCounts:
    """Counts for N next tokens and L tokens before them."""

    counts: FloatArray  # (N, L) k_nl
    pmi: FloatArray  # (N, L); −∞ if k_nl is 0, NaN if n or l never occurs
    total: FloatArray  # (L,) k_l


def count_preceding(corpus: TokenDocuments, nexts: IntArray, keys: IntArray, window: int) -> PrecedingCounts:
    """Count tokens ``keys`` (L,) before tokens ``nexts`` (N,), each without duplicates.

    A frequent next token is counted at evenly spread occurrences, which changes neither PMI nor the order of k_nl.
    """
    corpus = corpus.sample(TOKENS)
    ids, n = corpus.ids, len(corpus.ids)
    edges = np.array([0, n]) if corpus.stream else corpus.starts
    start, end = (np.repeat(edge, np.diff(edges)) for edge in (edges[:-1], edges[1:]))  # of each position's document
    at = np.arange(n)
    size = max([corpus.vocab_size, *(int(some.max()) + 1 for some in (nexts, keys) if len(some))])
    after = np.bincount(ids, weights=np.minimum(window, end - 1 - at), minlength=size)  # k_l of all tokens

    row_of, column_of = np.full((2, size), -1)
    row_of[nexts], column_of[keys] = np.arange(len(nexts)), np.arange(len(keys))
    row = row_of[ids]
    places = np.flatnonzero(row >= 0)
    places = places[np.argsort(row[places], kind="stable")]  # by next token, in order
    places = places[_spread(np.bincount(row[places], minlength=len(nexts)), _PAIRS // (window * max(len(nexts), 1)))]
    column = np.append(column_of[ids], -1)  # the last is for no token
    counts, totals = np.zeros((len(nexts), len(keys))), np.zeros(len(nexts))
    for first in range(0, len(places), _OCCURRENCES):
        some = places[first : first + _OCCURRENCES]
        positions = some[:, None] - np.arange(1, window + 1)
        inside = positions >= start[some][:, None]
        key = column[np.where(inside, positions, n)]
        own = row[some]
        low, high = int(own[0]), int(own[-1]) + 1
        np.add.at(totals, own, inside.sum(1))
        cells = ((own - low)[:, None] * len(keys) + key)[key >= 0]
        block = np.bincount(cells, minlength=(high - low) * len(keys))
        counts[low:high] += block.reshape(high - low, len(keys))
    total = after[keys].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        pmi = np.log(counts * after.sum() / (totals[:, None] * total))
    pmi[totals == 0], pmi[:, total == 0] = np.nan, np.nan
    return PrecedingCounts(counts, pmi, total)


def _spread(sizes: IntArray, most: int) -> np.ndarray:
    """A mask over concatenated groups that keeps at most ``most`` evenly spread members of each."""
    most = max(most, 1)
    size = np.repeat(sizes, sizes)
    rank = np.arange(len(size)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray((size <= most) | ((rank + 1) * most // np.maximum(size, 1) > rank * most // np.maximum(size, 1)))


ITSELF = "the batch itself"
PADDING = -100  # the label that transformers ignores
_BLOCK = 1 << 18  # tokens at a time


@dataclass(eq=False)
class TokenFacts:
    """Distinctness, decile and other facts by token id; methods take ids (B, S) and return tensors on their device."""

    source: str  # the corpus, for messages
    corpus: TokenDocuments
    tokens: IntArray  # (B, T) of the batch, −1 where padded
    idf: FloatArray  # (M,), NaN for ids that are not in the corpus
    percentile: FloatArray  # (M,) the distinctness; NaN likewise
    _tables: dict[tuple[str, torch.device], Tensor] = field(default_factory=dict)
    _results: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = field(default_factory=dict)
    _scores: dict[tuple[tuple[int, ...], torch.device], KeyScores] = field(default_factory=dict)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes for the file."""
        own = self.tokens[self.tokens >= 0]
        digest = hashlib.sha256(np.ascontiguousarray(self.corpus.ids).tobytes())
        digest.update(np.ascontiguousarray(self.corpus.starts).tobytes())
        return {"corpus": self.source, "corpus_hash": digest.hexdigest()[:16], "corpus_tokens": len(self.corpus.ids),
                "corpus_documents": len(self.corpus.starts) - 1,
                "tokens_known": float(np.isfinite(self.percentile[own]).mean())}  # fmt: skip

    def distinctness(self, tokens: Tensor) -> Tensor:
        """(B, S) float32, NaN if unknown."""
        return self._look_up("distinctness", tokens)

    def decile(self, tokens: Tensor) -> Tensor:
        """(B, S) 0 … 9, −1 if unknown."""
        return self._look_up("decile", tokens)

    def by_type(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Index of each position (B·T,) among the known tokens, B·T if unknown, and the deviation of distinctness.

        The standard deviation (n − 1) counts each of those tokens once.
        """
        key = ("type", device)
        if key not in self._results:
            ids = self.tokens.ravel()
            known = (ids >= 0) & np.isfinite(self.percentile[ids])
            types, of = np.unique(ids[known], return_inverse=True)
            place = np.full(len(ids), len(ids))
            place[known] = of
            deviation = self.percentile[types].std(ddof=1) if len(types) > 1 else 0.0
            self._results[key] = (torch.from_numpy(place).to(device),
                                  torch.tensor(deviation, dtype=torch.float32, device=device))  # fmt: skip
        return self._results[key]

    def scores(self, queries: tuple[int, ...], device: torch.device) -> KeyScores:
        """Scores of the keys for some query positions, by each measure of AGAINST.

        NaN if the key is unknown, and in the whole row if the next token is unknown.
        """
        key = (queries, device)
        if key not in self._scores:
            scores = torch.from_numpy(self._compute_scores(np.array(queries)).astype(np.float32)).to(device)
            self._scores[key] = KeyScores(scores)
        return self._scores[key]

    def _compute_scores(self, queries: IntArray) -> FloatArray:
        b, t = self.tokens.shape
        following = np.concatenate([self.tokens[:, 1:], np.full((b, 1), -1)], axis=1)[:, queries]  # (B, q)
        nexts, keys = (np.unique(some[some >= 0]) for some in (following, self.tokens))
        preceding = count_preceding(self.corpus, nexts, keys, min(t, WINDOW))
        row, column = np.searchsorted(nexts, following), np.searchsorted(keys, self.tokens)
        has_next, real = following >= 0, self.tokens >= 0
        row, column = np.where(has_next, row, 0), np.where(real, column, 0)
        known = real & np.isfinite(self.idf[keys[column]]) & (preceding.total[column] > 0)  # (B, S)
        by_name = {"idf": np.broadcast_to(self.idf[keys[column]][:, None], (b, len(queries), t))}
        if len(nexts):
            cell = row[:, :, None], column[:, None, :]
            has_next = has_next & np.asarray(np.isfinite(preceding.pmi).any(1))[row]
            for name, table in (("pmi", preceding.pmi), ("cooccurrence", preceding.counts)):
                by_name[name] = np.where(has_next[:, :, None], table[cell], np.nan)
        nothing = np.full((b, len(queries), t), np.nan)
        return np.where(known[:, None], np.stack([by_name.get(name, nothing) for name in AGAINST]), np.nan)

    def _look_up(self, name: str, tokens: Tensor) -> Tensor:
        """Cached, since every layer asks with the same tensor."""
        key = (name, tokens.device)
        known = self._results.get(key)
        if known is not None and known[0] is tokens:
            return known[1]
        if key not in self._tables:
            unknown = np.append(self.percentile, np.nan)  # the last entry is for unknown ids
            if name == "decile":
                unknown = np.where(np.isnan(unknown), -1, np.minimum(DECILES * unknown, DECILES - 1)).astype(np.int64)
            table = torch.from_numpy(unknown)
            self._tables[key] = (table.float() if name == "distinctness" else table).to(tokens.device)
        table = self._tables[key]
        result = table[torch.where((tokens >= 0) & (tokens < len(table) - 1), tokens, len(table) - 1)]
        self._results[key] = tokens, result
        return result


def token_facts(corpus: Any, tokens: Tensor, mask: Tensor | None = None) -> TokenFacts:
    """Facts about the tokens (B, T) of a batch.

    corpus  token ids in one row, a table or a list of documents, a `scansnap.corpus.Corpus` (its training
            split), or None: the batch itself
    mask    (B, T), 0 at padding
    """
    ids = tokens.detach().cpu().numpy().astype(np.int64)
    padded = ids == PADDING
    if mask is not None and tuple(mask.shape) == ids.shape:
        padded |= mask.detach().cpu().numpy() == 0
    own = ids[~padded]
    if not len(own):
        raise InputError("batch", "only padding", "a batch with tokens")
    if int(own.min()) < 0 or int(own.max()) >= LARGEST_ID:
        wrong = int(own.min()) if int(own.min()) < 0 else int(own.max())
        raise InputError("batch", f"token id {wrong}", f"token ids from 0 to {LARGEST_ID - 1}")
    if isinstance(corpus, Corpus) and int(own.max()) >= corpus.vocab_size:
        expected = f"token ids below {corpus.vocab_size}, the vocabulary of the corpus"
        raise InputError("batch", f"token id {int(own.max())}", expected)
    ids = np.where(padded, -1, ids)
    if corpus is None:
        text = documents_from_rows(list(ids), ITSELF)
    else:
        text = to_documents(corpus, ids.shape[1])
        if not np.isin(own, text.ids).any():
            raise InputError(
                "corpus", f"{text.name} without any token of the batch", "a corpus in the batch's vocabulary"
            )
    size = max(text.vocab_size, int(own.max()) + 1)
    df, occurrences = _document_frequency(text, size), np.bincount(text.ids, minlength=size)
    with np.errstate(divide="ignore"):
        idf = np.where(df > 0, np.log((len(text.starts) - 1) / df), np.nan)
    return TokenFacts(text.name, text, ids, idf, occurrence_percentiles(idf, occurrences))


def occurrence_percentiles(score: FloatArray, occurrences: IntArray) -> FloatArray:
    """Share of the occurrences with a smaller score, plus half of those with the same; NaN for NaN."""
    known = np.isfinite(score)
    _, group = np.unique(score[known], return_inverse=True)
    weight = np.bincount(group, weights=occurrences[known])
    result = np.full(len(score), np.nan)
    result[known] = ((np.cumsum(weight) - weight / 2) / max(weight.sum(), 1))[group]
    return result


def _document_frequency(text: TokenDocuments, size: int) -> IntArray:
    """(M,) number of documents that contain each id."""
    df = np.zeros(size, np.int64)
    first, n = 0, len(text.starts) - 1
    while first < n:  # documents of about one block, at least one
        last = max(first + 1, int(np.searchsorted(text.starts, text.starts[first] + _BLOCK, side="right")) - 1)
        low, high = text.starts[first], text.starts[last]
        document = np.repeat(np.arange(last - first), np.diff(text.starts[first : last + 1]))
        pairs = np.sort(document * size + text.ids[low:high])
        new = np.ones(len(pairs), dtype=bool)
        new[1:] = pairs[1:] != pairs[:-1]
        df += np.bincount(pairs[new] % size, minlength=size)
        first = last
    return df
