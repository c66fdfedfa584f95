"""A cache of encoded texts on disk, so that a large text is encoded once and need not fit into memory.

An entry is a folder with files and one piece of a `scansnap.storage.work_cache.WorkCache`, which has their checksums
and other values. It is written atomically and checked before use; a damaged or foreign entry counts as missing. Arrays
are then mapped from their files. Failures to read or write the cache are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scansnap.storage import checksums, discard, remove_leftovers, replacing
from scansnap.storage.work_cache import WorkCache

FORMAT = 4  # increase it when words are split, counted or stored differently
VARIABLE = "SCANSNAP_CACHE"
PIECE = "entry"


def cache_folder(path: Path | str | None = None) -> Path | None:
    """The folder of all entries, in ``path``, SCANSNAP_CACHE or ~/.cache/scansnap; None without a home folder."""
    try:
        return Path(path or os.environ.get(VARIABLE) or "~/.cache/scansnap").expanduser() / "corpus"
    except RuntimeError:
        return None


def entry_name(name: str, content: str, **settings: int | str | None) -> str:
    """A readable name that identifies content, vocabulary settings and format."""
    identity = json.dumps([FORMAT, content, settings], sort_keys=True)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:40].lstrip(".") or "corpus"
    return f"{readable}-v{FORMAT}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


@contextmanager
def writing(entry: Path) -> Iterator[Path]:
    """Yield a folder for files; after `finish_entry` it becomes the entry."""
    with replacing(entry) as scratch:
        scratch.mkdir()
        yield scratch


def finish_entry(folder: Path, values: Mapping[str, Any], files: Iterable[str]) -> None:
    """Complete an entry with JSON values and the checksums of its files."""
    _pieces(folder).put(PIECE, {"values": values, "files": checksums.entries_of(folder, files)})


def read(entry: Path) -> dict[str, Any] | None:
    """The values of an intact entry; any other entry is deleted, and the result is None."""
    try:
        remove_leftovers(entry.parent)
        if not entry.exists():
            return None
        piece = _pieces(entry).get(PIECE)
        if piece is not None:
            files = piece.values["files"]
            if {name: list(sums) for name, sums in checksums.entries_of(entry, files).items()} == files:
                return dict(piece.values["values"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    remove(entry)
    return None


def remove(entry: Path) -> None:
    """Delete an entry, if that is possible."""
    with contextlib.suppress(OSError):
        discard(entry)


def _pieces(folder: Path) -> WorkCache:
    return WorkCache(folder, f"corpus {FORMAT}", damaged="missing")
