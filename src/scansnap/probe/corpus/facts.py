"""How distinct a batch's tokens are in a corpus, and what the queries' keys have to do with what comes next.

    IDF(l) = ln N/df(l)        of N documents (windows as long as the batch's sequences), df(l) have the token l
    distinctness(l)            share of the corpus's occurrences on tokens with a smaller IDF, and half of those with
                               the same: 0 for the most common, 1 for the rarest, ½ in the mean over the corpus

Distinctness is a percentile by occurrence, not by type: a tenth of the text is in each decile, as far as ties allow.
Without a corpus the batch itself is the corpus, with few documents and so with coarse values.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError
from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.corpus import Corpus
from scansnap.probe.corpus.before import WINDOW, before
from scansnap.probe.corpus.documents import LARGEST_ID, Documents, documents, of_rows
from scansnap.probe.schema import AGAINST, DECILES

ITSELF = "the batch itself"
PADDING = -100  # what transformers puts where no token is meant
_BLOCK = 1 << 18  # tokens whose documents are counted at a time


@dataclass(eq=False)
class Facts:
    """What is known of each token id; methods take ids (B, S) and answer on their device."""

    source: str  # which corpus
    corpus: Documents
    tokens: IntArray  # (B, T) of the batch, −1 where padded
    idf: FloatArray  # (M,), NaN for ids that the corpus never has
    percentile: FloatArray  # (M,) the distinctness, NaN likewise
    _tables: dict[tuple[str, torch.device], Tensor] = field(default_factory=dict)
    _answers: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = field(default_factory=dict)
    _scores: dict[tuple[tuple[int, ...], torch.device], Tensor] = field(default_factory=dict)

    @property
    def attrs(self) -> dict[str, Any]:
        """What a file says about it."""
        own = self.tokens[self.tokens >= 0]
        digest = hashlib.sha256(np.ascontiguousarray(self.corpus.ids).tobytes())
        digest.update(np.ascontiguousarray(self.corpus.starts).tobytes())
        return {"corpus": self.source, "corpus_hash": digest.hexdigest()[:16], "corpus_tokens": len(self.corpus.ids),
                "corpus_documents": len(self.corpus.starts) - 1,
                "tokens_known": float(np.isfinite(self.percentile[own]).mean())}  # fmt: skip

    def distinctness(self, tokens: Tensor) -> Tensor:
        """(B, S) float32, NaN where unknown."""
        return self._looked_up("distinctness", tokens)

    def decile(self, tokens: Tensor) -> Tensor:
        """(B, S) 0 … 9, −1 where unknown."""
        return self._looked_up("decile", tokens)

    def by_type(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Which of the batch's known tokens each place (B·T,) has, B·T where none, and the deviation of distinctness.

        The standard deviation is over those tokens, each counted once, with n − 1.
        """
        key = ("type", device)
        if key not in self._answers:
            ids = self.tokens.ravel()
            known = (ids >= 0) & np.isfinite(self.percentile[ids])
            types, of = np.unique(ids[known], return_inverse=True)
            place = np.full(len(ids), len(ids))
            place[known] = of
            deviation = self.percentile[types].std(ddof=1) if len(types) > 1 else 0.0
            self._answers[key] = (torch.from_numpy(place).to(device),
                                  torch.tensor(deviation, dtype=torch.float32, device=device))  # fmt: skip
        return self._answers[key]

    def scores(self, queries: tuple[int, ...], device: torch.device) -> Tensor:
        """(against, B, q, S): what the keys of some query positions are worth by each of AGAINST.

        NaN where nothing is known of a key, and in the whole row where nothing is known of the token that comes next.
        """
        key = (queries, device)
        if key not in self._scores:
            self._scores[key] = torch.from_numpy(self._scored(np.array(queries)).astype(np.float32)).to(device)
        return self._scores[key]

    def _scored(self, queries: IntArray) -> FloatArray:
        b, t = self.tokens.shape
        following = np.concatenate([self.tokens[:, 1:], np.full((b, 1), -1)], axis=1)[:, queries]  # (B, q)
        nexts, keys = (np.unique(some[some >= 0]) for some in (following, self.tokens))
        found = before(self.corpus, nexts, keys, min(t, WINDOW))
        row, column = np.searchsorted(nexts, following), np.searchsorted(keys, self.tokens)
        asked, real = following >= 0, self.tokens >= 0
        row, column = np.where(asked, row, 0), np.where(real, column, 0)
        known = real & np.isfinite(self.idf[keys[column]]) & (found.seen[column] > 0)  # (B, S)
        by_name = {"idf": np.broadcast_to(self.idf[keys[column]][:, None], (b, len(queries), t))}
        if len(nexts):
            cell = row[:, :, None], column[:, None, :]
            asked = asked & np.asarray(np.isfinite(found.pmi).any(1))[row]
            for name, table in (("pmi", found.pmi), ("cooccurrence", found.counts)):
                by_name[name] = np.where(asked[:, :, None], table[cell], np.nan)
        nothing = np.full((b, len(queries), t), np.nan)
        return np.where(known[:, None], np.stack([by_name.get(name, nothing) for name in AGAINST]), np.nan)

    def _looked_up(self, name: str, tokens: Tensor) -> Tensor:
        """Asked once a layer with the same tensor: answered once."""
        key = (name, tokens.device)
        known = self._answers.get(key)
        if known is not None and known[0] is tokens:
            return known[1]
        if key not in self._tables:
            unknown = np.append(self.percentile, np.nan)  # the last place is for ids that the table does not have
            if name == "decile":
                unknown = np.where(np.isnan(unknown), -1, np.minimum(DECILES * unknown, DECILES - 1)).astype(np.int64)
            table = torch.from_numpy(unknown)
            self._tables[key] = (table.float() if name == "distinctness" else table).to(tokens.device)
        table = self._tables[key]
        answer = table[torch.where((tokens >= 0) & (tokens < len(table) - 1), tokens, len(table) - 1)]
        self._answers[key] = tokens, answer
        return answer


