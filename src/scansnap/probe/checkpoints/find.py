"""Find the checkpoints of a folder, their steps, and duplicates among them."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, TypeVar

import torch
from torch import Tensor

from scansnap.checks import InputError, digits

LAST_NUMBER = r"(\d+)\D*$"
STATE_DICTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a model at one step, wherever they are."""

    step: int
    name: str
    sha: str  # of the weights

    @contextmanager
    def open(self) -> Iterator[Path]:
        """The file or folder, to load from within the block."""
        raise NotImplementedError


@dataclass(frozen=True)
class CheckpointFile(Checkpoint):
    """A file with a state dict, or a folder of Hugging Face."""

    path: Path

    @contextmanager
    def open(self) -> Iterator[Path]:
        yield self.path


Skipped = list[tuple[str, str]]  # names of checkpoints that cannot be read, with the reason


def find_checkpoints(folder: Path, steps: str | None, *, hugging_face: bool) -> tuple[list[Checkpoint], Skipped]:
    """The checkpoints by step: sub-folders with ``config.json`` and weights, or files with state dicts.

    What has no step in its name (``final``) or cannot be read is skipped, unless that is everything.
    """
    if not folder.is_dir():
        raise InputError("FOLDER", str(folder), "a folder with checkpoints in it")
    pattern = compile_steps(steps)
    entries = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    folders = [path for path in entries if path.is_dir() and weights_of(path)]
    files = [path for path in entries if path.is_file() and path.suffix in STATE_DICTS]
    paths = [path for path in folders if (path / "config.json").is_file()] if hugging_face else [*folders, *files]
    if hugging_face and not paths and (files or folders):
        names = ", ".join(path.name for path in [*files, *folders][:2])
        message = f"{names} in {folder} are state dicts; pass --loader module:function to load them"
        raise InputError.conflict("FOLDER", message)
    if not paths:
        kinds = "sub-folders with config.json and *.safetensors, or state dicts *.pt or *.safetensors"
        raise InputError("FOLDER", str(folder), f"a folder with checkpoints in it: {kinds}")
    checkpoints: list[CheckpointFile] = []
    errors: list[tuple[str, InputError]] = []
    for path in paths:
        try:
            checkpoints.append(CheckpointFile(_step(path, pattern), path.name, hash_weights(path), path))
        except InputError as error:
            errors.append((path.name, error))
    if not checkpoints:
        raise errors[0][1]
    checkpoints.sort(key=lambda checkpoint: checkpoint.step)
    for first, second in pairwise(checkpoints):
        if first.step == second.step:
            expected = f"a pattern that gives {first.name} and {second.name} different steps"
            raise InputError("--steps", steps or "the last number in the name", expected, f"both have {first.step}")
    return [*checkpoints], [(name, str(error)) for name, error in errors]


def compile_steps(steps: str | None) -> re.Pattern[str]:
    """The pattern whose group is the step in a name."""
    expected = r"a regular expression with one group that matches the step in a name, such as step_(\d+)"
    try:
        pattern = re.compile(LAST_NUMBER if steps is None else steps)
    except (re.error, OverflowError, RecursionError):
        raise InputError("--steps", steps, expected) from None
    if pattern.groups != 1:
        raise InputError("--steps", steps, expected)
    return pattern


def _step(path: Path, pattern: re.Pattern[str]) -> int:
    name = path.name if path.is_dir() else path.stem
    match = pattern.search(name)
    step = digits((match[1] if match else None) or "")
    if step is None:
        raise InputError(
            "FOLDER", path.name, f"checkpoint names in which {pattern.pattern} matches the step", "pass --steps"
        )
    return step


def weights_of(path: Path) -> list[Path]:
    """The files with the weights of a checkpoint; safetensors are preferred."""
    if path.is_file():
        return [path]
    return preferred([file for file in sorted(path.iterdir()) if file.is_file() and is_weights(file.name)])


def is_weights(name: str) -> bool:
    """Whether a file in a checkpoint's folder has weights."""
    return name.endswith(STATE_DICTS) and name not in ("training_args.bin", "optimizer.pt", "scheduler.pt")


P = TypeVar("P", bound=PurePath)


def preferred(files: list[P]) -> list[P]:
    """The safetensors among the files of one checkpoint, or else all."""
    return [file for file in files if file.suffix == ".safetensors"] or files


def hash_weights(path: Path) -> str:
    """SHA-256 of the weights in the order of their names, whatever files hold them."""
    digest = hashlib.sha256()
    tensors: dict[str, Callable[[], Tensor]] = {}
    try:
        for file in weights_of(path):
            tensors |= dict(_tensors_in(file))
        for name in sorted(tensors):
            tensor = tensors[name]()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError, TypeError):  # not plain weights
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in weights_of(path)))
    return digest.hexdigest()[:16]


def drop_duplicates(
    checkpoints: list[Checkpoint],
) -> tuple[list[Checkpoint], list[tuple[Checkpoint, Checkpoint]]]:
    """The checkpoints to measure, and pairs of a duplicate and the earlier checkpoint with the same weights."""
    first = {checkpoint.sha: checkpoint for checkpoint in reversed(checkpoints)}
    return [c for c in checkpoints if c is first[c.sha]], [
        (c, first[c.sha]) for c in checkpoints if c is not first[c.sha]
    ]


def _tensors_in(file: Path) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Names of tensors, with a function that reads each."""
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            opened = safe_open(file, framework="pt")
            for name in opened.keys():  # noqa: SIM118 not a dict
                yield name, partial(opened.get_tensor, name)
        except SafetensorError as error:
            raise InputError("FOLDER", str(file), "an intact safetensors file", str(error)) from None
        return
    state = torch.load(file, map_location="cpu", weights_only=True, mmap=_can_map(file))
    for name, tensor in _flat(state):
        yield name, partial(_same, tensor)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _can_map(file: Path) -> bool:
    """Files of torch before 1.6 are no archives."""
    with file.open("rb") as stream:
        return stream.read(2) == b"PK"


def _flat(state: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in a state dict, by path."""
    if isinstance(state, Tensor):
        yield prefix, state
    elif isinstance(state, Mapping | list | tuple):
        for key, part in state.items() if isinstance(state, Mapping) else enumerate(state):
            yield from _flat(part, f"{prefix}/{key}")
