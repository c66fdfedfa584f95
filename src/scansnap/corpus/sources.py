"""Sources of text: folders, files, a corpus by name, or the docstrings of the standard library.

A source has three splits of plain text, which are read in blocks of whole lines. White space separates words.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from scansnap.checks import InputError, check_choice

SPLITS = ("train", "valid", "test")
NAMES = ("stdlib", "wikitext-2", "wikitext-103")
VARIABLE = "SCANSNAP_DATA"
FILE_NAMES = ("{}.txt", "wiki.{}.tokens")  # the second is that of WikiText's authors
TITLES = {"wikitext-2": "WikiText-2", "wikitext-103": "WikiText-103"}
BASIC_ENGLISH = "basic_english:"  # before a name: lower-cased, punctuation apart
_APART, _DROPPED = re.compile(r"[.,()!?']"), re.compile(r'"|;|:|<br />')
BLOCK = 4 * 2**20  # bytes; the words of a block as Python strings take about fifteen times as much memory


Text = tuple[str, Iterator[bytes]]  # its name in messages, and its blocks of whole lines


@dataclass(frozen=True)
class TextSource:
    """Text in three splits; ``title`` is for figures."""

    name: str
    title: str
    read: Callable[[str], Iterable[Text]]  # the texts of a split, one after the other; their last lines are complete
    fingerprint: Callable[[], str]  # changes with the text
    size: int  # bytes of text, about, for the progress
    where: Mapping[str, str]  # the file of each split, or its name in messages

    def blocks(self, split: str) -> Iterator[str]:
        """The split's text in blocks of whole lines."""
        for name, blocks in self.read(check_choice("split", split, SPLITS)):
            start = 0
            for block in blocks:
                try:
                    yield block.decode("utf-8").removeprefix("\ufeff" if start == 0 else "")
                except UnicodeDecodeError as error:
                    at = f"{name} (byte 0x{block[error.start]:02x} at {start + error.start})"
                    raise InputError("data", at, "UTF-8 text") from None
                start += len(block)


def find_corpus(data: Path | str | Sequence[Path | str] | None = None) -> TextSource:
    """The source that ``data`` names: a folder, a file, one of NAMES; without it SCANSNAP_DATA, else ``stdlib``.

    A folder holds train.txt, valid.txt and test.txt, or for each of them several: a folder train with .txt files in
    it, or train-1.txt, train-2.txt, …. A single file, or a folder of .txt files with other names, is split by lines, in
    order: the last tenth is the test split, the tenth before it the validation split (rounded down, but at least one
    line). Several of these, in a list or separated by commas, are one text, split by split. ``basic_english:`` before
    one of them lower-cases its text and separates punctuation, as in the paper's text experiments.
    """
    if data is None or str(data) == "":
        data = os.environ.get(VARIABLE) or "stdlib"
    if isinstance(data, str) and "," in data and not os.path.exists(os.path.expanduser(data)):
        data = [part.strip() for part in data.split(",")]
    if not isinstance(data, str | Path):
        if not data or not all(isinstance(part, Path) or (isinstance(part, str) and part) for part in data):
            raise InputError("data", data, "one or more folders, .txt files or names")
        return _joined([find_corpus(part) for part in data])
    if str(data).startswith(BASIC_ENGLISH):
        return _in_basic_english(find_corpus(str(data).removeprefix(BASIC_ENGLISH)))
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
        return _split_by_lines(path, [path])
    raise InputError("data", str(data), f"a folder or a .txt file that exists, or one of {', '.join(NAMES)}")


def find_corpora(data: Path | str | Sequence[Path | str] | None = None) -> list[TextSource]:
    """The sources of figures that compare texts: one for each item of a list, or for each folder in a folder of them.

    A text as in `find_corpus` is a single source, several separated by commas too.
    """
    if isinstance(data, list | tuple):
        return [source for part in data for source in find_corpora(part)]
    name = str(data or "")
    path = Path(name.removeprefix(BASIC_ENGLISH)).expanduser()
    inside = sorted(part for part in path.iterdir() if part.is_dir()) if name and path.is_dir() else []
    if inside and not any(path.glob("*.txt")) and not any(_files_of(path, split) for split in SPLITS):
        prefix = BASIC_ENGLISH if name.startswith(BASIC_ENGLISH) else ""
        return [find_corpus(f"{prefix}{part}") for part in inside]
    return [find_corpus(data)]


def _in_basic_english(source: TextSource) -> TextSource:
    def change(block: bytes) -> bytes:
        text = block.decode("utf-8", "surrogateescape").lower()  # bytes that are no text are refused later
        return _APART.sub(r" \g<0> ", _DROPPED.sub(" ", text)).encode("utf-8", "surrogateescape")

    def read(split: str) -> Iterator[Text]:
        return ((name, map(change, blocks)) for name, blocks in source.read(split))

    return replace(
        source, name=f"{source.name}-basic-english", title=f"{source.title}, basic_english", read=read,
        fingerprint=lambda: hashlib.sha256(f"basic_english {source.fingerprint()}".encode()).hexdigest(),
    )  # fmt: skip


