"""How many threads torch may use inside one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[int]:
    """One thread per operation inside the block; yields how many there were.

    For small tensors more threads are no faster, and they wait in a spin: where other processes hold the cores
    that is ten times slower. Independent pieces of work are given to threads of our own instead.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
