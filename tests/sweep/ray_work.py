"""Work for the tests of spread, in a module that workers can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def add(shared: int, task: int) -> int:
    if task < 0:
        raise ValueError("no negative numbers")
    return shared + task


def tens_once_killed(shared: str, task: int) -> int:
    """The first worker that meets task 3 is killed by it."""
    once = Path(shared)
    if task == 3 and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task * 10


def place_of(shared: list[int], task: int) -> tuple[int, tuple[int, int]]:
    """The process, and where its copy of what is shared lies."""
    return task, (os.getpid(), id(shared))
