"""A corpus: the three splits of a source as token ids, with the vocabulary of its training split.

Perplexity is per token, word or character. Perplexity per token compares only models with the same tokenizer. Every
token but the first is predicted, and every word but the first; the end of a line is a word. A word outside the
vocabulary is <unk>, which is easier to predict: ``unknown`` counts them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from scansnap.checks import InputError, check_choice, check_integer
from scansnap.corpus import cache
from scansnap.corpus.encoding import EncodedText, TokenCounter, encode, file_name, map_split, split_into_blocks
from scansnap.corpus.sources import SPLITS, TextSource, find_corpus
from scansnap.corpus.vocabulary import Tokens, Vocabulary, WordCounter, split_words
from scansnap.progress import Progress
from scansnap.storage import WriteError

VOCAB_SIZE = 8000  # of a trained tokenizer, by default
TRAINED_ON = 2**25  # approximate bytes on which a tokenizer is trained, spread evenly over the training split
Data = TextSource | Path | str | Sequence[Path | str]


@dataclass(frozen=True)
class TextLength:
    """The size of a text in several units."""

    tokens: int
    words: int  # line ends too
    characters: int = 0  # with single blanks and line feeds; 0: not counted
    unknown: int = 0  # tokens that are <unk>

    def per_word(self, perplexity: float) -> float:
        """The perplexity per word, from that per token."""
        nats = self._nats(perplexity) / max(self.words - 1, 1)
        return math.exp(nats) if nats < 700 else math.inf

    def bits_per_character(self, perplexity: float) -> float:
        """log₂ of 1/p of the text per character, from the perplexity per token."""
        return self._nats(perplexity) / math.log(2) / self.characters

    def _nats(self, perplexity: float) -> float:
        return math.log(perplexity) * (self.tokens - 1)


def encode_blocks(vocabulary: Vocabulary, blocks: Iterable[str]) -> tuple[Tokens, TextLength]:
    """The ids of a text in blocks of whole lines, and its size."""
    parts: list[Tokens] = [np.zeros(0, np.int32)]
    words = characters = 0
    for block in blocks:
        parts.append(vocabulary.encode(block))
        words += len(split_words(block))
        characters += sum(len(" ".join(line.split())) for line in block.split("\n")) + block.count("\n")
    tokens = np.concatenate(parts)
    return tokens, TextLength(len(tokens), words, characters, int((tokens == vocabulary.unk).sum()))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token ids of the three splits; ``words[i]`` is the word (or subword) with id i.

    The ids of a corpus from the cache are mapped from its files, and read when they are used.
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
        """The words of the vocabulary, the most frequent first."""
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
        """The perplexity per word of a split, from that per token: comparable for any tokens."""
        tokens = self.split(split).size
        return TextLength(tokens, self.n_words.get(split, tokens)).per_word(perplexity)

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
    """Read and encode a text, or take it from the cache.

    Parameters
    ----------
    data
        A folder, a .txt file, ``wikitext-2``, ``wikitext-103`` or ``stdlib``; see
        `scansnap.corpus.sources.find_corpus`.
    min_count, max_words
        Bounds of a vocabulary of words; see `scansnap.corpus.vocabulary.WordCounter`.
    tokenizer
        ``words``; ``bpe``: subwords, trained on the training split; or the path of a ``tokenizer.json``.
    vocab_size
        Of a trained tokenizer, 8,000 by default.
    cache_dir
        Where the cache is, by default SCANSNAP_CACHE or ~/.cache/scansnap. If it cannot be written, the text is encoded
        each time and stays in memory.
    use_cache
        Whether to use the cache.
    progress
        Called as ``progress(done, total)`` with the approximate number of bytes.

    Returns
    -------
    Corpus
        With ``train``, ``valid``, ``test`` and ``vocabulary``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for split in ("train", "valid", "test"):
    ...     size = (folder / f"{split}.txt").write_text("the cat sat on the mat\\n" * 3)
    >>> load_corpus(folder, use_cache=False).words[:2]
    ('the', 'cat')
    """
    settings, make_counter = _counter(tokenizer, vocab_size, min_count, max_words)
    source = data if isinstance(data, TextSource) else find_corpus(data)
    if use_cache and (folder := cache.cache_folder(cache_dir)) is not None:
        content = source.fingerprint()
        entry = folder / cache.entry_name(source.name, content, **settings)
        cached = read_entry(entry)
        if cached is not None:
            return _corpus(source, cached)
        counter = make_counter(source)
        try:
            with cache.writing(entry) as scratch:
                encoded = _encode(source, counter, scratch, progress)
                if source.fingerprint() != content:
                    raise _SourceChanged
                finish_text(scratch, encoded)
            return _corpus(source, encoded)
        except _SourceChanged:  # its files are deleted, and stay readable as long as they are mapped
            return _corpus(source, encoded)
        except WriteError:
            pass
    return _corpus(source, _encode(source, make_counter(source), None, progress))


class _SourceChanged(Exception):
    """The text changed while it was read."""


def finish_text(folder: Path, encoded: EncodedText) -> None:
    """Complete a cache entry that has the ids of all splits."""
    values = {"vocabulary": encoded.vocabulary.to_json(), "words": encoded.words}
    cache.finish_entry(folder, values, map(file_name, SPLITS))


def read_entry(entry: Path) -> EncodedText | None:
    """The encoded text of a sound cache entry."""
    values = cache.read(entry)
    if values is None:
        return None
    try:
        vocabulary = Vocabulary.from_json(values["vocabulary"])
        splits = {split: map_split(entry, split) for split in SPLITS}
        for tokens in splits.values():
            if any(not 0 <= block.min() <= block.max() < len(vocabulary) for block in split_into_blocks(tokens)):
                raise ValueError
        return EncodedText(vocabulary, splits, {split: int(values["words"][split]) for split in SPLITS})
    except (OSError, ValueError, KeyError, TypeError):
        cache.remove(entry)
        return None


def _encode(source: TextSource, counter: TokenCounter, folder: Path | None, progress: Progress | None) -> EncodedText:
    """Encode a source whose splits all have words."""
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
    """The settings of the vocabulary and a function that creates its counter; contradictions are refused."""
    from scansnap.corpus import tokenizers
    from scansnap.corpus.subwords import SubwordCounter

    if vocab_size is not None and str(tokenizer) != "bpe":
        raise InputError("vocab_size", vocab_size, "None unless the tokenizer is bpe")
    if str(tokenizer) == "words":
        checked = WordCounter(min_count, max_words)
        settings: dict[str, int | str | None] = {"min_count": checked.min_count, "max_words": checked.max_words}
        return settings, lambda source: WordCounter(min_count, max_words)
    for name, value in (("min_count", min_count), ("max_words", max_words)):
        if value is not None:
            raise InputError(name, value, "None with a tokenizer, which has its own vocabulary")
    if str(tokenizer) == "bpe":
        size = (
            VOCAB_SIZE
            if vocab_size is None
            else check_integer("vocab_size", vocab_size, least=tokenizers.MIN_VOCAB_SIZE, most=2**24)
        )

        def trained(source: TextSource) -> TokenCounter:
            every = math.ceil(source.size / TRAINED_ON) or 1
            return SubwordCounter(tokenizers.train_bpe(islice(source.blocks("train"), 0, None, every), size))

        return {"tokenizer": "bpe", "vocab_size": size}, trained
    text = tokenizers.read(Path(tokenizer))
    return {"tokenizer": hashlib.sha256(text.encode()).hexdigest()}, lambda source: SubwordCounter(text)
