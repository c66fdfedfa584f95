"""One update of the one-layer full-rank YZ model on CUDA in a few launches, and without a table of logits.

    attend      attention of a window, f, and f summed over equal tokens             one program for a window
    sums        logits = f Y[x] tile by tile, kept only as running max and Σ exp     windows × splits of the columns
    normalise   log Σ exp of each position, its loss
    errors      the same logits again, e = (e_n − α)/N stored, g = e Y[x]ᵀ added up   windows × splits
    dlogits     through the norms and the softmax, summed over equal tokens          one program for a window
    entries     Z[m, l] += η dz                                                       one program for a query token
    rows        Y[l] += η Σ f e                                                      one program for a band of columns

The logits are computed twice and not stored, so only e has size N × M. Nothing is added atomically, so a step repeats
bit by bit. Token ids are not checked here; one outside the vocabulary reads foreign memory.

Precision: tables, softmax and all sums float32. The four products with a side of M go through the tensor cores: as six
products of numbers split in three (as good as float32), as three of numbers split in two (``bf16x3``, 2⁻¹⁶) or as one
(``tf32``, 2⁻¹¹); products among positions are float32 or three of tf32. Momentum and Adam gather the rows' directions
in a buffer first and then move each touched row once; other rules go through plain torch.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from scansnap.text.cuda import on_stream
from scansnap.text.table_optimizer import IdGroups, group_ids
from scansnap.text.yz import triton_kernels as kernels
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable

COLUMNS = 64  # of a tile of Y; with four warps and three stages the fastest of those tried on an H200
LAUNCH = {"num_warps": 4, "num_stages": 3}
PROGRAMS = 1056  # to fill the device with: eight for each of its 132 multiprocessors
MOST_SPLITS = 128  # of the columns; one program joins them


class FusedStep:
    """Updates of one batch shape; the working memory is reused between calls."""

    def __init__(
        self, y: FullTable, z: FullTable, settings: YZSettings, step: Tensor, shape: tuple[int, ...], *, uniform: bool
    ) -> None:
        """``uniform``: attention as of Z = 0; Z is updated by its direction there."""
        self.y, self.z, self.settings, self.step = y, z, settings, step
        self.windows, self.length = shape
        self.block = max(16, triton.next_power_of_2(self.length))
        self.positions = self.windows * self.block
        tiles = triton.cdiv(settings.vocab_size, COLUMNS)
        self.tiles = triton.cdiv(tiles, max(1, min(tiles, PROGRAMS // self.windows, MOST_SPLITS)))  # of one program
        self.splits = triton.cdiv(tiles, self.tiles)

        # what the kernels are compiled for
        device, split = y.storage.device, settings.precision == "bf16x3"
        precision = "tf32" if settings.precision == "tf32" else as_float32(device)
        self.shape = {"T": self.length, "BT": self.block}
        self.product = {"BN": COLUMNS, "PRECISION": precision, "SPLIT": split}
        self.wide = {**self.shape, **self.product, **LAUNCH, "TILES": self.tiles}
        self.model = {"RESIDUAL": settings.residual, "L2": settings.norm == "l2", "SELF": settings.query_in_keys,
                      "UNIFORM": uniform, **self.shape, "num_warps": 4}  # fmt: skip

        def buffer(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        n, stride, square = self.windows * self.length, y.storage.shape[1], (self.windows, self.block, self.block)
        parts, kind = (2, torch.bfloat16) if split else (1, torch.float32)
        self.f, self.f_token = buffer(*square), buffer(parts, *square, dtype=kind)
        self.first = buffer(self.windows, self.block, dtype=torch.int8)
        self.right, self.log_total = (buffer(self.windows, self.block) for _ in range(2))
        self.partial = buffer(2, self.splits, self.positions)  # running max, Σ exp
        self.losses = buffer(n)
        self.e, self.g = buffer(n, parts, stride, dtype=kind), buffer(self.splits, *square)
        self.dz, self.dz_token = (buffer(*square) for _ in range(2))
        self.total = None if y.optimizer.is_plain_sgd else buffer(n, stride)  # of Y's direction, by token
        # small launches have priority: after the large one they would wait until its end
        self.stream = torch.cuda.Stream(priority=-1) if device.type == "cuda" else None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x, target = inputs.contiguous(), targets.contiguous()
        with on_stream(self.stream):
            at = group_ids(x.flatten())
        self._attend(x, target)
        self._normalise(x)
        self._errors(x, target)
        with on_stream(self.stream):
            self._update_z(x, at)
        self._update_y(x)
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        self.step += 1
        return self.losses.mean()

    def _attend(self, x: Tensor, target: Tensor) -> None:
        """f, f by token, and the logit of each position's next token."""
        y, z = self.y.storage, self.z.storage
        kernels.attend_kernel[(self.windows,)](
            x, target, z, z.shape[1], y, y.shape[1], self.f, self.f_token, self.first, self.right,
            **self.model, SPLIT=self.product["SPLIT"],
        )  # fmt: skip

    def _normalise(self, x: Tensor) -> None:
        """log Σ exp of the logits f Y[x], and the losses."""
        y, m, part = self.y.storage, self.settings.vocab_size, self.splits * self.positions
        kernels.sums_kernel[(self.splits, self.windows)](x, y, y.shape[1], m, self.f, self.partial, part, **self.wide)
        kernels.normalise_kernel[(self.windows,)](
            self.partial, part, self.positions, self.splits, self.right, self.log_total, self.losses,
            **self.shape, SPLITS=triton.next_power_of_2(self.splits),
        )  # fmt: skip

    def _errors(self, x: Tensor, target: Tensor) -> None:
        """e = (e_n − α)/N and g = e Y[x]ᵀ, the latter in as many parts as the columns are split in."""
        y, m = self.y.storage, self.settings.vocab_size
        kernels.errors_kernel[(self.splits, self.windows)](
            x, target, y, y.shape[1], m, self.f, self.log_total, 1 / x.numel(), self.e, self.g,
            self.positions * self.block, **self.wide,
        )  # fmt: skip

    def _update_z(self, x: Tensor, at: IdGroups) -> None:
        """Update Z by dz, from g through the norms and the softmax."""
        z, n = self.z.storage, x.numel()
        kernels.dlogits_kernel[(self.windows,)](
            x, z, z.shape[1], self.g.sum(0), self.dz, self.dz_token, **self.model
        )  # fmt: skip
        if self.z.optimizer.is_plain_sgd:
            kernels.entries_kernel[(n,)](
                at.sorted, at.order, n, x, self.dz_token, z, z.shape[1], self.z.eta, **self.shape, num_warps=1
            )
        else:
            dz = self.dz[:, : self.length, : self.length]
            self.z.update_pairs(x, dz, self.settings.query_in_keys, self.step)

    def _update_y(self, x: Tensor) -> None:
        """Update Y by f and e: at once, or summed by token first and then by the rule."""
        y, stride = self.y, self.y.storage.shape[1]
        grid = (triton.cdiv(stride, COLUMNS),)
        launch = {**self.shape, **self.product, "num_warps": 4, "num_stages": 1}  # loads must stay after stores
        if self.total is None:
            table = (y.storage, y.eta, self.windows)
            kernels.rows_kernel[grid](x, self.e, stride, self.f_token, self.first, *table, **launch)
            return
        at = group_ids(x.flatten())
        total = (self.total.zero_(), torch.ones((), device=x.device), self.windows)
        kernels.rows_kernel[grid](at.group, self.e, stride, self.f_token, self.first, *total, **launch)
        update_rows(y, x.flatten(), at, self.total, self.step)