@dataclass(frozen=True)
class _Span:
    """A file, or a part of it between two byte offsets."""

    path: Path
    start: int = 0
    end: int | None = None


def _folder(path: Path) -> TextSource:
    files_of = {split: _files_of(path, split) for split in SPLITS}
    if not any(files_of.values()) and (texts := sorted(path.glob("*.txt"))):
        return _split_by_lines(path, texts)
    for split, files in files_of.items():
        if not files:
            raise InputError(
                "data", str(path), f"a folder with train.txt, valid.txt and test.txt ({split}.txt is missing)"
            )
    name = path.resolve().name
    return _of_spans(name, {split: [_Span(file) for file in files] for split, files in files_of.items()}, path)


def _files_of(path: Path, split: str) -> list[Path]:
    """The files of a split, in order of their names."""
    for name in FILE_NAMES:
        if (path / name.format(split)).is_file():
            return [path / name.format(split)]
    inside = sorted(file for file in (path / split).rglob("*.txt") if file.is_file())
    return inside or sorted(file for file in path.glob(f"{split}-*.txt") if file.is_file())


def _split_by_lines(path: Path, files: list[Path]) -> TextSource:
    """Files as one text whose last lines are held out."""
    lines = [sum(block.count(b"\n") for block in _lines(file)) for file in files]
    total, held_out = sum(lines), max(1, sum(lines) // 10)
    if total < 3:
        raise InputError("data", f"{path} with {total} lines", "a text of at least 3 lines, or a folder of three files")
    borders = (0, total - 2 * held_out, total - held_out, total)
    spans: dict[str, list[_Span]] = {split: [] for split in SPLITS}
    before = 0
    for file, n in zip(files, lines, strict=True):
        cuts = [min(max(border - before, 0), n) for border in borders]
        starts = dict(zip(cuts, _line_starts(file, cuts, n), strict=True))
        for split, first, last in zip(SPLITS, cuts, cuts[1:], strict=False):
            if first < last:
                spans[split].append(_Span(file, starts[first] or 0, starts[last]))
        before += n
    return _of_spans(path.stem if path.is_file() else path.resolve().name, spans, path)


def _of_spans(name: str, spans: Mapping[str, list[_Span]], path: Path) -> TextSource:
    def read(split: str) -> Iterator[Text]:
        return ((str(span.path), _lines(span.path, span.start, span.end)) for span in spans[split])

    files = {span.path for split in SPLITS for span in spans[split]}
    return TextSource(
        name,
        TITLES.get(name.lower(), name),
        read=read,
        fingerprint=lambda: digest(chain.from_iterable(blocks for _, blocks in read(split)) for split in SPLITS),
        size=sum(file.stat().st_size for file in files),
        where={split: str(some[0].path if len(some) == 1 else path) for split, some in spans.items()},
    )


def _joined(sources: Sequence[TextSource]) -> TextSource:
    """Several sources as one: each split is a concatenation."""
    if len(sources) == 1:
        return sources[0]
    return TextSource(
        "+".join(source.name for source in sources),
        " + ".join(source.title for source in sources),
        read=lambda split: chain.from_iterable(source.read(split) for source in sources),
        fingerprint=lambda: hashlib.sha256(" ".join(source.fingerprint() for source in sources).encode()).hexdigest(),
        size=sum(source.size for source in sources),
        where={split: ", ".join(source.where[split] for source in sources) for split in SPLITS},
    )


def _lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Blocks of whole lines between two byte offsets; a missing line feed at the end is added."""
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


def _line_starts(path: Path, numbers: Sequence[int], lines: int) -> list[int | None]:
    """The byte offsets of lines with these numbers (ascending); None for the end of the file."""
    starts: list[int | None] = [0 for number in numbers if number == 0]
    line = offset = 0
    for block in _lines(path):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        while len(starts) < len(numbers) and numbers[len(starts)] <= line + len(ends):
            number = numbers[len(starts)]
            starts.append(None if number == lines else offset + int(ends[number - line - 1]) + 1)
        line, offset = line + len(ends), offset + len(block)
    return starts


def digest(splits: Iterable[Iterable[bytes]]) -> str:
    """SHA-256 over the bytes of all splits, each with its own digest, so that moved text is a change."""
    whole = hashlib.sha256()
    for blocks in splits:
        part = hashlib.sha256()
        for block in blocks:
            part.update(block)
        whole.update(part.digest())
    return whole.hexdigest()
