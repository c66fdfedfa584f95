"""Whether the weights of all processes are the same, bit by bit: at the end of a training it is looked at.

Each process moves its own weights by the same sums, and nothing else keeps them equal. Compared is a checksum that is
made where the weights lie, Σ w_i (2i + 1) mod 2⁶⁴ of their bits w: one reading of them, and eight bytes to tell.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.text.model import LanguageModel
from scansnap.text.parallel.group import Group

BLOCK = 1 << 22  # entries that are worked on together


class Parted(OSError):
    """Processes of one training have different weights."""


def compare(model: LanguageModel, group: Group) -> None:
    """Raise :class:`Parted` in every process unless all have the same weights and moments."""
    tensors = model.tensors()
    sums = group.numbers([checksum(tensor) for tensor in tensors.values()])
    for name, *found in zip(tensors, *sums, strict=True):
        if len(set(found)) > 1:
            rank = next(rank for rank, one in enumerate(found) if one != found[0])
            raise Parted(f"{name} is not the same in process 0 and process {rank}: do not trust this training "
                         "(the file has the weights of process 0).")  # fmt: skip


def checksum(tensor: Tensor) -> int:
    """One number for all bits of a tensor of 4- or 8-byte entries, in their places."""
    found = torch.zeros((), dtype=torch.int64, device=tensor.device)
    rows = tensor.reshape(1, 1) if tensor.ndim == 0 else tensor.flatten(1) if tensor.ndim > 1 else tensor[None]
    some = max(1, BLOCK // max(rows.shape[1], 1))
    odd = 2 * torch.arange(rows.shape[1], device=tensor.device) + 1
    for first in range(0, len(rows), some):
        bits = rows[first : first + some].contiguous().view(torch.int32 if tensor.itemsize == 4 else torch.int64)
        line = (bits.long() * odd).sum(1)
        found += (line * (2 * torch.arange(first, first + len(line), device=tensor.device) + 1)).sum()
    return int(found)
