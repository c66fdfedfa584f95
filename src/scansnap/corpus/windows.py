"""Batches of a token stream: the columns-and-windows set-up of word language models.

The stream is cut into ``batch`` columns of equal length, side by side; the batches are windows of ``length``
tokens down the columns, and the targets are the same windows one token later. Read in order, column b of one
batch goes on where column b of the batch before it stopped. The tokens that do not fill a column (fewer than
``batch``) are left out, the last window may be shorter.

The order is a function of (seed, epoch): any batch can be made again after an interruption. Windows from anywhere in
the stream are drawn by :class:`scansnap.sampling.ordered.OrderedTokens`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, whole
from scansnap.sampling.philox import Purpose, uniforms


class Windows:
    """All windows of a stream. ``windows[i]`` is a batch (inputs, targets), both (B, T) int64 on ``device``.

    >>> inputs, targets = Windows(torch.arange(9), batch=2, length=3)[0]
    >>> inputs.tolist(), targets.tolist()
    ([[0, 1, 2], [4, 5, 6]], [[1, 2, 3], [5, 6, 7]])
    """

    def __init__(
        self, tokens: np.ndarray | Tensor, batch: int = 20, length: int = 35, device: str | torch.device = "cpu"
    ) -> None:
        self.batch = whole("batch", batch, least=1)
        self.length = whole("length", length, least=1)
        stream = _stream(tokens)
        rows = len(stream) // self.batch
        if rows < 2:
            raise InputError("the stream", f"{len(stream)} tokens", f"at least {2 * self.batch} for batch {self.batch}")
        # kept as they are (int32 of a corpus): half the memory of the int64 that indexing wants
        self.columns = stream[: rows * self.batch].reshape(self.batch, rows).to(device)  # (B, n)

    def __len__(self) -> int:
        return -(-(self.columns.shape[1] - 1) // self.length)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        if not 0 <= i < len(self):
            raise IndexError(f"window {i} of {len(self)}")
        start, end = i * self.length, min((i + 1) * self.length, self.columns.shape[1] - 1)
        return self.columns[:, start:end].long(), self.columns[:, start + 1 : end + 1].long()

    def order(self, seed: int | None = None, epoch: int = 0) -> list[int]:
        """Window numbers in the order of an epoch: from first to last, or shuffled by a seed."""
        if seed is None:
            return list(range(len(self)))
        key, place = torch.tensor([whole("seed", seed), whole("epoch", epoch)]), torch.arange(len(self))
        draws, _ = uniforms(key[0], Purpose.WINDOW_ORDER, key[1], torch.zeros_like(place), place)
        return torch.argsort(draws, stable=True).tolist()

    def epoch(self, seed: int | None = None, epoch: int = 0, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, from its ``first``-th on."""
        for i in self.order(seed, epoch)[whole("first", first) :]:
            yield self[i]


def _stream(tokens: np.ndarray | Tensor) -> Tensor:
    stream = tokens if isinstance(tokens, Tensor) else torch.from_numpy(np.ascontiguousarray(tokens))
    if stream.ndim != 1 or stream.is_floating_point():
        raise InputError("the stream", f"{stream.dtype} of shape {tuple(stream.shape)}", "one row of token ids")
    return stream
