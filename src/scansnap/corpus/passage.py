"""Sequence classes of a short text: repeated pairs of words and the words before them.

Words are letters and digits in lower case; a sentence ends at . ! ? or at the end of a line. A class is a pair (last
word, next word) that occurs at least twice. Its context distribution has the words before the pair in its sentence
(`scansnap.corpus.cooccurrence`), so pairs that only begin sentences are no classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.checks.arrays import IntArray
from scansnap.corpus.cooccurrence import Cooccurrence, context_counts, pair_counts
from scansnap.corpus.vocabulary import Vocabulary, build

MIN_WORDS = 20
QUERIES, NEXT = 3, 2  # of the default classes: last words, and next words of each
REACH = 100  # most words before a pair that count

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_END = re.compile(r"[.!?…]+(?=\W|$)|[\r\n]+")


@dataclass(frozen=True, eq=False)
class Passage:
    """A text and its possible classes, the most frequent pairs first."""

    vocabulary: Vocabulary
    n_words: int
    n_sentences: int
    query: IntArray  # (P,) word ids
    next_token: IntArray  # (P,)
    counts: IntArray  # (P,) how often the pair occurs
    followed: IntArray  # (P,) how often any word follows its last word
    contexts: Any  # (P, M) sparse: how often each word occurs before it

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs as words."""
        words = self.vocabulary.words
        return [(words[q], words[n]) for q, n in zip(self.query, self.next_token, strict=True)]

    def chosen(self) -> list[tuple[str, str]]:
        """Up to six classes by default: last words with two next words each, which the context must distinguish.

        The two next words are frequent and make up most of what follows the last word: n (n/followed)² is largest,
        where n counts both. If no last word has two next words, one is enough. A next word belongs to one class.
        """
        by_query: dict[str, list[str]] = {}
        best: dict[str, float] = {}
        for (query, following), n, of in zip(self.pairs, self.counts.tolist(), self.followed.tolist(), strict=True):
            by_query.setdefault(query, []).append(following)
            if len(by_query[query]) <= NEXT:
                best[query] = best.get(query, 0.0) + n / of ** (2 / 3)
        ranked = sorted(by_query, key=lambda query: -best[query])
        for least in (NEXT, 1):
            taken: dict[str, str] = {}  # next word: its last word
            for query in ranked:
                free = [following for following in by_query[query] if following not in taken][:NEXT]
                if len(free) >= least and len(set(taken.values())) < QUERIES:
                    taken |= dict.fromkeys(free, query)
            if len(taken) > 1:
                break
        return [(query, following) for following, query in taken.items()]

    def classes(self, pairs: Sequence[Sequence[str]] | None = None) -> Cooccurrence:
        """The counts of these pairs, by default those of `chosen`."""
        wanted = self.chosen() if pairs is None else check_pairs(pairs)
        index = {pair: i for i, pair in enumerate(self.pairs)}
        for pair in wanted:
            if pair not in index:
                expected = "a pair that occurs at least twice in the text, with words before it in the sentence"
                raise InputError("pairs", " ".join(pair), expected)
        if len(wanted) < 2:
            raise InputError("pairs", f"{len(wanted)} pairs", "at least 2 pairs")
        at = np.array([index[pair] for pair in wanted])
        _, first = np.unique(self.query[at], return_index=True)
        return Cooccurrence(self.query[at], self.next_token[at], self.counts[at], self.contexts[at],
                            int(self.followed[at][first].sum()), REACH, False, self.vocabulary.words)  # fmt: skip


def read(text: Any, *, most: int) -> Passage:
    """The pairs of a text of at most ``most`` characters."""
    if not isinstance(text, str):
        raise InputError("text", text, "a text")
    if len(text) > most:
        raise InputError("text", f"{len(text)} characters", f"at most {most} characters")
    sentences = [words for part in _END.split(text) if (words := _WORD.findall(part.lower()))]
    n_words = sum(len(words) for words in sentences)
    if n_words < MIN_WORDS:
        raise InputError("text", f"{n_words} words", f"at least {MIN_WORDS} words", "twenty lines are better")
    vocabulary, ids = build(["".join(" ".join(words) + "\n" for words in sentences)], min_count=1)
    table = pair_counts([ids], np.arange(len(vocabulary)), len(vocabulary)).tocoo()
    query, token, n = table.row.astype(np.int64), table.col.astype(np.int64), table.data.astype(np.int64)
    special = [vocabulary.unk, vocabulary.eos]
    fits = (n > 1) & ~np.isin(query, special) & ~np.isin(token, special)
    if not fits.any():
        raise InputError("text", "a text without repeated pairs", "a text with at least two repeated pairs of words")
    ends = np.isin(token, special)
    followed = np.bincount(query[~ends], weights=n[~ends], minlength=len(vocabulary)).astype(np.int64)
    query, token, n = query[fits], token[fits], n[fits]
    reach = min(REACH, max(len(words) for words in sentences))
    contexts = context_counts([ids], query, token, top=len(vocabulary), window=reach, eos=vocabulary.eos)
    rows = np.flatnonzero(np.asarray(contexts.sum(axis=1)).ravel())
    rows = rows[np.lexsort([token[rows], query[rows], -n[rows]])]
    if len(rows) < 2:
        expected = "a text with at least two repeated pairs of words after other words"
        raise InputError("text", f"a text with {len(rows)} of them", expected)
    return Passage(
        vocabulary, n_words, len(sentences), query[rows], token[rows], n[rows], followed[query[rows]], contexts[rows]
    )


def check_pairs(pairs: Any) -> list[tuple[str, str]]:
    """Pairs of words, each next word once."""
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(word, str) for word in pair)
        for pair in pairs
    ):
        raise InputError("pairs", pairs, "a list of pairs [last word, next word]")
    wanted = [(str(query), str(following)) for query, following in pairs]
    following = [pair[1] for pair in wanted]
    for word in following:
        if following.count(word) > 1:
            raise InputError("pairs", word, "each next word in one pair only")
    return wanted
