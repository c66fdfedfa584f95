"""Runs that a stopped command had finished: the next one with the same output folder goes on from them.

A run's record is a few named arrays, one ``.npz`` file each. The folder is removed as soon as its figure is made, so
that a figure made anew is made from new runs.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from scansnap.results.trajectory import versions
from scansnap.storage import remove, replacing

Record = dict[str, np.ndarray]


def kept(folder: Path | None, run: dict[str, Any], make: Callable[[], dict[str, Any]]) -> Record:
    """The record of a run: the one in the folder, or a new one, left there for later. No folder: a new one.

    run  everything the record depends on, as plain values; the versions of what computes it are added
    """
    if folder is None:
        return _arrays(make())
    told = json.dumps({"run": run, "versions": versions()}, sort_keys=True)
    path = folder / f"{hashlib.sha256(told.encode()).hexdigest()[:20]}.npz"
    # each array in the file has a checksum; a run whose record is damaged is simply done again
    with suppress(OSError, ValueError, EOFError, BadZipFile, zlib.error), path.open("rb") as file:
        found = np.load(file, allow_pickle=False)
        return {name: found[name] for name in found.files}
    record = _arrays(make())
    with replacing(path) as scratch, scratch.open("wb") as file:
        arrays: Any = record
        np.savez(file, **arrays)
    return record


def forget(folder: Path) -> None:
    """Remove the folder of a figure that is made, and the one around it with the last of them."""
    remove(folder)
    if folder.parent.is_dir() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def _arrays(record: dict[str, Any]) -> Record:
    return {name: np.asarray(value) for name, value in record.items()}
