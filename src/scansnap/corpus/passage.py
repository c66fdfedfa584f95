"""Classes of a short text, as somebody pastes it: pairs of words that occur again and again, and what stands before.

Words are letters and digits in lower case; a sentence ends at . ! ? or at the end of a line. A class is a pair (last
word, next word) that the text has twice or more, and its context distribution is how often each word stands before the
pair in its sentence (:mod:`scansnap.corpus.cooccurrence`). Pairs that only begin sentences have no context and are no
classes.
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

LEAST = 20  # words
QUERIES, NEXT = 3, 2  # of the classes that are chosen where none are named: last words, next words of each
REACH = 100  # words before a pair that count, at most

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_END = re.compile(r"[.!?…]+(?=\W|$)|[\r\n]+")


@dataclass(frozen=True, eq=False)
class Passage:
    """A text and the pairs that may be its classes, the most frequent first."""

    vocabulary: Vocabulary
    n_words: int
    n_sentences: int
    query: IntArray  # (P,) word ids
    next_token: IntArray  # (P,)
    counts: IntArray  # (P,) how often the pair occurs
    followed: IntArray  # (P,) how often its last word is followed by any word
    contexts: Any  # (P, M) sparse: how often each word stands before it

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs in words."""
        words = self.vocabulary.words
        return [(words[q], words[n]) for q, n in zip(self.query, self.next_token, strict=True)]

    def chosen(self) -> list[tuple[str, str]]:
        """Up to six classes: last words with two next words each, for the context to tell apart.

        The last words are those whose two next words are frequent and most of what follows them: n (n/followed)² is
        largest, n being how often the two occur. Where no last word has two, those with one. A next word belongs to
        one class (see :mod:`scansnap.corpus.cooccurrence`).
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
        """The counts of these pairs, or of those that :meth:`chosen` has."""
        wanted = self.chosen() if pairs is None else checked(pairs)
        place = {pair: at for at, pair in enumerate(self.pairs)}
        for pair in wanted:
            if pair not in place:
                allowed = "one that the text has twice or more, with words before it in the sentence"
                raise InputError("the pair", " ".join(pair), allowed)
        if len(wanted) < 2:
            raise InputError("pairs", f"{len(wanted)} of them", "at least 2: with one class there is nothing to tell")
        at = np.array([place[pair] for pair in wanted])
        _, first = np.unique(self.query[at], return_index=True)
        return Cooccurrence(self.query[at], self.next_token[at], self.counts[at], self.contexts[at],
                            int(self.followed[at][first].sum()), REACH, False, self.vocabulary.words)  # fmt: skip


def read(text: Any, *, most: int) -> Passage:
    """The pairs of a text of at most so many characters, or in one sentence why it gives no classes."""
    if not isinstance(text, str):
        raise InputError("text", text, "a text")
    if len(text) > most:
        raise InputError("text", f"{len(text)} characters long", f"at most {most}")
    sentences = [words for part in _END.split(text) if (words := _WORD.findall(part.lower()))]
    n_words = sum(len(words) for words in sentences)
    if n_words < LEAST:
        raise InputError("text", f"{n_words} words long", f"at least {LEAST} words, some twenty lines are better")
    vocabulary, ids = build(["".join(" ".join(words) + "\n" for words in sentences)], min_count=1)
    table = pair_counts([ids], np.arange(len(vocabulary)), len(vocabulary)).tocoo()
    query, token, n = table.row.astype(np.int64), table.col.astype(np.int64), table.data.astype(np.int64)
    marks = [vocabulary.unk, vocabulary.eos]
    fits = (n > 1) & ~np.isin(query, marks) & ~np.isin(token, marks)
    if not fits.any():
        allowed = "one in which at least two pairs of neighbouring words occur twice or more"
        raise InputError("text", "without two words that follow each other twice", allowed)
    ends = np.isin(token, marks)
    followed = np.bincount(query[~ends], weights=n[~ends], minlength=len(vocabulary)).astype(np.int64)
    query, token, n = query[fits], token[fits], n[fits]
    reach = min(REACH, max(len(words) for words in sentences))
    contexts = context_counts([ids], query, token, top=len(vocabulary), window=reach, eos=vocabulary.eos)
    kept = np.flatnonzero(np.asarray(contexts.sum(axis=1)).ravel())
    kept = kept[np.lexsort([token[kept], query[kept], -n[kept]])]
    if len(kept) < 2:
        allowed = "one with at least two"
        has = ("no pair", "only one pair")[len(kept)]
        raise InputError("text", f"with {has} of words that occurs twice or more after other words", allowed)
    return Passage(
        vocabulary, n_words, len(sentences), query[kept], token[kept], n[kept], followed[query[kept]], contexts[kept]
    )


def checked(pairs: Any) -> list[tuple[str, str]]:
    """Pairs as somebody gives them: words, each next word once."""
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(word, str) for word in pair)
        for pair in pairs
    ):
        raise InputError("pairs", pairs, "a list of pairs [last word, next word]")
    wanted = [(str(query), str(following)) for query, following in pairs]
    following = [pair[1] for pair in wanted]
    for word in following:
        if following.count(word) > 1:
            raise InputError("the next word", word, "in one pair only")
    return wanted
