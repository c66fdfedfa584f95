"""A source's text to files of token ids, in one pass over the text and in memory that does not grow with it.

Ids go by frequency, which is known only at the end. So the text is encoded once, with the numbers a counter gives its
words as they come (four bytes each, in a file beside), and these numbers are then exchanged for ids, block by block and
without the text. The files are plain ``.npy``, two bytes for each id where the vocabulary allows it, and are used where
they lie: :func:`mapped` reads nothing before it is asked for.
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
    """Numbers for words or subwords as they come; see :class:`~scansnap.corpus.vocabulary.WordCounter`."""

    @property
    def words(self) -> int:
        """In all text so far, line ends too."""

    def train(self, text: str) -> Tokens:
        """First numbers of some more of the training text."""

    def other(self, text: str) -> Tokens:
        """First numbers of held-out text, once the training text is complete."""

    def finish(self) -> tuple[Vocabulary, Tokens]:
        """The vocabulary, and the id of each first number."""


@dataclass(frozen=True, eq=False)
class EncodedText:
    """Ids of the splits, and how many words (with line ends) each has, whatever the tokens are."""

    vocabulary: Vocabulary
    splits: dict[str, Tokens]
    words: dict[str, int]


def encode(
    source: TextSource, counter: TokenCounter, folder: Path | None, progress: Progress | None = None
) -> EncodedText:
    """Encode a source into ``folder``, one file for each split, or in memory without one."""
    words: dict[str, int] = {}
    with ExitStack() as stack:
        first = {split: stack.enter_context(_scratch(folder, split)) for split in SPLITS}
        done = 0
        for split in SPLITS:
            before = counter.words
            for block in source.blocks(split):
                first[split].write((counter.train if split == "train" else counter.other)(block).tobytes())
                done += len(block)
                if progress is not None:
                    progress(min(done, source.size), source.size)
            words[split] = counter.words - before
        vocabulary, number = counter.finish()
        number = number.astype(id_type(len(vocabulary)))
        splits = {split: _renumbered(first[split], number, folder, split) for split in SPLITS}
    return EncodedText(vocabulary, splits, words)


def file_name(split: str) -> str:
    """Of the split's ids in a folder."""
    return f"{split}.npy"


def mapped(folder: Path, split: str) -> Tokens:
    """The ids of a split as they lie on the disk; what is written to the array stays in memory."""
    found: Tokens = np.load(folder / file_name(split), mmap_mode="c", allow_pickle=False)
    if found.ndim != 1 or found.dtype not in (np.uint16, np.int32):
        raise ValueError("not a file of token ids")
    return found


def split_into_blocks(tokens: Tokens, size: int = BLOCK) -> Iterator[Tokens]:
    """A stream in memory, or mapped from a file, in blocks."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def _scratch(folder: Path | None, split: str) -> IO[bytes]:
    return io.BytesIO() if folder is None else (folder / f"{split}.first").open("w+b")


def _renumbered(first: IO[bytes], number: Tokens, folder: Path | None, split: str) -> Tokens:
    """First numbers exchanged for ids."""
    size = first.tell() // 4
    first.seek(0)
    if folder is None:
        ids = number[np.frombuffer(first.read(), np.int32)]
        first.truncate(0)
        return ids
    with (folder / file_name(split)).open("wb") as file:
        told = {"descr": np.lib.format.dtype_to_descr(number.dtype), "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, told)
        while block := first.read(4 * BLOCK):
            file.write(number[np.frombuffer(block, np.int32)].tobytes())
    (folder / f"{split}.first").unlink()
    return mapped(folder, split)
