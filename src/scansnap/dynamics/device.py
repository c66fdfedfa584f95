"""Where tensors live, and how many threads work on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from scansnap.checks import InputError


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is a GPU, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError("device", name, "auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError("device", name, "auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device", name, "cpu or auto: no CUDA device is present here")
    return device


@contextmanager
def one_thread() -> Iterator[int]:
    """One thread per operation inside the block; yields how many there were.

    For small tensors more threads are no faster, and their busy waiting is ten times slower on a loaded machine.
    Independent pieces of work run in threads of our own instead.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
