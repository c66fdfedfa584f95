"""Text at scale: ``python benchmarks/corpus.py [--tokens 100000000] [--data DIR]``.

First co-occurrence counts over a synthetic stream of Zipf words (P ∝ 1/rank), made in blocks and never held as a
whole: tokens per second of the two counting passes with the making of the blocks taken off, and the peak memory of
the process so far. Then how long a corpus takes to read and encode, and to come from the cache.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from scansnap.corpus import load_corpus
from scansnap.corpus.cooccurrence import count
from scansnap.corpus.encoding import BLOCK
from scansnap.corpus.vocabulary import EOS, UNK, Vocabulary

WORDS = 267_735  # as in WikiText-103


class ZipfStream:
    """Blocks of independent Zipf words by seed; ``seconds`` is the time spent making them."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.seconds = tokens, 0.0
        self.cumulative = np.cumsum(1 / np.arange(1, WORDS + 1))

    def __call__(self) -> Iterator[np.ndarray]:
        for number, start in enumerate(range(0, self.tokens, BLOCK)):
            began = time.perf_counter()
            draws = np.random.default_rng(number).random(min(BLOCK, self.tokens - start)) * self.cumulative[-1]
            block = np.minimum(np.searchsorted(self.cumulative, draws), WORDS - 1).astype(np.int32)
            self.seconds += time.perf_counter() - began
            yield block


def memory() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


def loading(data: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what in ("read and encoded", "from the cache"):
            began = time.perf_counter()
            corpus = load_corpus(data, cache_dir=folder)
            print(f"{what:18s} {time.perf_counter() - began:6.2f} s  {corpus!r}  peak {memory()}", flush=True)


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
        stream = ZipfStream(tokens)
        began = time.perf_counter()
        found = count(stream, vocabulary, queries=queries, next_per_query=per_query, top=top, cross_eos=cross)
        seconds = time.perf_counter() - began - stream.seconds
        print(
            f"{queries:8d} {per_query:5d} {top or WORDS:8d} {cross!s:>6s} {found.share:6.3f} "
            f"{tokens / seconds:12,.0f} {memory():>9s}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time the reading of a corpus and its co-occurrence counts.")
    parser.add_argument("--tokens", type=int, default=100_000_000, help="length of the synthetic stream")
    parser.add_argument("--data", help="folder, file or name; without it SCANSNAP_DATA or stdlib")
    given = parser.parse_args()
    counting(given.tokens)  # first: its memory is the smaller, and the peak is the process's
    loading(given.data)
