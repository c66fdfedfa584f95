"""EncodedText corpora on disk, so that a large text is cut into words once and need not fit into memory.

An entry is a folder: one .npy file per split, vocabulary.json, and checksums.json written with them. It appears
whole or not at all, and every byte is checked against its checksum before use: what is damaged, cut short or from
another format is as good as absent. The ids are then used where they lie, as a map of the file. The cache is a
convenience, so no failure to read or write it stops anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scansnap.corpus.encoding import EncodedText, file_name, mapped, split_into_blocks
from scansnap.corpus.sources import SPLITS
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.storage import checksums, discard, replacing, sweep_up

FORMAT = 3  # goes up when words are cut, counted or stored differently
VARIABLE = "SCANSNAP_CACHE"
VOCABULARY = "vocabulary.json"


def folder(given: Path | str | None = None) -> Path | None:
    """Where entries lie: ``given``, else SCANSNAP_CACHE, else ~/.cache/scansnap; None for a user without a home."""
    try:
        return Path(given or os.environ.get(VARIABLE) or "~/.cache/scansnap").expanduser() / "corpus"
    except RuntimeError:
        return None


def key(name: str, content: str, **settings: int | str | None) -> str:
    """The entry's name: readable, and different for any other content, vocabulary settings or format."""
    what = json.dumps([FORMAT, content, settings], sort_keys=True)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:40].lstrip(".") or "corpus"
    return f"{readable}-v{FORMAT}-{hashlib.sha256(what.encode()).hexdigest()[:32]}"


@contextmanager
def writing(entry: Path) -> Iterator[Path]:
    """A folder to encode into; once :func:`seal` has put the rest, it becomes the entry."""
    with replacing(entry) as scratch:
        scratch.mkdir()
        yield scratch


def seal(folder: Path, encoded: EncodedText) -> None:
    """What belongs to an entry beside the ids: the vocabulary and the checksums."""
    (folder / VOCABULARY).write_text(encoded.vocabulary.to_json(), encoding="utf-8")
    files = checksums.of_files(folder, [VOCABULARY, *map(file_name, SPLITS)])
    table = checksums.sign({"format": FORMAT, "files": files, "words": encoded.words})
    (folder / checksums.NAME).write_text(table, encoding="utf-8")


def read(entry: Path) -> EncodedText | None:
    """What the entry holds, or None where there is none that can be trusted."""
    try:
        sweep_up(entry.parent)  # what a killed process left beside it
        if not entry.exists():
            return None
        table = checksums.signed((entry / checksums.NAME).read_bytes())
        names = [VOCABULARY, *map(file_name, SPLITS)]
        if table["format"] != FORMAT or checksums.of_files(entry, names) != table["files"]:
            raise ValueError
        vocabulary = Vocabulary.from_json((entry / VOCABULARY).read_bytes())
        splits = {split: mapped(entry, split) for split in SPLITS}
        for tokens in splits.values():
            if any(not 0 <= block.min() <= block.max() < len(vocabulary) for block in split_into_blocks(tokens)):
                raise ValueError
        return EncodedText(vocabulary, splits, {split: int(table["words"][split]) for split in SPLITS})
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        _discard(entry)
        return None


def _discard(entry: Path) -> None:
    with contextlib.suppress(OSError):
        discard(entry)
