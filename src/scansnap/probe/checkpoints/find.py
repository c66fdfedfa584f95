"""Which checkpoints a folder has, at which steps, and which of them are the same."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scansnap.checks import InputError, digits

LAST_NUMBER = r"(\d+)\D*$"
STATE_DICTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A file, or a folder of Hugging Face."""

    step: int
    path: Path
    sha: str = ""  # of its weights

    @property
    def name(self) -> str:
        return self.path.name


def find(folder: Path, steps: str | None, *, hugging_face: bool) -> list[Checkpoint]:
    """Those of a folder by step: sub-folders with a ``config.json`` and weights, or files with state dicts."""
    if not folder.is_dir():
        raise InputError("FOLDER", str(folder), "a folder with checkpoints in it")
    pattern = _pattern(steps)
    entries = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    folders = [path for path in entries if path.is_dir() and weights_of(path)]
    files = [path for path in entries if path.is_file() and path.suffix in STATE_DICTS]
    found = [path for path in folders if (path / "config.json").is_file()] if hugging_face else [*folders, *files]
    if hugging_face and not found and (files or folders):
        names = ", ".join(path.name for path in [*files, *folders][:2])
        raise InputError("FOLDER", str(folder), f"given with --loader module:function, as {names} are state dicts")
    if not found:
        kinds = "sub-folders with config.json and *.safetensors, or state dicts *.pt or *.safetensors"
        raise InputError("FOLDER", str(folder), f"a folder with checkpoints in it: {kinds}")
    checkpoints = sorted((Checkpoint(_step(path, pattern), path) for path in found), key=lambda one: one.step)
    for one, other in pairwise(checkpoints):
        if one.step == other.step:
            allowed = f"such that {one.name} and {other.name} have different steps (both have {one.step})"
            raise InputError("--steps", steps or "the last number in the name", allowed)
    return checkpoints


def _pattern(steps: str | None) -> re.Pattern[str]:
    allowed = r"a regular expression with one group that finds the step in a name, such as step_(\d+)"
    try:
        pattern = re.compile(LAST_NUMBER if steps is None else steps)
    except (re.error, OverflowError, RecursionError):
        raise InputError("--steps", steps, allowed) from None
    if pattern.groups != 1:
        raise InputError("--steps", steps, allowed)
    return pattern


def _step(path: Path, pattern: re.Pattern[str]) -> int:
    name = path.name if path.is_dir() else path.stem
    found = pattern.search(name)
    step = digits((found[1] if found else None) or "")
    if step is None:
        raise InputError(
            "a checkpoint's name", path.name, f"one in which {pattern.pattern} finds the step (see --steps)"
        )
    return step


def weights_of(path: Path) -> list[Path]:
    """The files with the weights of a checkpoint; safetensors where there are both."""
    if path.is_file():
        return [path]
    found = [one for one in sorted(path.iterdir()) if one.is_file() and one.suffix in STATE_DICTS]
    safe = [one for one in found if one.suffix == ".safetensors"]
    return safe or [one for one in found if one.name not in ("training_args.bin", "optimizer.pt", "scheduler.pt")]


def with_sha(checkpoint: Checkpoint) -> Checkpoint:
    """With the SHA-256 of its weights, by name: how they are cut into files and when they were saved does not count."""
    digest = hashlib.sha256()
    tensors: dict[str, Callable[[], Tensor]] = {}
    try:
        for file in weights_of(checkpoint.path):
            tensors |= dict(_tensors_in(file))
        for name in sorted(tensors):
            tensor = tensors[name]()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError, TypeError):  # not plain weights
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in weights_of(checkpoint.path)))
    return Checkpoint(checkpoint.step, checkpoint.path, digest.hexdigest()[:16])


def distinct(checkpoints: list[Checkpoint]) -> tuple[list[Checkpoint], list[tuple[Checkpoint, Checkpoint]]]:
    """Those to measure, and pairs of one that is the same as a later one, which is measured in its place."""
    last = {one.sha: one for one in checkpoints}
    return [*last.values()], [(one, last[one.sha]) for one in checkpoints if one is not last[one.sha]]


def _tensors_in(file: Path) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Names with what reads each tensor."""
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            opened = safe_open(file, framework="pt")
            for name in opened.keys():  # noqa: SIM118 it is no dictionary
                yield name, partial(opened.get_tensor, name)
        except SafetensorError as error:
            raise InputError("FOLDER", str(file), f"a whole safetensors file ({error})") from None
        return
    state = torch.load(file, map_location="cpu", weights_only=True, mmap=_can_map(file))
    for name, tensor in _flat(state):
        yield name, partial(_same, tensor)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _can_map(file: Path) -> bool:
    """Files of before torch 1.6 are no archives."""
    with file.open("rb") as at:
        return at.read(2) == b"PK"


def _flat(state: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in what was saved."""
    if isinstance(state, Tensor):
        yield prefix, state
    elif isinstance(state, Mapping | list | tuple):
        for key, part in state.items() if isinstance(state, Mapping) else enumerate(state):
            yield from _flat(part, f"{prefix}/{key}")
