"""In which precision CUDA multiplies float32 matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products_on(device: torch.device, precision: str) -> Iterator[None]:
    """tf32 products inside the block if that is the precision asked for, else exact ones; nothing on a CPU."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
