"""Words and their ids: ids in order of frequency, so that the k most frequent words are the ids below k.

Word level, as in WikiText: words stand between white space and every line ends with ``<eos>``. Words left out of
the vocabulary, and words never seen in training, are ``<unk>``. Both marks are words like any other when a text
contains them itself, and take their place by frequency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.checks import InputError, whole
from scansnap.checks.arrays import IntArray, token_ids
from scansnap.storage import checksums, put

UNK, EOS = "<unk>", "<eos>"
FORMAT = 2
Tokens = NDArray[np.int32]


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

    def __init__(self, words: Sequence[str], counts: ArrayLike) -> None:
        self.words = tuple(words)
        self.counts: IntArray = np.asarray(counts, dtype=np.int64)
        self.index = _Index((word, number) for number, word in enumerate(self.words))
        if self.counts.shape != (len(self.words),):
            raise InputError("counts", f"of shape {self.counts.shape}", f"one for each of {len(self.words)} words")
        if len(self.index) != len(self.words):
            raise InputError("words", f"{len(self.words) - len(self.index)} words twice", "different from each other")
        for mark in (UNK, EOS):
            if mark not in self.index:
                raise InputError("words", f"a list without {mark}", f"a list with {UNK} and {EOS}")
        if (np.diff(self.counts) > 0).any() or (self.counts < 0).any():
            raise InputError("counts", self.counts, "from the most frequent word to the rarest")
        self.unk, self.eos = self.index[UNK], self.index[EOS]

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.words == other.words and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, {int(self.counts.sum())} tokens)"

    def id(self, word: str) -> int:
        """The id of a word that must be known."""
        if word not in self.index:
            raise InputError("the word", word, f"one of the {len(self)} words of the vocabulary")
        return self.index[word]

    def encode(self, text: str) -> Tokens:
        """Ids of the words of a text, <eos> for each line feed."""
        words = split_words(text)
        return np.fromiter(map(self.index.__getitem__, words), np.int32, len(words))

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
    def from_json(cls, text: str | bytes, where: str = "something else") -> Vocabulary:
        """What :meth:`to_json` wrote; ``where`` it was, to be told in case it is damaged."""
        try:
            table = checksums.signed(text)
            fits = table["format"] == FORMAT
        except (ValueError, KeyError, TypeError, RecursionError):
            fits = False
        if not fits:
            allowed = f"as it was written: JSON of format {FORMAT} with words, counts and a checksum that fits"
            raise InputError("the vocabulary", where, allowed)
        return cls(table["words"], np.array(table["counts"], dtype=np.int64))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the words as JSON; the file appears whole or not at all."""
        put(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Vocabulary:
        """Read a file that :meth:`save` wrote; refuses one that is damaged."""
        try:
            text = Path(path).read_bytes()
        except OSError:
            raise InputError("the vocabulary file", str(path), "a file that exists and can be read") from None
        return cls.from_json(text, str(path))


def split_words(text: str) -> list[str]:
    """Words between white space; each line feed is the word <eos>."""
    return text.replace("\n", f" {EOS} ").split()


def build(
    blocks: Iterable[str], *, min_count: int | None = None, max_words: int | None = None
) -> tuple[Vocabulary, Tokens]:
    """The vocabulary of a text given in blocks of whole lines, and the text's ids, in one pass.

    Kept are words that occur at least ``min_count`` times and of those the ``max_words`` − 2 most frequent
    (ties: the first to appear); the rest is <unk>. ``min_count=None`` is 1 for a text that marks its rare words
    with <unk> already and 2 for any other, so that <unk> is something a model can learn.
    """
    if min_count is not None:
        min_count = whole("min_count", min_count, least=1)
    if max_words is not None:
        max_words = whole("max_words", max_words, least=3)
    first: defaultdict[str, int] = defaultdict()
    first.default_factory = first.__len__  # a new word gets the next number: ids by first appearance
    parts = []
    for block in blocks:
        words = split_words(block)
        parts.append(np.fromiter(map(first.__getitem__, words), np.int32, len(words)))
    ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    unk_in_text = UNK in first
    eos, unk = first[EOS], first[UNK]
    counts = np.bincount(ids, minlength=len(first))
    if min_count is None:
        min_count = 1 if unk_in_text else 2
    kept = counts >= min_count
    kept[[eos, unk]] = False  # they stay whatever their number is
    if max_words is not None:
        by_count = np.argsort(-counts, kind="stable")
        kept[by_count[kept[by_count]][max_words - 2 :]] = False
    kept[[eos, unk]] = True
    counts[unk] += counts[~kept].sum()
    counts[~kept] = 0
    order = np.argsort(-counts, kind="stable")
    order = order[kept[order]]
    number = np.full(len(first), -1, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    number[~kept] = number[unk]
    words = list(first)
    return Vocabulary([words[i] for i in order], counts[order]), number[ids]