def update_rows(y: FullTable, ids: Tensor, at: IdGroups, total: Tensor, step: Tensor) -> None:
    """Update rows of a table by momentum or Adam; ``total`` has the direction of each group of equal ids (P,)."""
    token = torch.full_like(at.sorted, -1)
    token[at.group] = ids  # (P,) token of each group, −1 beyond the last
    rule, moments, stride = y.optimizer.optimizer, y.stored_moments, y.storage.shape[1]
    correction = torch.stack([1 - rule.beta1 ** (step + 1), 1 - rule.beta2 ** (step + 1)])
    adam = rule.name == "adam"
    a, b = (moments["mean"], moments["square"]) if adam else (moments["velocity"], moments["velocity"])
    kernels.move_kernel[(len(ids), triton.cdiv(stride, 1024))](
        token, total, y.storage, a, b, stride, y.eta, correction,
        y.optimizer.momentum, rule.beta1, rule.beta2, rule.eps,
        ADAM=adam, BN=1024,
    )  # fmt: skip


def as_float32(device: torch.device) -> str:
    """Products as good as float32 on tensor cores: six of bfloat16 thirds, or where Triton lacks it three of tf32."""
    from triton.backends.nvidia.compiler import CUDAOptions

    newer = device.type == "cuda" and "bf16x6" in CUDAOptions().allowed_dot_input_precisions
    return "bf16x6" if newer else "tf32x3"
