"""A simulation in progress on disk, so that it can be stopped at any moment and continued exactly.

Beside the result ``name.zarr`` lies the folder ``name.zarr.partial`` while the run is not finished::

    progress.json        what the run is (a fingerprint), how far it came, which of the pieces below count
    records-00001.zarr   what was recorded before the first checkpoint
    records-00003.zarr   … between the second and the third (nothing was between the first and the second)
    state-00003.zarr     tables and optimiser buffers at the last checkpoint

``progress.json`` is replaced atomically and last, so whatever it names is whole. No name is used twice, so an
interrupted checkpoint can simply be made again.
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
from scansnap.storage import remove, replacing

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

    def exists(self) -> bool:
        return (self.folder / "progress.json").exists()

    def resume(self, device: torch.device) -> tuple[State, list[int], list[Records]]:
        """The last state and what was recorded until then."""
        progress = self._progress()
        if progress["fingerprint"] != self.mark:
            raise InputError("the unfinished run", str(self.folder), "one with the same classes, runs and settings")
        self.number, self.pieces, self.steps = progress["number"], progress["pieces"], progress["steps"]
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
            _write(self.folder / piece, records)
            self.pieces, self.steps = [*self.pieces, piece], [*self.steps, *steps]
        name = f"state-{self.number:05d}.zarr"
        _write(self.folder / name, {key: tensor.cpu().numpy() for key, tensor in state.arrays().items()})
        progress = {"fingerprint": self.mark, "number": self.number, "step": state.step, "steps": self.steps,
                    "pieces": self.pieces, "state": name}  # fmt: skip
        with replacing(self.folder / "progress.json") as scratch:
            scratch.write_text(json.dumps(progress))
        for old in self.folder.glob("state-*.zarr"):
            if old.name != name:
                remove(old)

    def mark_there(self) -> str:
        """What the unfinished run is."""
        return str(self._progress()["fingerprint"])

    def is_same_run(self) -> bool:
        """Whether what lies there is this very run."""
        return self.exists() and self._progress()["fingerprint"] == self.mark

    def discard(self) -> None:
        remove(self.folder)

    def _progress(self) -> dict[str, Any]:
        return json.loads((self.folder / "progress.json").read_text())


def _write(path: Path, arrays: Records) -> None:
    import zarr

    remove(path)  # a piece that a killed process left behind uncounted
    with replacing(path) as scratch:
        group = zarr.open_group(scratch, mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=np.ascontiguousarray(array))


def _read(path: Path) -> Records:
    import zarr

    group = zarr.open_group(path, mode="r")
    return {name: np.asarray(array[...]) for name, array in group.arrays()}
