"""A corpus in any of the forms people have it in, as documents of token ids.

A stream has no documents: it is cut into windows as long as the batch's sequences, the text that the model sees at
once. What is given in documents (rows of a table, a list) keeps them. Ids below 0 are padding and count nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from scansnap.checks import InputError
from scansnap.checks.arrays import IntArray
from scansnap.corpus import Corpus

MOST = 1 << 25  # tokens that are read: the table of a longer corpus would hardly differ
LARGEST_ID = 1 << 27  # tables have a place for each id up to the largest
_PIECE = 1 << 16  # tokens in a row, where not all are read
_ALLOWED = "token ids: one row, a table, a list of documents, or a scansnap corpus"


@dataclass(frozen=True, eq=False)
class Documents:
    """Token ids one document after the other."""

    ids: IntArray  # (n,)
    starts: IntArray  # (documents + 1,) where each begins, and the end
    stream: bool  # windows of a stream: text goes on from one to the next
    name: str  # what it was

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return int(self.ids.max()) + 1 if len(self.ids) else 0

    def some(self, most: int) -> Documents:
        """Documents, spread evenly, of about ``most`` tokens together; all where there are no more."""
        if len(self.ids) <= most:
            return self
        n = len(self.starts) - 1
        if self.stream:  # long pieces, or hardly a context would be whole
            length = max(1, _PIECE // max(int(self.starts[1]), 1))
            first = np.linspace(0, n - length, max(1, most // _PIECE)).astype(np.int64)
            kept = np.unique((first[:, None] + np.arange(length)).ravel())
        else:
            kept = np.arange(0, n, -(-len(self.ids) // most))
        lengths = np.diff(self.starts)[kept]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        place = np.arange(starts[-1]) + np.repeat(self.starts[:-1][kept] - starts[:-1], lengths)
        return Documents(self.ids[place], starts, self.stream, self.name)


def documents(corpus: Any, length: int) -> Documents:
    """What was given as a corpus; a stream in windows of ``length``."""
    name = f"the corpus {corpus.name}" if isinstance(corpus, Corpus) else "the corpus given"
    given = corpus.train if isinstance(corpus, Corpus) else corpus
    in_parts = isinstance(given, Sequence) and not isinstance(given, str | bytes) and len(given) > 0
    if in_parts and not np.isscalar(given[0]) and getattr(given[0], "ndim", 1) > 0:
        rows = [_ids(row) for row in given]
        if any(row.ndim != 1 for row in rows):
            raise InputError("corpus", "a list of tables", _ALLOWED)
        return of_rows(rows, name)
    ids = _ids(given)
    if ids.ndim == 2:
        return of_rows(list(ids), name)
    if ids.ndim != 1:
        raise InputError("corpus", f"of shape {ids.shape}", _ALLOWED)
    if len(ids) > MOST:  # a file of billions: it is not brought into memory
        first = np.linspace(0, len(ids) - _PIECE, MOST // _PIECE).astype(np.int64)
        ids = np.concatenate([np.asarray(ids[start : start + _PIECE]) for start in first])
    kept = _without_padding(ids)
    starts = np.append(np.arange(0, len(kept), length), len(kept))
    return Documents(kept, starts, True, name)


def of_rows(rows: list[np.ndarray], name: str) -> Documents:
    """Documents given one by one."""
    kept = [_without_padding(row) for row in rows]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in kept])]).astype(np.int64)
    return Documents(np.concatenate([*kept, np.zeros(0, np.int64)]), starts, False, name).some(MOST)


def _ids(given: Any) -> np.ndarray:
    try:
        array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError):
        raise InputError("corpus", type(given).__name__, _ALLOWED) from None
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError("corpus", f"{type(given).__name__} of {array.dtype}", _ALLOWED)
    return array


def _without_padding(ids: np.ndarray) -> IntArray:
    kept = ids[ids >= 0].astype(np.int64)
    if len(kept) and int(kept.max()) >= LARGEST_ID:
        raise InputError("corpus", f"with the token id {int(kept.max())}", f"token ids below {LARGEST_ID}")
    return np.asarray(kept)
