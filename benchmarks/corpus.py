"""Text at scale: ``python benchmarks/corpus.py [--part streams] [--tokens 100000000] [--data DIR]``.

counting   co-occurrence counts over a synthetic stream of Zipf words (P ∝ 1/rank), made in blocks and never held as a
           whole: tokens per second of the two counting passes with the making of the blocks taken off
streams    a text of so many words, the lines of a corpus over and over in another order, in a folder that is removed in
           the end (15 bytes a token): encoding it as words and as subwords, taking it from the cache, and reading
           batches of it, each beside the plain way in this process and the limit of the machine
loading    how long a corpus takes to read and encode, and to come from the cache

Speeds are per second of processor time unless they say wall; memory is what is not a map of a file (RssAnon), above
what the process had before. Linux only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scansnap.corpus import Corpus, load_corpus
from scansnap.corpus.cooccurrence import cooccurrence
from scansnap.corpus.corpus import TRAINED_ON
from scansnap.corpus.encoding import BLOCK, map_split
from scansnap.corpus.sources import SPLITS, find_corpus
from scansnap.corpus.subwords import Subwords
from scansnap.corpus.tokenizers import SubwordEncoder, train_bpe
from scansnap.corpus.vocabulary import EOS, UNK, Vocabulary
from scansnap.corpus.windows import Windows

WORDS = 267_735  # as in WikiText-103
PLAIN = 10_000_000  # tokens of the plain ways, which hold all they read: at 10⁸ they would take some ten gigabytes
BATCHES = 20_000


class Measured:
    """Processor time, wall time and the largest memory of a block."""

    def __init__(self) -> None:
        self.processor = self.wall = 0.0
        self.before = self.peak = anonymous()

    def __str__(self) -> str:
        return f"{self.processor:7.2f} s, {self.wall:7.2f} s wall, {(self.peak - self.before) / 1e6:6,.0f} MB"


@contextmanager
def measured() -> Iterator[Measured]:
    found, over = Measured(), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            found.peak = max(found.peak, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.process_time(), time.perf_counter()
    try:
        yield found
    finally:
        found.processor, found.wall = time.process_time() - began[0], time.perf_counter() - began[1]
        over.set()
        watcher.join()
        found.peak = max(found.peak, anonymous())


def anonymous() -> int:
    """Bytes in memory that are this process's own, not a file's."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024


