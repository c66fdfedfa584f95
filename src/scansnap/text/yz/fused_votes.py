"""What has the size of the vocabulary in a YZ model with full tables, on CUDA in a few launches: guesses, and the last
layer with its loss, the direction of f and the update of Y.

    maxima   h = f Y[ids] with the largest of each tile     stretches of columns × windows

    logits   h = f Y[ids] with running max and Σ exp       stretches of columns × windows
    errors   e = (e_n − α)/N and the losses                positions × columns
    back     g = e Y[ids]ᵀ                                 chunks of tokens × windows × stretches of columns
    rows     Y[ids] += η fᵀ e                              one program for a band of columns

f (B, T, U) are weights of the tokens of a window's basis, of any number and for windows of any length. h and e are
the only things of size N × M. Nothing is added atomically: a step repeats bit by bit. Precision as in
:mod:`scansnap.text.yz.fused`.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from scansnap.text.updates import groups
from scansnap.text.yz import votes_kernels as kernels
from scansnap.text.yz.fused import MOST_SPLITS, as_float32, move_rows
from scansnap.text.yz.guesses import Basis
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable

POSITIONS, TOKENS, COLUMNS = 64, 64, 64  # of a tile
LAUNCH = {"num_warps": 4, "num_stages": 2}
PROGRAMS = 528  # to fill the device with: four for each of its 132 multiprocessors
BACK_PROGRAMS = 1056


class Tiles:
    """How the products f Y[ids] of one shape (B, T, U) are cut, and their working memory."""

    def __init__(self, y: FullTable, settings: YZSettings, shape: tuple[int, ...]) -> None:
        self.y, self.settings = y, settings
        self.windows, self.length, self.tokens = shape
        split = settings.precision == "bf16x3"
        precision = "tf32" if settings.precision == "tf32" else as_float32(y.storage.device)
        block = min(POSITIONS, max(16, triton.next_power_of_2(self.length)))
        chunk = min(TOKENS, max(16, triton.next_power_of_2(self.tokens)))
        self.tile = {"T": self.length, "U": self.tokens, "BT": block, "BK": chunk, "BN": COLUMNS,
                     "PRECISION": precision, "SPLIT": split}  # fmt: skip
        self.pieces = self.windows * triton.cdiv(self.length, block)
        self.chunks = triton.cdiv(self.tokens, chunk)
        self.all_tiles = triton.cdiv(settings.vocab_size, COLUMNS)
        self.tiles, self.splits = self.cut(PROGRAMS // self.pieces)

    def cut(self, parts: int) -> tuple[int, int]:
        """Tiles of columns of one program, and how many programs that makes, about as many as asked for."""
        tiles = triton.cdiv(self.all_tiles, max(1, min(self.all_tiles, parts, MOST_SPLITS)))
        return tiles, triton.cdiv(self.all_tiles, tiles)

    def buffer(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=self.y.storage.device)


class FusedGuesses(Tiles):
    """The k largest of h = f Y[ids]: they are among the k tiles of columns with the largest maxima."""

    def __init__(self, y: FullTable, settings: YZSettings, shape: tuple[int, ...]) -> None:
        super().__init__(y, settings, shape)
        n = self.windows * self.length
        self.h, self.maxima = self.buffer(n, self.all_tiles * COLUMNS), self.buffer(n, self.all_tiles)

    def __call__(self, ids: Tensor, sizes: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Values and tokens, (B, T, k)."""
        y, k = self.y.storage, self.settings.guesses
        assert k is not None
        kernels.maxima_kernel[(self.pieces, self.splits)](
            ids, sizes, y, y.shape[1], self.settings.vocab_size, f.contiguous(), self.h, self.maxima, self.all_tiles,
            **self.tile, **LAUNCH, TILES=self.tiles,
        )  # fmt: skip
        best = torch.topk(self.maxima, min(k, self.all_tiles)).indices
        places = (best[..., None] * COLUMNS + torch.arange(COLUMNS, device=ids.device)).flatten(1)
        largest, at = torch.topk(self.h.gather(1, places), k)
        shape = (self.windows, self.length, k)
        return largest.view(shape), places.gather(1, at).view(shape)


