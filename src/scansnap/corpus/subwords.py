"""Vocabularies of subwords: the tokens of a tokenizer in order of frequency.

All subwords of the tokenizer are included, also those with count 0. A subword that continues a word is written with ##
before it: ``river``, ``##bank``.
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
    """M subwords, the most frequent first; ``own`` are their numbers in the tokenizer.

    The package ``tokenizers`` is imported only to encode or decode.
    """

    unit = "subwords"

    def __init__(self, words: Sequence[str], counts: ArrayLike, own: ArrayLike, tokenizer: str) -> None:
        super().__init__(words, counts)
        self.tokenizer = tokenizer  # its JSON
        self.own: IntArray = np.asarray(own, dtype=np.int64)
        if self.own.shape != (len(self.words),):
            raise InputError("own", f"shape {self.own.shape}", f"shape ({len(self.words)},)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subwords) and super().__eq__(other) and self.tokenizer == other.tokenizer

    __hash__ = None

    def id(self, word: str) -> int:
        """The id of a subword; the error names the subwords of a longer word."""
        if word in self.index:
            return self.index[word]
        made_of = ", ".join(self.words[i] for i in self.encode(word))
        expected = f"one of the {len(self)} subwords of the vocabulary"
        raise InputError("word", word, expected, f"this word is {made_of}")

    def encode(self, text: str) -> Tokens:
        """Ids of the subwords of a text, <eos> for each line feed."""
        return np.asarray(self._number[self._pieces.encode(text)])

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids: words between single blanks, lines for <eos>."""
        return self._pieces.decode(self.own[token_ids("ids", ids, len(self)).ravel()].tolist())

    def fingerprint(self) -> str:
        """Identifies how it encodes: two tokenizers may have the same subwords and use them differently."""
        return hashlib.sha256("\n".join([self.tokenizer, *self.words]).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """As for words, with the tokenizer and its numbers."""
        return checksums.sign({"format": WITH_TOKENIZER, "words": self.words, "counts": self.counts.tolist(),
                               "own": self.own.tolist(), "tokenizer": self.tokenizer})  # fmt: skip

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> Subwords:
        """The inverse of `to_json`."""
        return cls(table["words"], table["counts"], table["own"], table["tokenizer"])

    @cached_property
    def _pieces(self) -> SubwordEncoder:
        return SubwordEncoder(self.tokenizer)

    @cached_property
    def _number(self) -> Tokens:
        """The id of each of the tokenizer's numbers."""
        return inverse(self.own)


class SubwordCounter:
    """Counts the tokens of a tokenizer in a text; see `scansnap.corpus.vocabulary.WordCounter`."""

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer, self.pieces = tokenizer, SubwordEncoder(tokenizer)
        self.counts = np.zeros(self.pieces.size, np.int64)

    @property
    def words(self) -> int:
        """Their number in all text so far, with line ends."""
        return self.pieces.words

    def train(self, text: str) -> Tokens:
        """Numbers of the subwords of a part of the training text."""
        ids = self.pieces.encode(text)
        self.counts += np.bincount(ids, minlength=len(self.counts))
        return ids

    def held_out(self, text: str) -> Tokens:
        """Numbers of the subwords of held-out text."""
        return self.pieces.encode(text)

    def finish(self) -> tuple[Vocabulary, Tokens]:
        """The vocabulary, and the id of each of the tokenizer's numbers."""
        names = self.pieces.names()
        numbers = np.array(sorted(names), dtype=np.int64)  # with gaps
        own = numbers[np.argsort(-self.counts[numbers], kind="stable")]
        vocabulary = Subwords([names[number] for number in own.tolist()], self.counts[own], own, self.tokenizer)
        return vocabulary, inverse(own)


def inverse(own: IntArray) -> Tokens:
    """The index of each number in ``own``."""
    number = np.full(int(own.max()) + 1, -1, np.int32)
    number[own] = np.arange(len(own), dtype=np.int32)
    return number
