"""WikiText from the Hugging Face hub: a fixed revision, compared with its published size, and cached.

The package ``datasets`` downloads it once. Later the text is read from the cache (`scansnap.corpus.cache`) without
network and package.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.checks.extras import how
from scansnap.corpus import cache
from scansnap.corpus.sources import SPLITS, TextSource, digest, find_corpus
from scansnap.storage import WriteError

REPOSITORY = "Salesforce/wikitext"
REVISION = "b08601e04326c79dfdd32d625aee71d232d685c3"
THEIR_NAMES = {"train": "train", "valid": "validation", "test": "test"}
FILES = tuple(f"{split}.txt" for split in SPLITS)
ROWS = 20_000  # lines read at a time


@dataclass(frozen=True)
class PublishedSplit:
    """The size of a split: lines, and bytes as the hub counts them (an empty line has none)."""

    lines: int
    bytes: int
    words: str | None = None  # `checksum_of`, where it is known


# lines and bytes of the dataset's card, without the four bytes per line of its table
PUBLISHED = {
    "wikitext-2": {
        "train": PublishedSplit(36_718, 10_771_246, "9bd9e325b08741099df5d1c51b38354baf4eb387c5320f97aeaeb73983a0754b"),
        "valid": PublishedSplit(3_760, 1_119_083, "1f43deb4923da781bf02106f25e1423728609d810a0089394d008f42ed0da72b"),
        "test": PublishedSplit(4_358, 1_253_515, "5047d0bd2969f5d04517078d4858a4f2b33df54709ccc0219b05c0c5c3f69b46"),
    },
    "wikitext-103": {
        "train": PublishedSplit(1_801_350, 537_936_515),
        "valid": PublishedSplit(3_760, 1_139_711),
        "test": PublishedSplit(4_358, 1_278_143),
    },
}


def from_hub(name: str, title: str) -> TextSource:
    """``wikitext-2`` or ``wikitext-103``, word level with <unk>; downloaded on first use, then cached."""
    folder = cache.cache_folder()
    entry = None if folder is None else folder / f"{name}-{REVISION[:12]}"
    if entry is None or cache.read(entry) is None:
        source = _download(name, title)
        if entry is None or not _write(source, entry):
            return source
    return replace(find_corpus(entry), name=name, title=title)


def checksum_of(lines: Iterable[str]) -> str:
    """Σ SHA-256(words of a line, single blanks between them) mod 2²⁵⁶: independent of the order of lines."""
    total = sum(int.from_bytes(hashlib.sha256(" ".join(line.split()).encode()).digest()) for line in lines)
    return f"{total % 2**256:064x}"


def _download(name: str, title: str) -> TextSource:
    elsewhere = "a folder with train.txt, valid.txt and test.txt"
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        allowed = f"{elsewhere}; the package datasets downloads it by name ({how('datasets')})"
        raise InputError("data", name, allowed) from None
    try:
        table = datasets.load_dataset(REPOSITORY, f"{name}-v1", revision=REVISION)
    except Exception as error:  # the network, the hub and the disk raise many kinds of errors
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError("data", name, f"{elsewhere}, or a reachable Hugging Face hub ({reason})") from None
    for split, published in PUBLISHED[name].items():
        if _content(table[THEIR_NAMES[split]], published.words is not None) != published:
            whose = f"{REPOSITORY} at {REVISION[:12]}"
            raise InputError("data", name, f"the published text; the {split} split of {whose} differs")

    def read(split: str) -> Iterator[bytes]:
        """Each row of the table is a line, with or without its line feed."""
        for rows in _rows(table[THEIR_NAMES[split]]):
            yield "".join(line.rstrip("\n") + "\n" for line in rows).encode()

    where = {split: f"{REPOSITORY} {name}-v1 {THEIR_NAMES[split]}" for split in SPLITS}
    return TextSource(
        name,
        title,
        read=lambda split: [(where[split], read(split))],
        fingerprint=lambda: digest(read(split) for split in SPLITS),
        size=sum(published.bytes for published in PUBLISHED[name].values()),
        where=where,
    )


def _content(table: Any, words: bool) -> PublishedSplit:
    n_bytes = sum(len(line.encode()) for rows in _rows(table) for line in rows)
    checksum = checksum_of(line for rows in _rows(table) for line in rows) if words else None
    return PublishedSplit(len(table), n_bytes, checksum)


def _rows(table: Any) -> Iterator[list[str]]:
    for start in range(0, len(table), ROWS):
        yield table[start : start + ROWS]["text"]


def _write(source: TextSource, entry: Path) -> bool:
    """Write the text to the cache; False if that is not possible."""
    try:
        with cache.writing(entry) as scratch:
            for split, file in zip(SPLITS, FILES, strict=True):
                with (scratch / file).open("wb") as out:
                    for _, blocks in source.read(split):
                        out.writelines(blocks)
            cache.finish_entry(scratch, {}, FILES)
    except (WriteError, OSError):
        return False
    return True
