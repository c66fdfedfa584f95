"""The operations over the vocabulary of a one-layer YZ model with full tables, on CUDA in a few launches.

    logits   h = f Y[ids] with running max and Σ exp       stretches of columns × windows
    errors   e = (e_n − α)/N and the losses                positions × columns
    back     g = e Y[ids]ᵀ                                 chunks of tokens × windows × stretches of columns
    rows     Y[ids] += η fᵀ e                              one program for a band of columns

f (B, T, U) are weights of the tokens of a window's basis, of any number and for windows of any length. h and e are
the only things of size N × M. Nothing is added atomically: a step repeats bit by bit. Precision as in
`scansnap.text.yz.fused`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from scansnap.text.table_optimizer import group_ids
from scansnap.text.yz import votes_kernels as kernels
from scansnap.text.yz.fused import MOST_SPLITS, as_float32, update_rows
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable

POSITIONS, TOKENS, COLUMNS = 64, 64, 64  # of a tile
LAUNCH = {"num_warps": 4, "num_stages": 2}
PROGRAMS = 528  # to fill the device with: four for each of its 132 multiprocessors
BACK_PROGRAMS = 1056


class WindowTokens(NamedTuple):
    """The distinct tokens of each window, padded with the first one, where f has no entry."""

    ids: Tensor  # (B, U)
    positions: Tensor  # (B, S), of each token among them
    sizes: Tensor  # (B,), how many there are

    @classmethod
    def of(cls, tokens: Tensor) -> WindowTokens:
        """Of tokens (B, S), in ascending order. On CUDA U = S: a captured graph has one shape for all batches."""
        ascending, order = torch.sort(tokens, dim=-1, stable=True)
        is_new = torch.ones_like(ascending)
        is_new[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
        rank = is_new.cumsum(-1) - 1
        positions = torch.empty_like(order).scatter_(1, order, rank)
        ids = ascending[:, :1].expand_as(ascending).clone().scatter_(1, rank, ascending)
        sizes = rank[:, -1] + 1
        return cls(ids if ids.is_cuda else ids[:, : int(sizes.max())], positions, sizes)


class VotesTiling:
    """The tiles of the products f Y[ids] of one shape (B, T, U), and their working memory."""

    def __init__(self, y: FullTable, settings: YZSettings, shape: tuple[int, ...]) -> None:
        self.y, self.settings = y, settings
        self.windows, self.length, self.tokens = shape
        split = settings.precision == "bf16x3"
        precision = "tf32" if settings.precision == "tf32" else as_float32(y.storage.device)
        block = min(POSITIONS, max(16, triton.next_power_of_2(self.length)))
        chunk = min(TOKENS, max(16, triton.next_power_of_2(self.tokens)))
        self.tile = {"T": self.length, "U": self.tokens, "BT": block, "BK": chunk, "BN": COLUMNS,
                     "PRECISION": precision, "SPLIT": split}  # fmt: skip
        self.split_into_blocks = self.windows * triton.cdiv(self.length, block)
        self.chunks = triton.cdiv(self.tokens, chunk)
        self.all_tiles = triton.cdiv(settings.vocab_size, COLUMNS)
        self.tiles, self.splits = self.cut(PROGRAMS // self.split_into_blocks)

    def cut(self, parts: int) -> tuple[int, int]:
        """Tiles of columns of one program, and the number of programs, about ``parts``."""
        tiles = triton.cdiv(self.all_tiles, max(1, min(self.all_tiles, parts, MOST_SPLITS)))
        return tiles, triton.cdiv(self.all_tiles, tiles)

    def buffer(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=self.y.storage.device)


class FusedVotes(VotesTiling):
    """Updates of one shape; the working memory is reused between calls."""

    def __init__(self, y: FullTable, settings: YZSettings, step: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__(y, settings, shape)
        self.step = step
        self.back_tiles, self.back_splits = self.cut(BACK_PROGRAMS // (self.split_into_blocks * min(self.chunks, 4)))
        n, stride, buffer = self.windows * self.length, y.storage.shape[1], self.buffer
        parts, kind = (2, torch.bfloat16) if self.tile["SPLIT"] else (1, torch.float32)
        self.h, self.e = buffer(n, stride), buffer(n, parts, stride, dtype=kind)
        self.partial, self.losses = buffer(2, self.splits, n), buffer(n)
        self.g = buffer(self.back_splits, *shape)
        self.total = None if y.optimizer.is_plain_sgd else buffer(self.windows * self.tokens, stride)

    def __call__(self, tokens: WindowTokens, f: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and the direction of f, (B, T, U); Y is updated. f and g are 0 beyond a window's tokens."""
        ids, f, targets = tokens.ids.contiguous(), f.contiguous(), targets.contiguous()
        y, m, n = self.y.storage, self.settings.vocab_size, targets.numel()
        stride, part = y.shape[1], self.splits * n
        kernels.logits_kernel[(self.split_into_blocks, self.splits)](
            ids, tokens.sizes, y, stride, m, f, self.h, self.partial, part, **self.tile, **LAUNCH, TILES=self.tiles
        )
        kernels.errors_kernel[(n, triton.cdiv(stride, 4096))](
            self.h, stride, m, self.partial, part, n, self.splits, targets, 1 / n, self.e, self.losses,
            SPLITS=triton.next_power_of_2(self.splits), BN=4096, SPLIT=self.tile["SPLIT"], num_warps=8,
        )  # fmt: skip
        kernels.back_kernel[(self.chunks, self.split_into_blocks, self.back_splits)](
            ids, tokens.sizes, y, stride, self.e, self.g, self.g[0].numel(),
            **self.tile, **LAUNCH, TILES=self.back_tiles,
        )  # fmt: skip
        self._update_y(ids, tokens.sizes, f)
        return self.losses.mean(), self.g.sum(0)

    def _update_y(self, ids: Tensor, count: Tensor, f: Tensor) -> None:
        """Add the direction to Y at once, or sum it by token first and then apply the rule."""
        y, stride = self.y, self.y.storage.shape[1]
        tile = {**self.tile, "num_warps": 4, "num_stages": 1}  # loads must stay behind earlier stores
        grid = (triton.cdiv(stride, COLUMNS),)
        if self.total is None:
            kernels.rows_kernel[grid](ids, count, self.e, stride, f, y.storage, y.eta, self.windows, **tile)
            return
        at = group_ids(ids.flatten())
        unit = torch.ones((), device=ids.device)
        kernels.rows_kernel[grid](at.group, count, self.e, stride, f, self.total.zero_(), unit, self.windows, **tile)
        update_rows(y, ids.flatten(), at, self.total, self.step)


def add_blocks(table: Tensor, rows: Tensor, columns: Tensor, d: Tensor, eta: Tensor) -> None:
    """table[row, column] += η d for tokens (B, R) and (B, C) and d (B, R, C); where a window has a token twice
    all but one of its columns of d are 0."""
    m, (_, r), (_, c) = len(table), rows.shape, columns.shape
    moving = rows.masked_fill(~d.ne(0).any(-1), m).flatten().int()  # half the digits to sort
    ids, order = torch.sort(moving, stable=True)
    lanes = min(1024, triton.next_power_of_2(c))
    kernels.blocks_kernel[(rows.numel(),)](
        ids, order, rows.numel(), m, columns.contiguous(), d.contiguous(), table, table.shape[1], eta, r, c,
        BC=lanes, num_warps=max(1, lanes // 256),
    )  # fmt: skip
