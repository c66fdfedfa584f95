"""The ℓ2 norm of states over the vocabulary with its sums, forward and backward, one launch each.

    f = v/‖v‖, v = a (+ b)          dv = (g − f (f·g))/‖v‖

A row is read twice, the second time from the cache, and written once; in torch the two are some twelve passes. Triton
comes with CUDA builds of torch; this module is imported only where it is.
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def _forward(a, b, f, size, width, SUM: tl.constexpr, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64) * width, tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        inside = lane < width - first
        v = tl.load(a + row + first + lane, mask=inside, other=0.0)
        if SUM:
            v += tl.load(b + row + first + lane, mask=inside, other=0.0)
        total += v * v
    length = tl.sqrt(tl.sum(total, 0))
    length = tl.where(length == 0, float("inf"), length)  # zero stays zero and passes no gradient
    tl.store(size + tl.program_id(0), length)
    for first in range(0, width, BLOCK):
        inside = lane < width - first
        v = tl.load(a + row + first + lane, mask=inside, other=0.0)
        if SUM:
            v += tl.load(b + row + first + lane, mask=inside, other=0.0)
        tl.store(f + row + first + lane, v / length, mask=inside)


@triton.jit
def _backward(g, f, size, out, width, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64) * width, tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        inside = lane < width - first
        one = tl.load(g + row + first + lane, mask=inside, other=0.0)
        total += one * tl.load(f + row + first + lane, mask=inside, other=0.0)
    along, length = tl.sum(total, 0), tl.load(size + tl.program_id(0))
    for first in range(0, width, BLOCK):
        inside = lane < width - first
        one = tl.load(g + row + first + lane, mask=inside, other=0.0)
        one -= along * tl.load(f + row + first + lane, mask=inside, other=0.0)
        tl.store(out + row + first + lane, one / length, mask=inside)


def unit(a: torch.Tensor, b: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """f and ‖v‖ of rows (…, M)."""
    a, other = a.contiguous(), a if b is None else b.contiguous()
    f, size = torch.empty_like(a), a.new_empty(a.shape[:-1])
    _forward[(size.numel(),)](a, other, f, size, a.shape[-1], SUM=b is not None, BLOCK=BLOCK, num_warps=8)
    return f, size


def unit_backward(g: torch.Tensor, f: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """dv of rows (…, M)."""
    g, out = g.contiguous(), torch.empty_like(f)
    _backward[(size.numel(),)](g, f, size, out, g.shape[-1], BLOCK=BLOCK, num_warps=8)
    return out
