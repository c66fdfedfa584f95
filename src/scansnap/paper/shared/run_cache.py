"""The cache of a figure's finished runs: after a stop, the same command with the same output folder continues from it.

The folder is deleted as soon as its figure is done, so that a figure is never a mixture of old and new runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.results.trajectory import versions
from scansnap.storage import remove
from scansnap.storage.work_cache import WorkCache

Record = dict[str, np.ndarray]


def cached_run(folder: Path | None, run: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> Record:
    """The record of a run: from the folder, or computed and put there. Without a folder it is computed.

    Parameters
    ----------
    run
        Everything that decides the record, as plain values. A record of other versions or damaged is computed again.
    """
    if folder is None:
        return _arrays(compute())
    key = json.dumps({"run": run, "versions": versions()}, sort_keys=True)
    cache = WorkCache(folder, key, versions(), damaged="missing")
    name = hashlib.sha256(key.encode()).hexdigest()[:20]
    piece = cache.get(name)
    if piece is not None:
        return {label: array.copy() for label, array in piece.arrays.items()}
    record = _arrays(compute())
    cache.put(name, {}, record)
    return record


def discard_runs(folder: Path) -> None:
    """Delete the folder of a finished figure, and the folder around it if it is empty then."""
    remove(folder)
    if folder.parent.is_dir() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def _arrays(record: dict[str, Any]) -> Record:
    return {name: np.asarray(value) for name, value in record.items()}
