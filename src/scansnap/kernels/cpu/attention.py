"""Statistics of rows of attention by attention.c: those of ``scansnap.probe.statistics.plain``, without sorting."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from scansnap.kernels.cpu import library

COLUMNS = 6


def takes(p: Tensor) -> bool:
    """Whether the kernel supports these rows."""
    return p.device.type == "cpu" and p.dtype == torch.float32 and library.find("attention") is not None


def rows(p: Tensor, mass: float, patterns: Tensor | None) -> Tensor:
    """(B, H, Q, 6): entropy, largest weight, keys of the smallest set with this share, weight on three patterns.

    p         (B, H, Q, S) float32
    patterns  (B, Q, S) bytes; bits 1, 2 and 4 are the patterns that a key belongs to

    Entropy is NaN where a weight is not finite; the rest is then 0.
    """
    b, h, n, s = p.shape
    out = np.empty((b, h, n, COLUMNS), dtype=np.float32)
    mask = ctypes.c_void_p(None) if patterns is None else patterns.contiguous().numpy()
    constants = (h, n, s, ctypes.c_double(mass), p.contiguous().numpy(), mask, out)
    library.in_threads(library.load("attention").attention_rows, b * h * n, constants, chunk=256)
    return torch.from_numpy(out)
