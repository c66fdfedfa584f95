"""The text that is asked: its most frequent words as queries, what stands before them, all words by distinctness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.corpus.cooccurrence import Cooccurrence, cooccurrence
from scansnap.corpus.corpus import Corpus
from scansnap.measure.word_attention import QueryWords, deciles, query_words
from scansnap.paper.shared.text_runs import LENGTH, TextSetting

NAMES = {"distinctness": "distinctness", "idf": "IDF", "pmi": "PMI", "cooccurrence": "co-occurrence"}  # of MEASURES
MARKS = 10  # the group of <unk> and <eos>, behind ten deciles of words
QUERIES, NEXT = 100, 20  # pairs that are counted: the most frequent queries, each with its most frequent next words
LEAST = 20  # a word is looked at with a query when it stands in so many of its contexts
TOP = 5_000  # words of the contexts


@dataclass(frozen=True)
class Text:
    """The text, the queries that are looked at and what stands before them."""

    setting: TextSetting
    words: QueryWords
    groups: np.ndarray  # (M,) decile of each word's distinctness, MARKS, or −1 for none
    top: int


def counted_text(setting: TextSetting) -> Text:
    """Count the contexts of the most frequent words, and sort all words into tenths by their distinctness."""
    corpus = setting.corpus
    marks = (corpus.vocabulary.unk, corpus.vocabulary.eos)
    top = min(TOP, corpus.vocab_size)
    frequent = [word for i, word in enumerate(corpus.words[:top]) if i not in marks][:QUERIES]
    pairs = contexts_of(frequent, corpus, next_per_query=NEXT, top=top, disjoint=False)
    words = query_words(pairs.query, pairs.next_token, pairs.contexts, least=LEAST, leave_out=marks)
    if not len(words.queries):
        raise InputError("data", corpus.title, f"a longer text: no word stands {LEAST} times before a frequent one")
    groups = np.full(corpus.vocab_size, -1)
    groups[:top] = deciles(words.by_word["distinctness"], marks)
    groups[list(marks)] = MARKS
    return Text(setting, words, groups, top)


def contexts_of(queries: list[str], corpus: Corpus, **settings: Any) -> Cooccurrence:
    """Contexts of these queries, or of the first of them if a small text has too few next words for them all."""
    while True:
        try:
            return cooccurrence(corpus, queries=queries, window=LENGTH - 1, **settings)
        except InputError:
            if len(queries) < 2:
                raise
            queries = queries[: len(queries) // 2]