class FusedVotes(Tiles):
    """Updates of one shape; the working memory is held between calls."""

    def __init__(self, y: FullTable, settings: YZSettings, step: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__(y, settings, shape)
        self.step = step
        self.back_tiles, self.back_splits = self.cut(BACK_PROGRAMS // (self.pieces * min(self.chunks, 4)))
        n, stride, buffer = self.windows * self.length, y.storage.shape[1], self.buffer
        parts, kind = (2, torch.bfloat16) if self.tile["SPLIT"] else (1, torch.float32)
        self.h, self.e = buffer(n, stride), buffer(n, parts, stride, dtype=kind)
        self.partial, self.losses = buffer(2, self.splits, n), buffer(n)
        self.g = buffer(self.back_splits, *shape)
        self.total = None if y.update.linear else buffer(self.windows * self.tokens, stride)

    def __call__(self, basis: Basis, f: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and the direction of f, (B, T, U); Y moves. Beyond a window's tokens both f and g count for 0."""
        ids, f, targets = basis.ids.contiguous(), f.contiguous(), targets.contiguous()
        y, m, n = self.y.storage, self.settings.vocab_size, targets.numel()
        stride, part = y.shape[1], self.splits * n
        kernels.logits_kernel[(self.pieces, self.splits)](
            ids, basis.sizes, y, stride, m, f, self.h, self.partial, part, **self.tile, **LAUNCH, TILES=self.tiles
        )
        kernels.errors_kernel[(n, triton.cdiv(stride, 4096))](
            self.h, stride, m, self.partial, part, n, self.splits, targets, 1 / n, self.e, self.losses,
            SPLITS=triton.next_power_of_2(self.splits), BN=4096, SPLIT=self.tile["SPLIT"], num_warps=8,
        )  # fmt: skip
        kernels.back_kernel[(self.chunks, self.pieces, self.back_splits)](
            ids, basis.sizes, y, stride, self.e, self.g, self.g[0].numel(),
            **self.tile, **LAUNCH, TILES=self.back_tiles,
        )  # fmt: skip
        self._move(ids, basis.sizes, f)
        return self.losses.mean(), self.g.sum(0)

    def _move(self, ids: Tensor, count: Tensor, f: Tensor) -> None:
        """Y at once, or its direction gathered by token first and then by the rule."""
        y, stride = self.y, self.y.storage.shape[1]
        tile = {**self.tile, "num_warps": 4, "num_stages": 1}  # loads must stay behind earlier stores
        grid = (triton.cdiv(stride, COLUMNS),)
        if self.total is None:
            kernels.rows_kernel[grid](ids, count, self.e, stride, f, y.storage, y.eta, self.windows, **tile)
            return
        at = groups(ids.flatten())
        one = torch.ones((), device=ids.device)
        kernels.rows_kernel[grid](at.group, count, self.e, stride, f, self.total.zero_(), one, self.windows, **tile)
        move_rows(y, ids.flatten(), at, self.total, self.step)


def add_blocks(table: Tensor, rows: Tensor, columns: Tensor, d: Tensor, eta: Tensor) -> None:
    """table[row, column] += η d for tokens (B, R) and (B, C) and d (B, R, C); :meth:`WeightTable.move_block`."""
    m, (_, r), (_, c) = len(table), rows.shape, columns.shape
    moving = rows.masked_fill(~d.ne(0).any(-1), m).flatten().int()  # half the digits to sort
    ids, order = torch.sort(moving, stable=True)
    lanes = min(1024, triton.next_power_of_2(c))
    kernels.blocks_kernel[(rows.numel(),)](
        ids, order, rows.numel(), m, columns.contiguous(), d.contiguous(), table, table.shape[1], eta, r, c,
        BC=lanes, num_warps=max(1, lanes // 256),
    )  # fmt: skip


def move_blocks(y: FullTable, rows: Tensor, columns: Tensor, d: Tensor, step: Tensor) -> None:
    """The same by momentum or Adam: each entry of a block once, by the sum of its d."""
    (_, r), (_, c), stride = rows.shape, columns.shape, y.width
    again = rows == rows[:, :1]
    again[:, 0] = False  # what a basis repeats has no entries
    ids, order = torch.sort(rows.masked_fill(again, stride).flatten().int(), stable=True)
    rule, moments = y.update.optimizer, y.stored_moments
    adam = rule.name == "adam"
    a, b = (moments["mean"], moments["square"]) if adam else (moments["velocity"], moments["velocity"])
    lanes = min(1024, triton.next_power_of_2(c))
    kernels.lazy_blocks_kernel[(rows.numel(),)](
        ids, order, rows.numel(), stride, columns.contiguous(), d.contiguous(), d.new_empty(rows.numel(), stride),
        y.storage, a, b, stride, y.eta, torch.stack([1 - rule.beta1**step, 1 - rule.beta2**step]),
        y.update.momentum, rule.beta1, rule.beta2, rule.eps, r, c,
        ADAM=adam, BC=lanes, num_warps=max(1, lanes // 256),
    )  # fmt: skip