def facts(corpus: Any, tokens: Tensor, mask: Tensor | None = None) -> Facts:
    """What a corpus says of the tokens (B, T) of a batch.

    corpus  token ids in one row, a table or a list of documents, a :class:`~scansnap.corpus.Corpus` (its training
            split), or None: the batch itself
    mask    (B, T), 0 where the batch is padded
    """
    ids = tokens.detach().cpu().numpy().astype(np.int64)
    padded = ids == PADDING
    if mask is not None and tuple(mask.shape) == ids.shape:
        padded |= mask.detach().cpu().numpy() == 0
    own = ids[~padded]
    if not len(own):
        raise InputError("batch", "all padding", "one with tokens")
    if int(own.min()) < 0 or int(own.max()) >= LARGEST_ID:
        wrong = int(own.min()) if int(own.min()) < 0 else int(own.max())
        raise InputError("a token id of the batch", wrong, f"at least 0 and below {LARGEST_ID}")
    if isinstance(corpus, Corpus) and int(own.max()) >= corpus.vocab_size:
        allowed = f"below {corpus.vocab_size}, the vocabulary of the corpus"
        raise InputError("a token id of the batch", int(own.max()), allowed)
    ids = np.where(padded, -1, ids)
    if corpus is None:
        text = of_rows(list(ids), ITSELF)
    else:
        text = documents(corpus, ids.shape[1])
        if not np.isin(own, text.ids).any():
            raise InputError("corpus", text.name, "in the batch's vocabulary (it has none of the batch's tokens)")
    size = max(text.vocab_size, int(own.max()) + 1)
    df, occurrences = _document_frequency(text, size), np.bincount(text.ids, minlength=size)
    with np.errstate(divide="ignore"):
        idf = np.where(df > 0, np.log((len(text.starts) - 1) / df), np.nan)
    return Facts(text.name, text, ids, idf, percentiles(idf, occurrences))


def percentiles(score: FloatArray, occurrences: IntArray) -> FloatArray:
    """Share of the occurrences that have a smaller score, and half of those with the same; NaN where it is NaN."""
    known = np.isfinite(score)
    _, group = np.unique(score[known], return_inverse=True)
    weight = np.bincount(group, weights=occurrences[known])
    found = np.full(len(score), np.nan)
    found[known] = ((np.cumsum(weight) - weight / 2) / max(weight.sum(), 1))[group]
    return found


def _document_frequency(text: Documents, size: int) -> IntArray:
    """(M,) in how many documents each id stands."""
    df = np.zeros(size, np.int64)
    first, n = 0, len(text.starts) - 1
    while first < n:  # as many documents as make a block, at least one
        last = max(first + 1, int(np.searchsorted(text.starts, text.starts[first] + _BLOCK, side="right")) - 1)
        low, high = text.starts[first], text.starts[last]
        document = np.repeat(np.arange(last - first), np.diff(text.starts[first : last + 1]))
        pairs = np.sort(document * size + text.ids[low:high])
        new = np.ones(len(pairs), dtype=bool)
        new[1:] = pairs[1:] != pairs[:-1]
        df += np.bincount(pairs[new] % size, minlength=size)
        first = last
    return df
