"""Vocabularies of words: ids are in order of frequency, so the k most frequent words are the ids below k.

White space separates words and every line ends with ``<eos>``, as in WikiText. Words outside the vocabulary are
``<unk>``. A text may contain both special tokens; their ids follow from their frequency, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.checks import InputError, check_integer
from scansnap.checks.arrays import IntArray, token_ids
from scansnap.storage import checksums

UNK, EOS = "<unk>", "<eos>"
FORMAT, WITH_TOKENIZER = 2, 3
Tokens = NDArray[np.integer[Any]]  # one row of ids, see `id_type`


def id_type(vocab_size: int) -> np.dtype[Any]:
    """Two bytes for an id where they suffice, else four (signed: torch has no arithmetic for unsigned ones)."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


class _Index(dict[str, int]):
    """Ids of words; any other word has the id of <unk>."""

    def __missing__(self, word: str) -> int:
        return self[UNK]


class Vocabulary:
    """M words, the most frequent first, and how often each occurred in training.

    >>> vocabulary, ids = build(["to be or not to be\\n"], min_count=1)
    >>> vocabulary.words[:2], vocabulary.decode(vocabulary.encode("be or what\\n"))
    (('to', 'be'), 'be or <unk>\\n')
    """

    unit = "words"  # the name of its tokens in messages

    def __init__(self, words: Sequence[str], counts: ArrayLike) -> None:
        self.words = tuple(words)
        self.counts: IntArray = np.asarray(counts, dtype=np.int64)
        self.index = _Index((word, number) for number, word in enumerate(self.words))
        if self.counts.shape != (len(self.words),):
            raise InputError("counts", f"shape {self.counts.shape}", f"shape ({len(self.words)},)")
        if len(self.index) != len(self.words):
            raise InputError("words", f"{len(self.words) - len(self.index)} repeated words", "different words")
        for special in (UNK, EOS):
            if special not in self.index:
                raise InputError("words", f"a list without {special}", f"a list with {UNK} and {EOS}")
        if (np.diff(self.counts) > 0).any() or (self.counts < 0).any():
            raise InputError("counts", self.counts, "integers ≥ 0 in descending order")
        self.unk, self.eos = self.index[UNK], self.index[EOS]

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.words == other.words and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} {self.unit}, {int(self.counts.sum())} tokens)"

    def id(self, word: str) -> int:
        """The id of a word; an unknown word is an error."""
        if word not in self.index:
            raise InputError("word", word, f"one of the {len(self)} words of the vocabulary")
        return self.index[word]

    def encode(self, text: str) -> Tokens:
        """Ids of the words of a text, <eos> for each line feed."""
        words = split_words(text)
        return np.fromiter(map(self.index.__getitem__, words), np.int32, len(words))

    def fingerprint(self) -> str:
        """Identifies how it encodes."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids, words between single blanks and lines for <eos>."""
        lines: list[list[str]] = [[]]
        for number in token_ids("ids", ids, len(self)).ravel().tolist():
            if number == self.eos:
                lines.append([])
            else:
                lines[-1].append(self.words[number])
        return "\n".join(" ".join(line) for line in lines)

    def to_json(self) -> str:
        """One JSON object with format, words, counts and its own checksum."""
        return checksums.sign({"format": FORMAT, "words": self.words, "counts": self.counts.tolist()})

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "a text") -> Vocabulary:
        """The inverse of `to_json`; ``where`` names the text in errors."""
        try:
            table = checksums.signed(text)
            fits = table["format"] in (FORMAT, WITH_TOKENIZER)
        except (ValueError, KeyError, TypeError, RecursionError):
            fits = False
        if fits and table["format"] == WITH_TOKENIZER:
            from scansnap.corpus.subwords import Subwords

            return Subwords.from_table(table)
        if not fits:
            expected = f"JSON of format {FORMAT} with words, counts and a matching checksum"
            raise InputError("vocabulary", where, expected)
        return cls(table["words"], np.array(table["counts"], dtype=np.int64))


def split_words(text: str) -> list[str]:
    """The words of a text; each line feed is the word <eos>."""
    return text.replace("\n", f" {EOS} ").split()


class WordCounter:
    """Counts the words of a text in parts, and numbers them in order of appearance.

    ``train`` and ``held_out`` return these first numbers, and `finish` the id of each. Memory depends on the
    number of different words, not on the length of the text.

    The vocabulary has words that occur at least ``min_count`` times, and of those the ``max_words`` − 2 most frequent
    (ties: the first to appear); the rest is <unk>. ``min_count=None`` is 1 for a text with <unk> and 2 for any other,
    so that a model can learn <unk>.
    """

    def __init__(self, min_count: int | None = None, max_words: int | None = None) -> None:
        self.min_count = None if min_count is None else check_integer("min_count", min_count, least=1)
        self.max_words = None if max_words is None else check_integer("max_words", max_words, least=3)
        self.first: defaultdict[str, int] = defaultdict()
        self.first.default_factory = self.first.__len__  # a new word gets the next number
        self.counts: IntArray = np.zeros(0, np.int64)
        self.words = 0  # in all text so far, with line ends

    def train(self, text: str) -> Tokens:
        """First numbers of the words of a part of the training text."""
        words = split_words(text)
        ids = np.fromiter(map(self.first.__getitem__, words), np.int32, len(words))
        counts = np.bincount(ids, minlength=len(self.first))
        counts[: len(self.counts)] += self.counts
        self.counts, self.words = counts, self.words + len(words)
        return ids

    def held_out(self, text: str) -> Tokens:
        """First numbers of the words of held-out text, after all training text; new words are <unk>."""
        self._number_special()
        words, unk = split_words(text), self.first[UNK]
        self.words += len(words)
        return np.fromiter(map(self.first.get, words, repeat(unk)), np.int32, len(words))

    def finish(self) -> tuple[Vocabulary, Tokens]:
        """The vocabulary, and the id of each first number."""
        self._number_special()
        eos, unk, counts = self.first[EOS], self.first[UNK], self.counts.copy()
        least = self.min_count if self.min_count is not None else 1 if counts[unk] else 2
        included = counts >= least
        included[[eos, unk]] = False  # they are included in any case
        if self.max_words is not None:
            by_count = np.argsort(-counts, kind="stable")
            included[by_count[included[by_count]][self.max_words - 2 :]] = False
        included[[eos, unk]] = True
        counts[unk] += counts[~included].sum()
        counts[~included] = 0
        order = np.argsort(-counts, kind="stable")
        order = order[included[order]]
        number = np.full(len(self.first), -1, np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        number[~included] = number[unk]
        words = list(self.first)
        return Vocabulary([words[i] for i in order], counts[order]), number

    def _number_special(self) -> None:
        """Number both special tokens, if the text did not contain them."""
        for special in (EOS, UNK):
            if self.first[special] == len(self.counts):  # it is new
                self.counts = np.append(self.counts, 0)


def build(
    blocks: Iterable[str], *, min_count: int | None = None, max_words: int | None = None
) -> tuple[Vocabulary, Tokens]:
    """The vocabulary and the ids of a text in blocks of whole lines (see `WordCounter`)."""
    counter = WordCounter(min_count, max_words)
    parts = [counter.train(block) for block in blocks]
    vocabulary, number = counter.finish()
    return vocabulary, number[np.concatenate([*parts, np.zeros(0, np.int32)])]
