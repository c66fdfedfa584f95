"""A corpus: a source's three splits as token ids, with the vocabulary of its training split."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from scansnap.checks import InputError, check_choice, check_integer
from scansnap.corpus import cache
from scansnap.corpus.encoding import EncodedText, TokenCounter, encode, split_into_blocks
from scansnap.corpus.sources import SPLITS, TextSource, find_corpus
from scansnap.corpus.units import TextSize
from scansnap.corpus.vocabulary import Tokens, Vocabulary, WordCounter
from scansnap.progress import Progress
from scansnap.storage import WriteError

VOCAB_SIZE = 8000  # of a tokenizer that is trained, unless said otherwise
TRAINED_ON = 2**25  # bytes of text, about, that a tokenizer is trained on, spread evenly over the training split
Data = TextSource | Path | str | Sequence[Path | str]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token ids of the three splits; ``words[i]`` is the word (or subword) with id i.

    The ids of a corpus from the cache are maps of its files: they are read where and when they are used.
    """

    name: str
    title: str
    vocabulary: Vocabulary
    train: Tokens
    valid: Tokens
    test: Tokens
    n_words: Mapping[str, int] = field(default_factory=dict)  # in each split, line ends too; empty: as many as tokens

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
        tokens: Tokens = getattr(self, check_choice("split", name, SPLITS))
        return tokens

    def per_word(self, perplexity: float, split: str = "valid") -> float:
        """The perplexity per word of a split, from that per token: comparable whatever the tokens are."""
        tokens = self.split(split).size
        return TextSize(tokens, self.n_words.get(split, tokens)).per_word(perplexity)

    def __repr__(self) -> str:
        sizes = " + ".join(f"{self.split(name).size} {name}" for name in SPLITS)
        return f"Corpus({self.title!r}, {self.vocab_size} {self.vocabulary.unit}, {sizes} tokens)"


def load_corpus(
    data: Data | None = None,
    *,
    min_count: int | None = None,
    max_words: int | None = None,
    tokenizer: Path | str = "words",
    vocab_size: int | None = None,
    cache_dir: Path | str | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> Corpus:
    """Read and encode a source (see :func:`~scansnap.corpus.sources.find_corpus`), or take it from the cache.

    tokenizer    ``words``; ``bpe``: subwords, trained on the training split; or the path of a ``tokenizer.json``
    min_count, max_words    bound a vocabulary of words (see :class:`~scansnap.corpus.vocabulary.WordCounter`)
    vocab_size   of a tokenizer that is trained, 8,000 unless given

    ``progress(done, total)`` counts bytes, about. The cache lies in ``cache_dir``, by default SCANSNAP_CACHE or
    ~/.cache/scansnap; its ids are used where they lie. Where it cannot be written the corpus is encoded anew each time
    and held in memory.
    """
    settings, counter = _counter(tokenizer, vocab_size, min_count, max_words)
    source = data if isinstance(data, TextSource) else find_corpus(data)
    if use_cache and (folder := cache.folder(cache_dir)) is not None:
        content = source.fingerprint()
        entry = folder / cache.key(source.name, content, **settings)
        known = cache.read(entry)
        if known is not None:
            return _corpus(source, known)
        made = counter(source)
        try:
            with cache.writing(entry) as scratch:
                encoded = _encoded(source, made, scratch, progress)
                if source.fingerprint() != content:
                    raise _SourceChanged
                cache.seal(scratch, encoded)
            return _corpus(source, encoded)
        except (
            _SourceChanged
        ):  # while it was read: the files are gone from the folder, and stay as long as they are mapped
            return _corpus(source, encoded)
        except WriteError:
            pass
    return _corpus(source, _encoded(source, counter(source), None, progress))


class _SourceChanged(Exception):
    """The text is no longer that which the entry is named after."""


def _encoded(source: TextSource, counter: TokenCounter, folder: Path | None, progress: Progress | None) -> EncodedText:
    """The corpus, if each split has words."""
    encoded = encode(source, counter, folder, progress)
    for name, tokens in encoded.splits.items():
        if not any((block != encoded.vocabulary.eos).any() for block in split_into_blocks(tokens)):
            raise InputError("data", source.where[name], f"a text with words ({name} has none)")
    return encoded


def _corpus(source: TextSource, encoded: EncodedText) -> Corpus:
    return Corpus(source.name, source.title, encoded.vocabulary, **encoded.splits, n_words=encoded.words)


def _counter(
    tokenizer: Path | str, vocab_size: int | None, min_count: int | None, max_words: int | None
) -> tuple[dict[str, int | str | None], Callable[[TextSource], TokenCounter]]:
    """What a vocabulary depends on beside the text, and how it is made; refuses what does not go together."""
    from scansnap.corpus import tokenizers
    from scansnap.corpus.subwords import SubwordCounter

    if vocab_size is not None and str(tokenizer) != "bpe":
        raise InputError("vocab_size", vocab_size, "left out unless the tokenizer is bpe")
    if str(tokenizer) == "words":
        checked = WordCounter(min_count, max_words)
        settings: dict[str, int | str | None] = {"min_count": checked.min_count, "max_words": checked.max_words}
        return settings, lambda source: WordCounter(min_count, max_words)
    for name, value in (("min_count", min_count), ("max_words", max_words)):
        if value is not None:
            raise InputError(name, value, "left out with a tokenizer, whose vocabulary is its own")
    if str(tokenizer) == "bpe":
        size = (
            VOCAB_SIZE
            if vocab_size is None
            else check_integer("vocab_size", vocab_size, least=tokenizers.LEAST, most=2**24)
        )

        def trained(source: TextSource) -> TokenCounter:
            every = math.ceil(source.size / TRAINED_ON) or 1
            return SubwordCounter(tokenizers.train_bpe(islice(source.blocks("train"), 0, None, every), size))

        return {"tokenizer": "bpe", "vocab_size": size}, trained
    text = tokenizers.read(Path(tokenizer))
    return {"tokenizer": hashlib.sha256(text.encode()).hexdigest()}, lambda source: SubwordCounter(text)
