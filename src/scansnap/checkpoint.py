"""A simulation in progress on disk, so that it can be stopped at any moment and continued exactly.

Beside the result ``name.zarr`` lies the folder ``name.zarr.partial`` while the run is not finished::

    progress.json        what the run is (a fingerprint), how far it came, which of the pieces below count
    records-00000.zarr   what was recorded between two checkpoints
    state-00001.zarr     tables and optimiser buffers at the last checkpoint

``progress.json`` is replaced atomically and last, so whatever it names is whole.
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
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"cannot fingerprint {type(value)}")


class Checkpoint:
    """The unfinished run that will become the result at ``target``."""

    def __init__(self, target: Path, mark: str) -> None:
        self.folder = target.with_name(target.name + ".partial")
        self.mark = mark
        self.pieces: list[str] = []
        self.steps: list[int] = []

    def exists(self) -> bool:
        return (self.folder / "progress.json").exists()

    def resume(self, device: torch.device) -> tuple[State, list[int], list[Records]]:
        """The last state and what was recorded until then."""
        progress = json.loads((self.folder / "progress.json").read_text())
        if progress["fingerprint"] != self.mark:
            raise InputError(
                "the unfinished run", str(self.folder), "one with the same classes, runs and settings"
            )
        self.pieces, self.steps = progress["pieces"], progress["steps"]
        arrays = {
            name: torch.as_tensor(a, device=device) for name, a in _read(self.folder / progress["state"]).items()
        }
        return (
            State.from_arrays(progress["step"], arrays),
            self.steps,
            [_read(self.folder / p) for p in self.pieces],
        )

    def write(self, state: State, steps: list[int], records: Records) -> None:
        """Keep the state, and the records made since the last call."""
        number = len(self.pieces)
        piece, name = f"records-{number:05d}.zarr", f"state-{number:05d}.zarr"
        _write(self.folder / piece, records)
        _write(self.folder / name, {key: tensor.cpu().numpy() for key, tensor in state.arrays().items()})
        self.pieces, self.steps = [*self.pieces, piece], [*self.steps, *steps]
        progress = {"fingerprint": self.mark, "step": state.step, "steps": self.steps,
                    "pieces": self.pieces, "state": name}  # fmt: skip
        with replacing(self.folder / "progress.json") as scratch:
            scratch.write_text(json.dumps(progress))
        for old in self.folder.glob("state-*.zarr"):
            if old.name != name:
                remove(old)

    def discard(self) -> None:
        remove(self.folder)


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
