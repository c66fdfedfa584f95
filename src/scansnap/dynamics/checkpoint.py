"""Checkpoints of an unfinished run, from which it continues exactly.

Beside the result ``name.zarr`` lies the folder ``name.zarr.partial`` while the run is not finished. It is a
`scansnap.storage.work_cache.WorkCache` of these pieces, each under its own checksum::

    records-00001   what was recorded before the first checkpoint
    records-00002   … and later; a piece for each checkpoint with new records
    state           arrays and values of the last checkpoint, and the names and digests of the records that count

``state`` is replaced atomically and last, so whatever it names is complete. What it does not name was left by a killed
process and is removed when the run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.dynamics.fingerprint import describe_difference
from scansnap.storage import discard, remove_leftovers
from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.versions import decisive_versions, refuse_other_versions
from scansnap.storage.work_cache import Piece, WorkCache

FIELD = "the unfinished run"
STATE = "state"
Records = dict[str, np.ndarray]  # by name of the variable


@dataclass(frozen=True)
class SavedRun:
    """The content of a checkpoint: JSON values and arrays of the state, and of each piece of records."""

    fingerprint: str
    values: dict[str, Any]
    arrays: Records
    records: list[tuple[dict[str, Any], Records]]
    files: CheckedFiles


class RunCheckpoint:
    """The unfinished run that will become the result at ``target``.

    Parameters
    ----------
    target
        Path of the result. The checkpoint is the folder ``<target>.partial``.
    fingerprint
        Identifies the run: only a run with the same fingerprint continues it.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "run.zarr"
    >>> checkpoint = RunCheckpoint(target, "my run")
    >>> checkpoint.append({"steps": [0, 1]}, {"loss": np.array([2.0, 1.5])})
    >>> checkpoint.save({"step": 1}, {"weights": np.ones(3)})
    >>> saved = RunCheckpoint(target, "my run").load()
    >>> saved.values, saved.arrays["weights"].sum(), saved.records[0][1]["loss"].tolist()
    ({'step': 1}, np.float64(3.0), [2.0, 1.5])
    """

    def __init__(self, target: Path, fingerprint: str) -> None:
        self.folder = target.with_name(target.name + ".partial")
        self.fingerprint = fingerprint
        self.appended: list[dict[str, Any]] = []  # values of the records so far
        self._pieces: list[tuple[str, str]] = []  # their names and digests
        self._cache = WorkCache(self.folder, fingerprint, decisive_versions(), field=FIELD)
        remove_leftovers(target.parent)  # of a killed process

    def exists(self) -> bool:
        return (self.folder / STATE).exists()

    def append(self, values: Mapping[str, Any], arrays: Records) -> None:
        """Add records; they count from the next `save`."""
        name = f"records-{len(self._pieces) + 1:05d}"
        digest = self._cache.put(name, values, arrays)
        self._pieces, self.appended = [*self._pieces, (name, digest)], [*self.appended, dict(values)]

    def save(self, values: Mapping[str, Any], arrays: Records) -> None:
        """Replace the saved state."""
        self._cache.put(STATE, {"records": self._pieces, "state": values}, arrays)

    def load(self) -> SavedRun:
        """The saved state and all records; refuses another run, other versions and damage."""
        state = _read_state(self.folder)
        if state.key != self.fingerprint:
            difference = describe_difference(state.key, self.fingerprint)
            raise InputError(FIELD, str(self.folder), f"one with the same classes, runs and settings ({difference})")
        refuse_other_versions(FIELD, self.folder, state.versions)
        saved = _with_records(self.folder, state)
        self._pieces = [(str(name), str(digest)) for name, digest in state.values["records"]]
        self.appended = [values for values, _ in saved.records]
        counted = {STATE, *(name for name, _ in self._pieces)}
        self._cache.place.tidy()
        self._cache.remove(name for name in self._cache.names() if name not in counted)
        return saved

    def is_same_run(self) -> bool:
        """Whether the folder holds this very run, or nothing that could be continued."""
        try:
            return _read_state(self.folder).key == self.fingerprint if self.exists() else self.folder.is_dir()
        except InputError:
            return False

    def discard(self) -> None:
        discard(self.folder)


def read(folder: Path) -> SavedRun:
    """The content of a folder ``….partial``, after checking every byte that counts."""
    return _with_records(folder, _read_state(folder))


def _read_state(folder: Path) -> Piece:
    state = WorkCache(folder, None, field=FIELD).get(STATE)
    if state is None:
        raise InputError(FIELD, str(folder), f"a folder with the file {STATE}, written by this version")
    return state


def _with_records(folder: Path, state: Piece) -> SavedRun:
    cache, records, sizes = WorkCache(folder, state.key, field=FIELD), [], [state.size]
    try:
        pieces, values = (
            {str(name): str(digest) for name, digest in state.values["records"]},
            dict(state.values["state"]),
        )
    except (KeyError, TypeError, ValueError):
        raise InputError(FIELD, str(folder), f"a folder whose file {STATE} is a checkpoint") from None
    for name, piece in cache.pieces(pieces):
        if piece is None or piece.digest != pieces[name]:
            problem = "is missing" if piece is None else "belongs to another checkpoint"
            raise Damaged(FIELD, folder, name, problem)
        records.append((piece.values, piece.arrays))
        sizes.append(piece.size)
    return SavedRun(state.key, values, state.arrays, records, CheckedFiles(len(sizes), sum(sizes)))
