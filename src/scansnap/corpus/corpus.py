"""A corpus: a source's three splits as token ids, with the vocabulary of its training split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scansnap.checks import InputError, choice, whole
from scansnap.corpus import cache
from scansnap.corpus.sources import SPLITS, Source, find_corpus
from scansnap.corpus.vocabulary import Tokens, Vocabulary, build
from scansnap.progress import Progress


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token ids of the three splits; ``words[i]`` is the word with id i."""

    name: str
    title: str
    vocabulary: Vocabulary
    train: Tokens
    valid: Tokens
    test: Tokens

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary's words, the most frequent first."""
        return self.vocabulary.words

    @property
    def vocab_size(self) -> int:
        """M."""
        return len(self.vocabulary)

    def split(self, name: str) -> Tokens:
        """The ids of one split."""
        tokens: Tokens = getattr(self, choice("split", name, SPLITS))
        return tokens

    def __repr__(self) -> str:
        sizes = " + ".join(f"{self.split(name).size} {name}" for name in SPLITS)
        return f"Corpus({self.title!r}, {self.vocab_size} words, {sizes} tokens)"


def load_corpus(
    data: Source | Path | str | None = None,
    *,
    min_count: int | None = None,
    max_words: int | None = None,
    cache_dir: Path | str | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> Corpus:
    """Read and encode a source (see :func:`~scansnap.corpus.sources.find_corpus`), or take it from the cache.

    ``min_count`` and ``max_words`` bound the vocabulary (see :func:`~scansnap.corpus.vocabulary.build`).
    ``progress(done, total)`` counts bytes, about. The cache lies in ``cache_dir``, by default SCANSNAP_CACHE or
    ~/.cache/scansnap; where it cannot be written the corpus is encoded anew each time.
    """
    source = data if isinstance(data, Source) else find_corpus(data)
    min_count = None if min_count is None else whole("min_count", min_count, least=1)
    max_words = None if max_words is None else whole("max_words", max_words, least=3)
    entry, content = None, ""
    if use_cache and (folder := cache.folder(cache_dir)) is not None:
        content = source.fingerprint()
        entry = folder / cache.key(source.name, content, min_count=min_count, max_words=max_words)
        known = cache.read(entry)
        if known is not None:
            vocabulary, splits = known
            return Corpus(source.name, source.title, vocabulary, *(splits[name] for name in SPLITS))
    read = _Reading(source, progress)
    vocabulary, train = build(read("train"), min_count=min_count, max_words=max_words)
    splits = {"train": train}
    for name in SPLITS[1:]:
        parts = [vocabulary.encode(block) for block in read(name)]
        splits[name] = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    for name, tokens in splits.items():
        if not (tokens != vocabulary.eos).any():
            raise InputError("data", source.where[name], f"a text with words ({name} has none)")
    if entry is not None and source.fingerprint() == content:  # else it changed while it was read
        cache.write(entry, vocabulary, splits)
    return Corpus(source.name, source.title, vocabulary, *(splits[name] for name in SPLITS))


class _Reading:
    """Blocks of a source's splits; says how far it has come."""

    def __init__(self, source: Source, progress: Progress | None) -> None:
        self.source, self.progress, self.done = source, progress, 0

    def __call__(self, split: str) -> Iterator[str]:
        for block in self.source.blocks(split):
            yield block
            self.done += len(block)
            if self.progress is not None:
                self.progress(min(self.done, self.source.size), self.source.size)
