"""Encoded corpora on disk, so that a large text is cut into words once.

An entry is a folder: one .npy file per split, vocabulary.json, and checksums.json written with them. It appears
whole or not at all, and every byte is checked against its checksum before use: what is damaged, cut short or from
another format is as good as absent. The cache is a convenience, so no failure to read or write it stops anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
from pathlib import Path

import numpy as np

from scansnap.corpus.sources import SPLITS
from scansnap.corpus.vocabulary import Tokens, Vocabulary
from scansnap.storage import checksums, discard, replacing, sweep_up

FORMAT = 2  # goes up when words are cut, counted or stored differently
VARIABLE = "SCANSNAP_CACHE"
VOCABULARY = "vocabulary.json"


def folder(given: Path | str | None = None) -> Path | None:
    """Where entries lie: ``given``, else SCANSNAP_CACHE, else ~/.cache/scansnap; None for a user without a home."""
    try:
        return Path(given or os.environ.get(VARIABLE) or "~/.cache/scansnap").expanduser() / "corpus"
    except RuntimeError:
        return None


def key(name: str, content: str, **settings: int | None) -> str:
    """The entry's name: readable, and different for any other content, vocabulary settings or format."""
    what = json.dumps([FORMAT, content, settings], sort_keys=True)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:40].lstrip(".") or "corpus"
    return f"{readable}-v{FORMAT}-{hashlib.sha256(what.encode()).hexdigest()[:32]}"


def write(entry: Path, vocabulary: Vocabulary, splits: dict[str, Tokens]) -> bool:
    """Store an entry; false where the folder cannot be written."""
    try:
        with replacing(entry) as scratch:
            scratch.mkdir()
            sums = {}
            for name, content in _files(vocabulary, splits):
                (scratch / name).write_bytes(content)
                sums[name] = hashlib.sha256(content).hexdigest()
            (scratch / checksums.NAME).write_text(checksums.sign({"format": FORMAT, "files": sums}), encoding="utf-8")
    except OSError:
        return False
    return True


def read(entry: Path) -> tuple[Vocabulary, dict[str, Tokens]] | None:
    """The entry's vocabulary and splits, or None where there is none that can be trusted."""
    try:
        sweep_up(entry.parent)  # what a killed process left beside it
        if not entry.exists():
            return None
        table = checksums.signed((entry / checksums.NAME).read_bytes())
        if table["format"] != FORMAT:
            raise ValueError
        vocabulary = Vocabulary.from_json(_checked(entry, VOCABULARY, table["files"]))
        splits = {split: _array(_checked(entry, f"{split}.npy", table["files"])) for split in SPLITS}
        for tokens in splits.values():
            if tokens.size and not 0 <= tokens.min() <= tokens.max() < len(vocabulary):
                raise ValueError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        _discard(entry)
        return None
    return vocabulary, splits


def _files(vocabulary: Vocabulary, splits: dict[str, Tokens]) -> list[tuple[str, bytes]]:
    files = [(VOCABULARY, vocabulary.to_json().encode("utf-8"))]
    for split, tokens in splits.items():
        buffer = io.BytesIO()
        np.save(buffer, tokens, allow_pickle=False)
        files.append((f"{split}.npy", buffer.getvalue()))
    return files


def _checked(entry: Path, name: str, sums: dict[str, str]) -> bytes:
    """The file's bytes; what is checked is what is used, so nothing can change in between."""
    content = (entry / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != sums[name]:
        raise ValueError
    return content


def _array(content: bytes) -> Tokens:
    tokens = np.load(io.BytesIO(content), allow_pickle=False)
    if tokens.dtype != np.int32 or tokens.ndim != 1:
        raise ValueError
    return tokens


def _discard(entry: Path) -> None:
    with contextlib.suppress(OSError):
        discard(entry)
