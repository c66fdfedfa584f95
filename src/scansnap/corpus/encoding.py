"""Encode a text into files of token ids, in one pass and in memory that does not grow with the text.

Ids are ordered by frequency, which is known only at the end. So the text is first encoded with the numbers of words in
order of appearance (four bytes each, in a temporary file), which are then replaced by ids block by block. The files are
``.npy`` with two bytes per id if the vocabulary allows it; `map_split` maps them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from scansnap.corpus.sources import SPLITS, TextSource
from scansnap.corpus.vocabulary import Tokens, Vocabulary, id_type
from scansnap.progress import Progress

BLOCK = 2**20  # tokens


class TokenCounter(Protocol):
    """Numbers words or subwords as they appear; see `scansnap.corpus.vocabulary.WordCounter`."""

    @property
    def words(self) -> int:
        """Their number in all text so far, with line ends."""

    def train(self, text: str) -> Tokens:
        """First numbers of a part of the training text."""

    def held_out(self, text: str) -> Tokens:
        """First numbers of held-out text, after all training text."""

    def finish(self) -> tuple[Vocabulary, Tokens]:
        """The vocabulary, and the id of each first number."""


@dataclass(frozen=True, eq=False)
class EncodedText:
    """Ids of the splits, and the number of words of each (with line ends) for any tokens."""

    vocabulary: Vocabulary
    splits: dict[str, Tokens]
    words: dict[str, int]


def encode(
    source: TextSource, counter: TokenCounter, folder: Path | None, progress: Progress | None = None
) -> EncodedText:
    """Encode a source into ``folder``, one file for each split; without a folder in memory."""
    words: dict[str, int] = {}
    with ExitStack() as stack:
        first = {split: stack.enter_context(_scratch(folder, split)) for split in SPLITS}
        done = 0
        for split in SPLITS:
            before = counter.words
            for block in source.blocks(split):
                first[split].write((counter.train if split == "train" else counter.held_out)(block).tobytes())
                done += len(block)
                if progress is not None:
                    progress(min(done, source.size), source.size)
            words[split] = counter.words - before
        vocabulary, number = counter.finish()
        number = number.astype(id_type(len(vocabulary)))
        splits = {split: _renumbered(first[split], number, folder, split) for split in SPLITS}
    return EncodedText(vocabulary, splits, words)


def file_name(split: str) -> str:
    """The name of the file with the ids of a split."""
    return f"{split}.npy"


def map_split(folder: Path, split: str) -> Tokens:
    """The ids of a split, mapped from its file; changes of the array stay in memory."""
    tokens: Tokens = np.load(folder / file_name(split), mmap_mode="c", allow_pickle=False)
    if tokens.ndim != 1 or tokens.dtype not in (np.uint16, np.int32):
        raise ValueError("not a file of token ids")
    return tokens


def split_into_blocks(tokens: Tokens, size: int = BLOCK) -> Iterator[Tokens]:
    """Blocks of a stream, in memory or mapped from a file."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def _scratch(folder: Path | None, split: str) -> IO[bytes]:
    return io.BytesIO() if folder is None else (folder / f"{split}.first").open("w+b")


def _renumbered(first: IO[bytes], number: Tokens, folder: Path | None, split: str) -> Tokens:
    """Replace first numbers by ids."""
    size = first.tell() // 4
    first.seek(0)
    if folder is None:
        ids = number[np.frombuffer(first.read(), np.int32)]
        first.truncate(0)
        return ids
    with (folder / file_name(split)).open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(number.dtype), "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, header)
        while block := first.read(4 * BLOCK):
            file.write(number[np.frombuffer(block, np.int32)].tobytes())
    (folder / f"{split}.first").unlink()
    return map_split(folder, split)
