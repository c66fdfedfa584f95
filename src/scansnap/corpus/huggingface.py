"""WikiText from the Hugging Face hub, through the package ``datasets`` where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from scansnap.checks import InputError
from scansnap.corpus.sources import SPLITS, Source, digest

REPOSITORY = "Salesforce/wikitext"
THEIR_NAMES = {"train": "train", "valid": "validation", "test": "test"}
LINE = 300  # bytes, about
ROWS = 20_000  # lines taken at a time


def from_hub(name: str, title: str) -> Source:
    """``wikitext-2`` or ``wikitext-103``, word level with <unk>; fetched on first use and kept by ``datasets``."""
    elsewhere = "a folder with train.txt, valid.txt and test.txt"
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        how = "to fetch it by name, install the package datasets (it comes with scansnap[text])"
        raise InputError("data", name, f"{elsewhere}; {how}") from None
    try:
        table = datasets.load_dataset(REPOSITORY, f"{name}-v1")
    except Exception as error:  # the network, the hub and the disk fail in many ways; the user needs one sentence
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError("data", name, f"{elsewhere}, or within reach of the Hugging Face hub ({reason})") from None

    def read(split: str) -> Iterator[bytes]:
        return _rows(table[THEIR_NAMES[split]])

    return Source(
        name,
        title,
        read=lambda split: [(f"{REPOSITORY} {name}-v1 {THEIR_NAMES[split]}", read(split))],
        fingerprint=lambda: digest(read(split) for split in SPLITS),
        size=LINE * sum(len(table[name]) for name in THEIR_NAMES.values()),
        where={split: f"{REPOSITORY} {name}-v1 {THEIR_NAMES[split]}" for split in SPLITS},
    )


def _rows(rows: Any) -> Iterator[bytes]:
    """Each row of the table is a line, with or without its line feed."""
    for start in range(0, len(rows), ROWS):
        lines = rows[start : start + ROWS]["text"]
        yield "".join(line.rstrip("\n") + "\n" for line in lines).encode()
