"""What is done to states over the vocabulary beside products with tables, one launch each.

    f = v/‖v‖, v = a (+ b)          dv = (g − f (f·g))/‖v‖          the ℓ2 norm with its sums
                                    dh = p ∘ (d − p·d)              backward through p = softmax(h)
    a bᵀ for each window                                            attention's logits, and what they get back

In the first three a row is read twice, the second time from the cache, and written once; in torch they are some
sixteen passes. The last has few outputs and long sums, which a library gives to as few processors: here the sums are
cut into stretches. Triton comes with CUDA builds of torch; this module is imported only where it is.
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096
STRETCH, DEEP = 512, 64  # tokens that a program sums over, and at a time
LONGEST = 64  # window whose products a program holds


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


@triton.jit
def _soft_backward(p, d, out, width, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64) * width, tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        inside = lane < width - first
        one = tl.load(d + row + first + lane, mask=inside, other=0.0)
        total += one * tl.load(p + row + first + lane, mask=inside, other=0.0)
    along = tl.sum(total, 0)
    for first in range(0, width, BLOCK):
        inside = lane < width - first
        one = tl.load(d + row + first + lane, mask=inside, other=0.0) - along
        tl.store(out + row + first + lane, one * tl.load(p + row + first + lane, mask=inside, other=0.0), mask=inside)


@triton.jit
def _against(a, b, out, length, width, SIDE: tl.constexpr, STRETCH: tl.constexpr, DEEP: tl.constexpr):
    window, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    side, lane = tl.arange(0, SIDE), tl.arange(0, DEEP)
    total = tl.zeros([SIDE, SIDE], tl.float32)
    for first in range(part * STRETCH, part * STRETCH + STRETCH, DEEP):
        at = (window * length + side[:, None]) * width + first + lane[None, :]
        inside = (side[:, None] < length) & (first + lane[None, :] < width)
        one = tl.load(a + at, mask=inside, other=0.0)
        other = tl.load(b + at, mask=inside, other=0.0)
        total += tl.dot(one, tl.trans(other), input_precision="tf32")
    to = ((part * tl.num_programs(0) + window) * length + side[:, None]) * length + side[None, :]
    tl.store(out + to, total, mask=(side[:, None] < length) & (side[None, :] < length))


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


def soft_backward(p: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """dh of rows (…, M)."""
    p, d = p.contiguous(), d.contiguous()
    out = torch.empty_like(p)
    _soft_backward[(p.numel() // p.shape[-1],)](p, d, out, p.shape[-1], BLOCK=BLOCK, num_warps=8)
    return out


def against(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a bᵀ of states (B, T, M), (B, T, T), in tf32; windows not longer than ``LONGEST``."""
    (windows, length, width), parts = a.shape, triton.cdiv(a.shape[-1], STRETCH)
    out = a.new_empty(parts, windows, length, length)
    side = max(16, triton.next_power_of_2(length))
    _against[(windows, parts)](
        a.contiguous(), b.contiguous(), out, length, width, SIDE=side, STRETCH=STRETCH, DEEP=DEEP
    )
    return out.sum(0)
