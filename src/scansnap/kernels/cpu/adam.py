"""Adam on a table with a rate per entry, by adam.c: one pass over memory instead of ten."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from scansnap.kernels.cpu import library


def takes(table: Tensor, *others: Tensor) -> bool:
    """Whether the kernel supports this table; ``others`` are its direction, moments and rates."""
    return table.device.type == "cpu" and library.find("adam") is not None and all(
        t.dtype == torch.float32 and t.shape == table.shape and t.is_contiguous() for t in (table, *others)
    )  # fmt: skip


def adam_(
    table: Tensor, d: Tensor, mean: Tensor, square: Tensor, eta: Tensor, step: int, beta1: float, beta2: float,
    eps: float,
) -> None:  # fmt: skip
    """Update number ``step``, from 1, of a table and its moments in place; d is minus the gradient."""
    rule = map(ctypes.c_double, (beta1, beta2, 1 - beta1**step, 1 - beta2**step, eps))
    pointers = (ctypes.c_void_p(t.data_ptr()) for t in (d, eta, table, mean, square))
    library.in_threads(library.load("adam").adam, table.numel(), (*rule, *pointers), chunk=1 << 16)
