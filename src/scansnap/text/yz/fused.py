"""One update of the one-layer full-rank YZ model on CUDA in a few launches, and without a table of logits.

    attend      attention of a window, f, and f summed over equal tokens             one program for a window
    sums        logits = f Y[x] tile by tile, kept only as running max and Σ exp     windows × splits of the columns
    normalise   log Σ exp of each position, its loss
    errors      the same logits again, e = (e_n − α)/N stored, g = e Y[x]ᵀ added up   windows × splits
    dlogits     through the norms and the softmax, summed over equal tokens          one program for a window
    entries     Z[m, l] += η dz                                                       one program for a query token
    rows        Y[l] += η Σ f e                                                      one program for a band of columns

The logits are computed twice rather than kept, so e is the only thing of size N × M. Nothing is added atomically: a
step repeats bit by bit. Token ids are not checked here; one outside the vocabulary reads foreign memory.

Precision: tables, softmax and all sums float32. The four products with a side of M go through the tensor cores: as six
products of numbers split in three (as good as float32), as three of numbers split in two (``bf16x3``, 2⁻¹⁶) or as one
(``tf32``, 2⁻¹¹); products among positions are float32 or three of tf32. Momentum and Adam gather the rows' directions
in a buffer first and then move each touched row once.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from scansnap.text.updates import groups
from scansnap.text.yz import triton_kernels as kernels
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable

COLUMNS = 64  # of a tile of Y; with four warps and three stages the fastest of those tried on an H200
LAUNCH = {"num_warps": 4, "num_stages": 3}
PROGRAMS = 1056  # to fill the device with: eight for each of its 132 multiprocessors
MOST_SPLITS = 128  # of the columns; one program joins them


class FusedStep:
    """Updates of one batch shape; the working memory is held between calls."""

    def __init__(self, y: FullTable, z: FullTable, settings: YZSettings, step: Tensor, shape: tuple[int, ...]) -> None:
        self.y, self.z, self.settings, self.step = y, z, settings, step
        self.windows, self.length = shape
        device = y.storage.device
        self.block = max(16, triton.next_power_of_2(self.length))
        self.split = settings.precision == "bf16x3"
        precision = "tf32" if settings.precision == "tf32" else _as_float32(device)
        self.shape = {"T": self.length, "BT": self.block}
        self.product = {"BN": COLUMNS, "PRECISION": precision, "SPLIT": self.split}
        tiles = triton.cdiv(settings.vocab_size, COLUMNS)
        self.tiles = triton.cdiv(tiles, max(1, min(tiles, PROGRAMS // self.windows, MOST_SPLITS)))  # of one program
        self.splits = triton.cdiv(tiles, self.tiles)
        n, stride = self.windows * self.length, y.storage.shape[1]
        square = (self.windows, self.block, self.block)

        def buffer(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        self.f, self.dz, self.dz_token = (buffer(*square) for _ in range(3))
        parts, kind = (2, torch.bfloat16) if self.split else (1, torch.float32)
        self.f_token, self.e = buffer(parts, *square, dtype=kind), buffer(n, parts, stride, dtype=kind)
        self.first = buffer(self.windows, self.block, dtype=torch.int8)
        self.partial = buffer(2, self.splits, self.windows * self.block)  # running max, Σ exp
        self.right, self.log_total = (buffer(self.windows, self.block) for _ in range(2))
        self.losses = buffer(n)
        # small launches run beside the large one, and first: it would leave them no room until its end
        self.aside = torch.cuda.Stream(priority=-1) if device.type == "cuda" else None
        self.g = buffer(self.splits, *square)
        self.rule = y.update
        if not self.rule.linear:
            self.total = buffer(n, stride)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        s, y, z = self.settings, self.y, self.z
        x, target = inputs.contiguous(), targets.contiguous()
        m, n, places = s.vocab_size, x.numel(), self.windows * self.block
        y_stride, z_stride = y.storage.shape[1], z.storage.shape[1]
        grid, each = (self.splits, self.windows), (self.windows,)
        model = {"RESIDUAL": s.residual, "L2": s.norm == "l2", "SELF": s.query_in_keys, **self.shape, "num_warps": 4}
        wide = {**self.shape, **self.product, **LAUNCH, "TILES": self.tiles}
        self.step += 1
        with _beside(self.aside):
            at = groups(x.flatten())
        kernels.attend_kernel[each](
            x, target, z.storage, z_stride, y.storage, y_stride, self.f, self.f_token, self.first, self.right,
            **model, SPLIT=self.split,
        )  # fmt: skip
        kernels.sums_kernel[grid](x, y.storage, y_stride, m, self.f, self.partial, self.splits * places, **wide)
        kernels.normalise_kernel[each](
            self.partial, self.splits * places, places, self.splits, self.right, self.log_total, self.losses,
            **self.shape, SPLITS=triton.next_power_of_2(self.splits),
        )  # fmt: skip
        kernels.errors_kernel[grid](
            x,
            target,
            y.storage,
            y_stride,
            m,
            self.f,
            self.log_total,
            1 / n,
            self.e,
            self.g,
            places * self.block,
            **wide,
        )
        with _beside(self.aside):
            kernels.dlogits_kernel[each](x, z.storage, z_stride, self.g.sum(0), self.dz, self.dz_token, **model)
            if self.rule.linear:
                kernels.entries_kernel[(n,)](
                    at.sorted, at.order, n, x, self.dz_token, z.storage, z_stride, z.eta, **self.shape, num_warps=1
                )
            else:
                z.move_pairs(x, self.dz[:, : self.length, : self.length], s.query_in_keys, self.step)
        self._move_rows(x)
        _join(self.aside)
        return self.losses.mean()

    def _move_rows(self, x: Tensor) -> None:
        """Y by f and e."""
        y, n = self.y, x.numel()
        stride = y.storage.shape[1]
        grid = (triton.cdiv(stride, COLUMNS),)
        one = {**self.shape, **self.product, "num_warps": 4, "num_stages": 1}  # loads must stay behind earlier stores
        if self.rule.linear:
            table = (y.storage, y.eta, self.windows)
            kernels.rows_kernel[grid](x, self.e, stride, self.f_token, self.first, *table, **one)
            return
        at = groups(x.flatten())
        token = torch.full_like(at.sorted, -1)
        token[at.group] = x.flatten()  # (N,) token of each group, −1 beyond the last
        total = (self.total.zero_(), torch.ones((), device=x.device), self.windows)
        kernels.rows_kernel[grid](at.group, self.e, stride, self.f_token, self.first, *total, **one)
        s, moments = self.settings, y.stored_moments
        correction = torch.stack([1 - s.beta1**self.step, 1 - s.beta2**self.step])
        adam = s.optimizer == "adam"
        a, b = (moments["mean"], moments["square"]) if adam else (moments["velocity"], moments["velocity"])
        kernels.move_kernel[(n, triton.cdiv(stride, 1024))](
            token, self.total, y.storage, a, b, stride, y.eta, correction,
            self.rule.momentum, s.beta1, s.beta2, s.eps,
            ADAM=adam, BN=1024,
        )  # fmt: skip


def _as_float32(device: torch.device) -> str:
    """Products as good as float32 on tensor cores: six of bfloat16 thirds, or where Triton lacks it three of tf32."""
    from triton.backends.nvidia.compiler import CUDAOptions

    newer = device.type == "cuda" and "bf16x6" in CUDAOptions().allowed_dot_input_precisions
    return "bf16x6" if newer else "tf32x3"


class _beside:
    """A stream that starts where the current one is."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            self.inside = torch.cuda.stream(self.stream)
            self.inside.__enter__()

    def __exit__(self, *given: Any) -> None:
        if self.stream is not None:
            self.inside.__exit__(*given)


def _join(stream: torch.cuda.Stream | None) -> None:
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)
