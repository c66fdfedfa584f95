"""Where text comes from: a folder, a file, a well-known corpus by name, or what every machine already has.

A source is three splits of plain text. What a line and a word are is the same for all: a line ends with a line
feed, words stand between white space. Nothing is read before it is asked for, and then in blocks of whole lines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scansnap.checks import InputError, choice

SPLITS = ("train", "valid", "test")
NAMES = ("stdlib", "wikitext-2", "wikitext-103")
VARIABLE = "SCANSNAP_DATA"
FILE_NAMES = ("{}.txt", "wiki.{}.tokens")  # the second is how WikiText's authors name theirs
TITLES = {"wikitext-2": "WikiText-2", "wikitext-103": "WikiText-103"}
BLOCK = 4 * 2**20  # bytes; a block's words as Python strings take about fifteen times as much


@dataclass(frozen=True)
class Source:
    """Text in three splits. ``title`` says in words what it is, for figures."""

    name: str
    title: str
    read: Callable[[str], Iterator[bytes]]  # blocks of whole lines of a split, the last line ended too
    fingerprint: Callable[[], str]  # changes whenever the text does; cheaper than reading where text is computed
    size: int  # about how many bytes of text, to say how far reading has come
    where: Mapping[str, str]  # split: the file, or what else to call it in a message

    def blocks(self, split: str) -> Iterator[str]:
        """The split's text in blocks of whole lines."""
        place, start = self.where[choice("split", split, SPLITS)], 0
        for block in self.read(split):
            try:
                yield block.decode("utf-8").removeprefix("\ufeff" if start == 0 else "")
            except UnicodeDecodeError as error:
                at = start + error.start
                raise InputError("data", f"{place} (byte 0x{block[error.start]:02x} at {at})", "UTF-8 text") from None
            start += len(block)


def find_corpus(data: Path | str | None = None) -> Source:
    """The source that ``data`` names: a folder, a file, one of NAMES; without it SCANSNAP_DATA, else ``stdlib``.

    A folder holds train.txt, valid.txt and test.txt. A single file is cut by lines, in order: the last tenth is
    the test split, the tenth before it the validation split (rounded down, but one line at least).
    """
    if data is None or str(data) == "":
        data = os.environ.get(VARIABLE) or "stdlib"
    if str(data) == "stdlib":
        from scansnap.corpus.stdlib import standard_library

        return standard_library()
    if str(data) in NAMES:
        from scansnap.corpus.huggingface import from_hub

        return from_hub(str(data), TITLES[str(data)])
    path = Path(data).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        if path.suffix != ".txt":
            raise InputError("data", str(data), "a folder, or a file whose name ends with .txt")
        return _single_file(path)
    raise InputError("data", str(data), f"a folder or a .txt file that exists, or one of {', '.join(NAMES)}")


def _folder(path: Path) -> Source:
    files: dict[str, Path] = {}
    for split in SPLITS:
        there = [path / name.format(split) for name in FILE_NAMES if (path / name.format(split)).is_file()]
        if not there:
            raise InputError("data", str(path), f"a folder with train.txt, valid.txt and test.txt ({split}.txt is not)")
        files[split] = there[0]
    name = path.resolve().name
    return Source(
        name,
        TITLES.get(name.lower(), name),
        read=lambda split: _lines(files[split]),
        fingerprint=lambda: digest(_lines(files[split]) for split in SPLITS),
        size=sum(file.stat().st_size for file in files.values()),
        where={split: str(file) for split, file in files.items()},
    )


def _single_file(path: Path) -> Source:
    lines = sum(block.count(b"\n") for block in _lines(path))
    held_out = max(1, lines // 10)
    if lines < 3:
        raise InputError("data", f"{path} ({lines} lines)", "a file of at least 3 lines, or a folder of three files")
    cuts = _line_starts(path, [lines - 2 * held_out, lines - held_out])
    spans = dict(zip(SPLITS, zip([0, *cuts], [*cuts, None], strict=True), strict=True))
    return Source(
        path.stem,
        path.stem,
        read=lambda split: _lines(path, *spans[split]),
        fingerprint=lambda: digest(_lines(path, *spans[split]) for split in SPLITS),
        size=path.stat().st_size,
        where={split: str(path) for split in SPLITS},
    )


def _lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Blocks of whole lines between two byte offsets; a last line without its end gets one."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            while end is None or file.tell() < end:
                size = BLOCK if end is None else min(BLOCK, end - file.tell())
                block = file.read(size)
                if not block:
                    return
                if not block.endswith(b"\n"):
                    block += file.readline() or b""
                yield block if block.endswith(b"\n") else block + b"\n"
    except OSError as error:
        raise InputError("data", str(path), f"a file that can be read ({error.strerror})") from None


def _line_starts(path: Path, numbers: list[int]) -> list[int]:
    """The byte offsets at which lines with these numbers (ascending) begin."""
    starts: list[int] = []
    line = offset = 0
    for block in _lines(path):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        while len(starts) < len(numbers) and numbers[len(starts)] <= line + len(ends):
            starts.append(offset + int(ends[numbers[len(starts)] - line - 1]) + 1)
        line, offset = line + len(ends), offset + len(block)
    return starts


def digest(splits: Iterator[Iterator[bytes]]) -> str:
    """SHA-256 over the bytes of all splits, each with its own digest so that a moved border is a change."""
    whole = hashlib.sha256()
    for blocks in splits:
        part = hashlib.sha256()
        for block in blocks:
            part.update(block)
        whole.update(part.digest())
    return whole.hexdigest()
