"""Vocabularies of subwords: a tokenizer's pieces, numbered like words from the most frequent to the rarest.

So the k most frequent pieces are the ids below k, as everywhere; the tokenizer's own numbers are kept beside them. All
its pieces stay, those that the text does not have as well (count 0). A piece that begins a word is shown bare, one that
goes on with ## before it: ``river``, ``##bank``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError
from scansnap.checks.arrays import IntArray, token_ids
from scansnap.corpus.tokenizers import SubwordEncoder
from scansnap.corpus.vocabulary import WITH_TOKENIZER, Tokens, Vocabulary
from scansnap.storage import checksums


class Subwords(Vocabulary):
    """M pieces, the most frequent first. ``words`` are how they are shown, ``own`` their numbers in the tokenizer.

    The package ``tokenizers`` is asked for when something is encoded or decoded, not before.
    """

    unit = "subwords"

    def __init__(self, words: Sequence[str], counts: ArrayLike, own: ArrayLike, tokenizer: str) -> None:
        super().__init__(words, counts)
        self.tokenizer = tokenizer  # its JSON
        self.own: IntArray = np.asarray(own, dtype=np.int64)
        if self.own.shape != (len(self.words),):
            raise InputError("own", f"of shape {self.own.shape}", f"one for each of {len(self.words)} words")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subwords) and super().__eq__(other) and self.tokenizer == other.tokenizer

    __hash__ = None

    def id(self, word: str) -> int:
        """The id of a piece as it is shown; a word of several pieces is told them."""
        if word in self.index:
            return self.index[word]
        made_of = ", ".join(self.words[i] for i in self.encode(word))
        raise InputError("the word", word, f"one of the {len(self)} subwords of the vocabulary (this one is {made_of})")

    def encode(self, text: str) -> Tokens:
        """Ids of the pieces of a text, <eos> for each line feed."""
        return np.asarray(self._number[self._pieces.encode(text)])

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids: pieces joined to words, words between single blanks and lines for <eos>."""
        return self._pieces.decode(self.own[token_ids("ids", ids, len(self)).ravel()].tolist())

    def fingerprint(self) -> str:
        """One word for how it encodes: two tokenizers may have the same pieces and cut differently."""
        return hashlib.sha256("\n".join([self.tokenizer, *self.words]).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """As that of words, with the tokenizer and its numbers."""
        return checksums.sign({"format": WITH_TOKENIZER, "words": self.words, "counts": self.counts.tolist(),
                               "own": self.own.tolist(), "tokenizer": self.tokenizer})  # fmt: skip

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> Subwords:
        """Back from what :meth:`to_json` wrote."""
        return cls(table["words"], table["counts"], table["own"], table["tokenizer"])

    @cached_property
    def _pieces(self) -> SubwordEncoder:
        return SubwordEncoder(self.tokenizer)

    @cached_property
    def _number(self) -> Tokens:
        """The id of each of the tokenizer's numbers."""
        return numbered(self.own)


class SubwordCounter:
    """A tokenizer's numbers for a text that is given bit by bit, and their counts.

    As :class:`~scansnap.corpus.vocabulary.WordCounter`: what :meth:`finish` finds turns first numbers into ids.
    """

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer, self.pieces = tokenizer, SubwordEncoder(tokenizer)
        self.counts = np.zeros(self.pieces.size, np.int64)

    @property
    def words(self) -> int:
        """In all text so far, line ends too."""
        return self.pieces.words

    def train(self, text: str) -> Tokens:
        """Numbers of the pieces of some more of the training text."""
        ids = self.pieces.encode(text)
        self.counts += np.bincount(ids, minlength=len(self.counts))
        return ids

    def other(self, text: str) -> Tokens:
        """Those of held-out text."""
        return self.pieces.encode(text)

    def finish(self) -> tuple[Vocabulary, Tokens]:
        """The vocabulary, and the id of each of the tokenizer's numbers."""
        names = self.pieces.names()
        there = np.array(sorted(names), dtype=np.int64)  # numbers may have gaps
        own = there[np.argsort(-self.counts[there], kind="stable")]
        vocabulary = Subwords([names[number] for number in own.tolist()], self.counts[own], own, self.tokenizer)
        return vocabulary, numbered(own)


def numbered(own: IntArray) -> Tokens:
    """The place of each number in ``own``."""
    number = np.full(int(own.max()) + 1, -1, np.int32)
    number[own] = np.arange(len(own), dtype=np.int32)
    return number
