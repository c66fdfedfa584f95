"""The field of a small flow by flow.c, in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scansnap.checks.arrays import FloatArray
from scansnap.kernels.cpu import library


class _Field(ctypes.Structure):
    """``field`` of flow.c."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("n_classes", "n_distinct", "n_slots", "n_outputs", "n_cells",
                                               "n_common")],
        *[(name, ctypes.c_double) for name in ("n_rest", "eta_y", "eta_z")],
        *[(name, ctypes.c_void_p) for name in ("log_p", "p_class", "cell", "common", "z", "z_rates", "y_common",
                                               "common_rates", "d", "stack", "phi")],
    ]  # fmt: skip


class FlowKernel:
    """The field at a point, and its rates, for tables that stay where they are; names as in flow.c."""

    def __init__(
        self,
        rates: tuple[float, float, float],  # n_rest, η_Y, η_Z
        tables: Sequence[Tensor],  # log_p, p_class, cell, common, z and its rates, y_common and its rates
        blocks: Sequence[tuple[Tensor, Tensor]],  # stack (B, d + 17, J), phi (B, 17, d)
    ) -> None:
        log_p, _, _, common, z, _, y_common, _ = tables
        (k, n_slots), (n_common, n_outputs) = log_p.shape, y_common.shape
        by_class = np.zeros((3, k), dtype=np.int64)  # the last classes have blocks, the first may have none
        pairs = [(stack, phi) for block in blocks for stack, phi in zip(*block, strict=True)]
        for i, (stack, phi) in enumerate(pairs, k - len(pairs)):
            by_class[:, i] = phi.shape[1], stack.data_ptr(), phi.data_ptr()
        sizes = (k, n_slots - common.shape[1], n_slots, n_outputs, len(z), n_common)
        self._field = _Field(*sizes, *rates, *[t.data_ptr() for t in tables], *[row.ctypes.data for row in by_class])
        self._address = ctypes.addressof(self._field)
        self._shapes = [(len(z),), (len(z),), (n_common, n_outputs), *[(k, n_slots)] * 3, *[(k, n_outputs)] * 2]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]
        self._weights, scratch = np.empty(17), np.empty(sum(self._sizes))
        self._alive = tables, blocks, by_class, scratch
        self._at, self._scratch = self._weights.ctypes.data, scratch.ctypes.data
        self._function = library.load("flow").rates
        self._function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]

    def rates(self, stage: int, weights: FloatArray) -> None:
        """Store the rates at x + Σ_j w_j k_j as those of a stage."""
        self._run(stage, weights, self._scratch)

    def point(self, weights: FloatArray) -> list[Tensor]:
        """z and its rate, the common rows of Y, c, f, g, logits and r, at x + Σ_j w_j k_j."""
        out = torch.empty(sum(self._sizes), dtype=torch.float64)
        self._run(-1, weights, out.data_ptr())
        return [part.view(shape) for part, shape in zip(out.split(self._sizes), self._shapes, strict=True)]

    def _run(self, stage: int, weights: FloatArray, out: int) -> None:
        self._weights[: len(weights)] = weights
        self._function(self._address, stage, len(weights), self._at, out)