class ZipfStream:
    """Independent Zipf words by seed, made block by block when sliced; ``seconds`` is the time that takes."""

    def __init__(self, tokens: int) -> None:
        self.size, self.seconds = tokens, 0.0
        self.cumulative = np.cumsum(1 / np.arange(1, WORDS + 1))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, block: slice) -> np.ndarray:
        began = time.process_time()
        n_tokens = min(block.stop, self.size) - block.start
        draws = np.random.default_rng(block.start // BLOCK).random(n_tokens) * self.cumulative[-1]
        tokens = np.minimum(np.searchsorted(self.cumulative, draws), WORDS - 1).astype(np.int32)
        self.seconds += time.process_time() - began
        return tokens


def loading(data: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what in ("read and encoded", "from the cache"):
            with measured() as took:
                corpus = load_corpus(data, cache_dir=folder)
            print(f"{what:18s} {took}  {corpus!r}", flush=True)


def counting(tokens: int) -> None:
    words = [f"w{i}" for i in range(WORDS)]
    words[8], words[2] = EOS, UNK
    vocabulary = Vocabulary(words, np.arange(WORDS, 0, -1))
    print(f"{tokens:,} Zipf tokens, {WORDS:,} words, windows of 35")
    print(f"{'queries':>8s} {'next':>5s} {'top':>8s} {'cross':>6s} {'share':>6s} {'tokens/s':>12s} {'peak':>9s}")
    for queries, per_query, top, cross in (
        (10, 2, 1000, True),
        (100, 10, 1000, True),
        (100, 10, 1000, False),
        (100, 10, None, True),
    ):
        stream: Any = ZipfStream(tokens)
        corpus = Corpus("zipf", "Zipf words", vocabulary, stream, stream, stream)
        with measured() as took:
            counts = cooccurrence(corpus, queries=queries, next_per_query=per_query, top=top, cross_eos=cross)
        seconds = took.processor - stream.seconds
        print(
            f"{queries:8d} {per_query:5d} {top or WORDS:8d} {cross!s:>6s} {counts.share:6.3f} "
            f"{tokens / seconds:12,.0f} {(took.peak - took.before) / 1e6:6,.0f} MB",
            flush=True,
        )


def streams(tokens: int, data: str | None) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = written(folder, tokens, data)
        size = sum(path.stat().st_size for path in text.iterdir())
        with measured() as took:
            digest = hashlib.sha256()
            with (text / "train.txt").open("rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
        line("limit: the text read and hashed", took, size, "bytes")
        words = encoding("words", text, folder, {})
        with measured() as took:
            every = -(-size // TRAINED_ON)
            (folder / "tokenizer.json").write_text(
                train_bpe(islice(find_corpus(text).blocks("train"), 0, None, every), 8000)
            )
        line("a tokenizer of 8,000 trained", took, min(size, TRAINED_ON), f"bytes, one block of text in {every}")
        subwords = encoding("subwords", text, folder, {"tokenizer": folder / "tokenizer.json"})
        plain_words(text)
        plain_subwords(text, subwords)
        with measured() as took:
            cooccurrence(words)
        line("co-occurrences of 10 queries, map", took, words.train.size)
        path = Path(words.train.filename)  # type: ignore[attr-defined]
        del words  # what is mapped cannot be taken from memory
        reading(path)


def written(folder: Path, tokens: int, data: str | None) -> Path:
    """The text: the training lines of a corpus over and over, shuffled each time, and its held-out splits once."""
    source, text = find_corpus(data), folder / "text"
    text.mkdir()
    lines = "".join(source.blocks("train")).splitlines(keepends=True)
    each = sum(len(line.split()) + 1 for line in lines)
    rng = np.random.default_rng(0)
    with (text / "train.txt").open("w", encoding="utf-8") as file:
        for _ in range(-(-tokens // each)):
            file.writelines(lines[i] for i in rng.permutation(len(lines)))
    for split in SPLITS[1:]:
        (text / f"{split}.txt").write_text("".join(source.blocks(split)), encoding="utf-8")
    return text


def encoding(what: str, text: Path, folder: Path, tokens: dict[str, Any]) -> Corpus:
    with measured() as took:
        corpus = load_corpus(text, cache_dir=folder, **tokens)
    n = sum(corpus.split(split).size for split in SPLITS)
    width = corpus.train.itemsize
    line(f"{what} encoded to a file", took, n, f"tokens of {corpus.vocab_size:,}, {width} bytes each")
    with measured() as took:
        corpus = load_corpus(text, cache_dir=folder, **tokens)
    line(f"{what} from the cache, all checked", took, n)
    return corpus


def line(what: str, took: Measured, n: int, of: str = "tokens") -> None:
    print(f"{what:36s}{n / max(took.processor, 1e-9):13,.0f}/s {took}  ({n:,} {of})", flush=True)


def some_text(text: Path, tokens: int) -> str:
    """The beginning of the text, of about so many tokens."""
    size = (text / "train.txt").stat().st_size
    with (text / "train.txt").open("rb") as file:
        return (file.read(min(size, tokens * 6)) + file.readline()).decode()


def plain_words(text: Path) -> None:
    """The text at once: read, split, and two dictionary lookups for each word."""
    with measured() as took:
        words = some_text(text, PLAIN).replace("\n", f" {EOS} ").split()
        counts: dict[str, int] = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        number = {word: i for i, word in enumerate(sorted(counts, key=lambda word: -counts[word]))}
        ids = np.array([number[word] for word in words])
    line("plain: read().split(), look up", took, len(ids))


def plain_subwords(text: Path, corpus: Corpus) -> None:
    """The package as its guides say: a list of lines at once."""
    assert isinstance(corpus.vocabulary, Subwords)
    pieces = SubwordEncoder(corpus.vocabulary.tokenizer)
    with measured() as took:
        lines = [" ".join(line.split()) for line in some_text(text, PLAIN // 5).split("\n")]
        ids = np.concatenate([np.array(found.ids) for found in pieces.tokenizer.encode_batch(lines)])
    line("plain: tokenizers.encode_batch", took, len(ids))


def reading(path: Path) -> None:
    """Batches of 20 windows of 35 tokens: from the map, its pages in memory or not, and from an array."""
    for name, order in (("in order", None), ("shuffled", 0)):
        drop(path)
        maps = Windows(map_split(path.parent, "train"), 20, 35)
        batches(f"map, {name}, from the disk", maps, order)
        batches(f"map, {name}, again", maps, order)
        del maps
    array = map_split(path.parent, "train").astype(np.int32)
    for name, order in (("in order", None), ("shuffled", 0)):
        batches(f"plain: an array, {name}", Windows(array, 20, 35), order)
    some = torch.from_numpy(array[: 1 << 26])
    with measured() as took:
        some.long()
    line("limit: ids copied as int64", took, len(some))
    drop(path)
    with measured() as took, path.open("rb") as file:
        while file.read(1 << 22):
            pass
    size = path.stat().st_size
    line("limit: the file's bytes from the disk", took, size, f"bytes, {size / took.wall:,.0f}/s wall")


def batches(name: str, windows: Windows, seed: int | None) -> None:
    order = windows.order(seed)[:BATCHES]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    with measured() as took:
        n = sum(windows[i][0].numel() for i in order)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
    line(name, took, n, f"tokens, {n / took.wall:,.0f}/s wall, {faults:,} reads from the disk")


def drop(path: Path) -> None:
    """Nothing of the file in memory, as far as the system can be asked."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


PARTS: dict[str, Callable[[int, str | None], None]] = {
    "counting": lambda tokens, data: counting(tokens),
    "streams": streams,
    "loading": lambda tokens, data: loading(data),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time the reading of a corpus and its co-occurrence counts.")
    parser.add_argument("--part", choices=PARTS, help="one alone")
    parser.add_argument("--tokens", type=int, default=100_000_000, help="length of the stream")
    parser.add_argument("--data", help="folder, file or name; without it SCANSNAP_DATA or stdlib")
    given = parser.parse_args()
    for name, part in PARTS.items():
        if given.part in (None, name):
            part(given.tokens, given.data)
