"""A simulation in progress on disk, so that it can be stopped at any moment and continued exactly.

Beside the result ``name.zarr`` lies the folder ``name.zarr.partial`` while the run is not finished::

    progress.json        what the run is (a fingerprint), the versions that began it, how far it came, which of the
                         pieces below count
    records-00001.zarr   what was recorded before the first checkpoint
    records-00003.zarr   … between the second and the third (nothing was between the first and the second)
    state-00003.zarr     tables and optimiser buffers at the last checkpoint

``progress.json`` is replaced atomically and last, so whatever it names was written whole; it carries its own checksum
and those of the pieces' ``checksums.json``, so that damage and mixed pieces are noticed. What it does not name was left
by a killed process and goes when the run is resumed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scansnap.checks import InputError
from scansnap.dynamics.state import State
from scansnap.storage import checksums, discard, put, remove, replacing, sweep_up
from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.objects import Folder
from scansnap.storage.versions import decisive_versions, refuse_other_versions

PROGRESS = "progress.json"
_FIELD = "the unfinished run"
Records = dict[str, np.ndarray]  # each (run, step, …)


def fingerprint(*parts: Any) -> str:
    """One word for everything that decides the numbers."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_listed).encode()).hexdigest()[:16]


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot fingerprint {type(value)}")


class Checkpoint:
    """The unfinished run that will become the result at ``target``."""

    def __init__(self, target: Path, mark: str) -> None:
        self.folder = target.with_name(target.name + ".partial")
        self.mark = mark
        self.number = 0
        self.pieces: list[str] = []
        self.steps: list[int] = []  # what the pieces hold
        self.sums: dict[str, checksums.Entry] = {}  # of the pieces' tables
        sweep_up(target.parent)  # a run that is finished writes nothing, and would leave what a killed one left

    def exists(self) -> bool:
        return (self.folder / PROGRESS).exists()

    def resume(self, device: torch.device) -> tuple[State, list[int], list[Records]]:
        """The last state and what was recorded until then."""
        progress = read_progress(self.folder)
        if progress["fingerprint"] != self.mark:
            raise InputError(_FIELD, str(self.folder), "one with the same classes, runs and settings")
        refuse_other_versions(_FIELD, self.folder, progress.get("versions"))
        check(self.folder)
        self.number, self.pieces, self.steps = progress["number"], progress["pieces"], progress["steps"]
        self.sums = {piece: progress["sums"][piece] for piece in self.pieces}
        self._tidy(progress["state"])
        arrays = {name: torch.as_tensor(a, device=device) for name, a in _read(self.folder / progress["state"]).items()}
        return (
            State.from_arrays(progress["step"], arrays),
            self.steps,
            [_read(self.folder / p) for p in self.pieces],
        )

    def write(self, state: State, steps: list[int], records: Records) -> None:
        """Keep the state, and the records of steps later than ``self.steps``."""
        self.number += 1
        if steps:
            piece = f"records-{self.number:05d}.zarr"
            entry = _write(self.folder / piece, records)
            self.pieces, self.steps = [*self.pieces, piece], [*self.steps, *steps]
            self.sums = {**self.sums, piece: entry}
        name = f"state-{self.number:05d}.zarr"
        entry = _write(self.folder / name, {key: tensor.cpu().numpy() for key, tensor in state.arrays().items()})
        progress = {"fingerprint": self.mark, "number": self.number, "step": state.step, "steps": self.steps,
                    "pieces": self.pieces, "state": name, "sums": {**self.sums, name: entry},
                    "versions": decisive_versions()}  # fmt: skip
        put(self.folder / PROGRESS, checksums.sign(progress))
        self._tidy(name)

    def mark_there(self) -> str:
        """What the unfinished run is."""
        return str(read_progress(self.folder)["fingerprint"])

    def is_same_run(self) -> bool:
        """Whether what lies there is this very run, or nothing that could be continued."""
        try:
            return read_progress(self.folder)["fingerprint"] == self.mark if self.exists() else self.folder.is_dir()
        except InputError:
            return False

    def discard(self) -> None:
        discard(self.folder)

    def _tidy(self, state: str) -> None:
        """Remove what does not count: earlier states, and what a killed process left."""
        sweep_up(self.folder)
        for place in [*self.folder.glob("state-*.zarr"), *self.folder.glob("records-*.zarr")]:
            if place.name not in (state, *self.pieces):
                remove(place)


def read_progress(folder: Path) -> dict[str, Any]:
    """What ``progress.json`` says, if it is as it was written."""
    try:
        return checksums.signed(Folder(folder).get(PROGRESS))
    except FileNotFoundError:
        raise InputError(_FIELD, str(folder), f"a folder with {PROGRESS} in it") from None
    except KeyError:
        raise InputError(_FIELD, str(folder), checksums.EARLIER) from None
    except (OSError, ValueError, TypeError, RecursionError):
        raise Damaged(_FIELD, folder, PROGRESS, "does not match its own checksum") from None


def check(folder: Path) -> CheckedFiles:
    """Compare every byte that counts in the folder of an unfinished run with its checksums."""
    progress = read_progress(folder)
    done = CheckedFiles(1, (folder / PROGRESS).stat().st_size)
    for piece in (*progress["pieces"], progress["state"]):
        table = f"{piece}/{checksums.NAME}"
        problem = checksums.problem_of(folder, table, progress["sums"][piece])
        if problem:
            raise Damaged(_FIELD, folder, table, problem)
        try:
            done += checksums.check(_FIELD, folder / piece)
        except Damaged as found:
            raise Damaged(_FIELD, folder, f"{piece}/{found.part}", found.problem) from None
    return done


def _write(path: Path, arrays: Records) -> checksums.Entry:
    """A piece, and the checksum of its table of checksums."""
    import zarr

    with replacing(path) as scratch:  # over what a killed process may have left uncounted
        order: Any = {"names": list(arrays)}  # so that a resumed result has the same bytes
        group = zarr.open_group(scratch, mode="w", zarr_format=3, attributes=order)
        for name, array in arrays.items():
            group.create_array(name, data=np.ascontiguousarray(array))
        checksums.put_table(scratch)
        return checksums.of_file(scratch / checksums.NAME)


def _read(path: Path) -> Records:
    from scansnap.storage.zarr_store import local, open_group

    try:
        group = open_group(local(path))
        return {name: np.asarray(group[name][...]) for name in group.attrs["names"]}
    except (OSError, ValueError, KeyError, TypeError) as error:  # as its checksums say, so it is something else
        raise InputError(_FIELD, str(path), f"a part of an unfinished run ({error})") from None
