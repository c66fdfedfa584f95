"""Batches of a token stream for word language models: columns and windows.

The stream is divided into ``batch`` columns of equal length. A batch is a window of ``length`` tokens of each column,
and its targets are the same windows one token later. In order, column b continues column b of the batch before. Fewer
than ``batch`` tokens that do not fill a column are dropped; the last window may be shorter.

A stream that is mapped from a file (as in a corpus) stays mapped: a batch reads its own windows. On CUDA a stream of up
to 2²⁸ tokens (1 GiB) is copied to the device; of a longer one each batch is sent through pinned memory.

The order is a function of (seed, epoch), so a resumed run has the same batches. For windows at random positions see
`scansnap.sampling.ordered.OrderedTokens`.
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

MAX_ON_DEVICE = 2**28  # tokens of a stream that are copied to the device


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
            raise InputError(
                "tokens", f"{len(stream)} tokens", f"at least {2 * self.batch} tokens for batch {self.batch}"
            )
        self.device = torch.device(device)
        # with two or four bytes an id; only a batch becomes int64
        self.columns = place_stream(stream[: rows * self.batch], self.device).reshape(self.batch, rows)  # (B, n)

    def __len__(self) -> int:
        return -(-(self.columns.shape[1] - 1) // self.length)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        if not 0 <= i < len(self):
            raise IndexError(f"window {i} of {len(self)}")
        start, end = i * self.length, min((i + 1) * self.length, self.columns.shape[1] - 1)
        window = self.columns[:, start : end + 1]
        if window.device.type != self.device.type:
            window = send(window.int(), self.device)
        return window[:, :-1].long(), window[:, 1:].long()

    def order(self, seed: int | None = None, epoch: int = 0) -> list[int]:
        """Window numbers in the order of an epoch: ascending, or shuffled by a seed."""
        order = torch.arange(len(self))
        if seed is not None:
            key = torch.tensor([check_integer("seed", seed), check_integer("epoch", epoch)])
            draws, _ = uniforms(key[0], Purpose.WINDOW_ORDER, key[1], torch.zeros_like(order), order)
            order = torch.argsort(draws, stable=True)
        return order.tolist()

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest id, read block by block."""
        if self.columns.device.type != "cpu":
            return int(self.columns.min()), int(self.columns.max())
        bounds = [(int(block.min()), int(block.max())) for block in self._blocks()]
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    def digest(self) -> str:
        """Identifies the tokens and their columns, for ids of two or four bytes."""
        digest = hashlib.sha256()
        for block in self._blocks():
            digest.update((block.astype(np.int32) if block.dtype == np.uint16 else block).tobytes())
        return digest.hexdigest()[:16]

    def _blocks(self) -> Iterator[np.ndarray]:
        return split_into_blocks(self.columns.reshape(-1).cpu().numpy())


def place_stream(stream: Tensor, device: torch.device) -> Tensor:
    """A stream on the device of a model, or on the CPU if it is too long."""
    if stream.device.type == "cpu" != device.type and len(stream) > MAX_ON_DEVICE:
        return stream
    # outside a CPU torch supports few operations on uint16
    return (stream.int() if device.type != "cpu" and stream.dtype == torch.uint16 else stream).to(device)


def send(batch: Tensor, device: torch.device) -> Tensor:
    """Copy a batch to the device, without waiting on CUDA."""
    return batch.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else batch.to(device)


def _stream(tokens: np.ndarray | Tensor) -> Tensor:
    stream = tokens if isinstance(tokens, Tensor) else torch.from_numpy(np.ascontiguousarray(tokens))
    if stream.ndim != 1 or stream.is_floating_point():
        raise InputError("tokens", f"{stream.dtype} of shape {tuple(stream.shape)}", "a row of token ids")
    return stream
