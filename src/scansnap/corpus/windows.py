"""Batches of a token stream: the columns-and-windows set-up of word language models.

The stream is cut into ``batch`` columns of equal length, side by side; the batches are windows of ``length``
tokens down the columns, and the targets are the same windows one token later. Read in order, column b of one
batch goes on where column b of the batch before it stopped. The tokens that do not fill a column (fewer than
``batch``) are left out, the last window may be shorter.

A stream that is a map of a file (as those of a corpus are) stays one: a batch reads its own windows of it. On CUDA a
stream of up to 2²⁸ tokens (1 GiB) goes to the device as a whole; of a longer one some hundred batches at a time are
send through pinned memory, in the order that was last asked for, while the device is at work on those before.

The order is a function of (seed, epoch): any batch can be made again after an interruption. Windows from anywhere in
the stream are drawn by :class:`scansnap.sampling.ordered.OrderedTokens`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_integer
from scansnap.corpus.encoding import split_into_blocks
from scansnap.sampling.philox import Purpose, uniforms

ON_DEVICE = 2**28  # tokens of a stream that go to the device as a whole
AHEAD = 256  # batches of a longer one that are send together


class Windows:
    """All windows of a stream. ``windows[i]`` is a batch (inputs, targets), both (B, T) int64 on ``device``.

    >>> inputs, targets = Windows(torch.arange(9), batch=2, length=3)[0]
    >>> inputs.tolist(), targets.tolist()
    ([[0, 1, 2], [4, 5, 6]], [[1, 2, 3], [5, 6, 7]])
    """

    def __init__(
        self, tokens: np.ndarray | Tensor, batch: int = 20, length: int = 35, device: str | torch.device = "cpu"
    ) -> None:
        self.batch = check_integer("batch", batch, least=1)
        self.length = check_integer("length", length, least=1)
        stream = _stream(tokens)
        rows = len(stream) // self.batch
        if rows < 2:
            raise InputError("the stream", f"{len(stream)} tokens", f"at least {2 * self.batch} for batch {self.batch}")
        self.device = torch.device(device)
        # kept as they are (two or four bytes of a corpus): a part of the memory of the int64 that indexing wants
        self.columns = place_stream(stream[: rows * self.batch], self.device).reshape(self.batch, rows)  # (B, n)
        here = self.columns.device.type == self.device.type
        self._ahead = None if here else _Prefetch(self.columns, self.length, self.device)

    def __len__(self) -> int:
        return -(-(self.columns.shape[1] - 1) // self.length)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        if not 0 <= i < len(self):
            raise IndexError(f"window {i} of {len(self)}")
        start, end = i * self.length, min((i + 1) * self.length, self.columns.shape[1] - 1)
        both = self.columns[:, start : end + 1] if self._ahead is None else self._ahead[i]
        return both[:, :-1].long(), both[:, 1:].long()

    def order(self, seed: int | None = None, epoch: int = 0) -> list[int]:
        """Window numbers in the order of an epoch: from first to last, or shuffled by a seed."""
        found = torch.arange(len(self))
        if seed is not None:
            key = torch.tensor([check_integer("seed", seed), check_integer("epoch", epoch)])
            draws, _ = uniforms(key[0], Purpose.WINDOW_ORDER, key[1], torch.zeros_like(found), found)
            found = torch.argsort(draws, stable=True)
        if self._ahead is not None:
            self._ahead.follow(found)
        return found.tolist()

    def epoch(self, seed: int | None = None, epoch: int = 0, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, from its ``first``-th on."""
        for i in self.order(seed, epoch)[check_integer("first", first) :]:
            yield self[i]

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest id, read block by block."""
        if self.columns.device.type != "cpu":
            return int(self.columns.min()), int(self.columns.max())
        found = [(int(block.min()), int(block.max())) for block in self._blocks()]
        return min(low for low, _ in found), max(high for _, high in found)

    def digest(self) -> str:
        """One word for the tokens and their columns, however many bytes an id takes (two count as four)."""
        found = hashlib.sha256()
        for block in self._blocks():
            found.update((block.astype(np.int32) if block.dtype == np.uint16 else block).tobytes())
        return found.hexdigest()[:16]

    def _blocks(self) -> Iterator[np.ndarray]:
        return split_into_blocks(self.columns.reshape(-1).cpu().numpy())


class _Prefetch:
    """Windows of columns on another device, send ``AHEAD`` at a time in the order they are expected to be asked for."""

    def __init__(self, columns: Tensor, length: int, device: torch.device) -> None:
        self.columns, self.length, self.device = columns, length, device
        self.width = min(length + 1, columns.shape[1])  # inputs and targets; the last window has its end in common
        self.follow(torch.arange(-(-(columns.shape[1] - 1) // length)))

    def follow(self, order: Tensor) -> None:
        self.order, self.place, self.part = order, torch.argsort(order), -1
        self.there = torch.empty(0)

    def __getitem__(self, i: int) -> Tensor:
        """Inputs and targets of window i in one, (B, T + 1)."""
        part, at = divmod(int(self.place[i]), AHEAD)
        if part != self.part:
            some = self.order[part * AHEAD : (part + 1) * AHEAD].tolist()
            windows = [self.columns[:, start : start + self.width] for start in map(self._start, some)]
            self.there, self.part = send(torch.stack(windows).int(), self.device), part
        return self.there[at][:, i * self.length - self._start(i) :]

    def _start(self, i: int) -> int:
        return min(i * self.length, self.columns.shape[1] - self.width)


def place_stream(stream: Tensor, device: torch.device) -> Tensor:
    """A stream where a model on ``device`` reads it: there, unless it is too long to be send as a whole."""
    if stream.device.type == "cpu" != device.type and len(stream) > ON_DEVICE:
        return stream
    # two bytes an id are a format for files: outside a CPU torch does little with them
    return (stream.int() if device.type != "cpu" and stream.dtype == torch.uint16 else stream).to(device)


def send(batch: Tensor, device: torch.device) -> Tensor:
    """A batch on its way to the device; nothing waits for it here."""
    return batch.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else batch.to(device)


def _stream(tokens: np.ndarray | Tensor) -> Tensor:
    stream = tokens if isinstance(tokens, Tensor) else torch.from_numpy(np.ascontiguousarray(tokens))
    if stream.ndim != 1 or stream.is_floating_point():
        raise InputError("the stream", f"{stream.dtype} of shape {tuple(stream.shape)}", "one row of token ids")
    return stream
