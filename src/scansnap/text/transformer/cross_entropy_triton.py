"""Cross-entropy over a large vocabulary in one launch: logits become a multiple of their gradient where they lie.

A row is read twice, the second time from the cache, and written once. Triton comes with CUDA builds of torch; this
module is imported only where it is.
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096
LOW = tl.constexpr(-1e38)  # below every logit, and no infinity: differences of two of them are numbers


@triton.jit
def _rows(logits, targets, losses, m, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start, lane = logits + row * stride, tl.arange(0, BLOCK)
    target = tl.load(targets + row)
    right = tl.load(start + target).to(tl.float32)  # before anything is written
    top = tl.full([BLOCK], LOW, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, m, BLOCK):
        inside = lane < m - first
        x = tl.load(start + first + lane, mask=inside, other=LOW).to(tl.float32)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.where(inside, tl.exp(x - higher), 0.0)
        top = higher
    highest = tl.max(top, 0)
    log_total = highest + tl.log(tl.sum(total * tl.exp(top - highest), 0))
    tl.store(losses + row, log_total - right)
    for first in range(0, m, BLOCK):
        inside = lane < m - first
        x = tl.load(start + first + lane, mask=inside, other=LOW).to(tl.float32)
        g = tl.exp(x - log_total) - tl.where(first + lane == target, 1.0, 0.0)
        tl.store(start + first + lane, g * scale, mask=inside)


def cross_entropy_(logits: torch.Tensor, targets: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """−ln p of each target (N,) in float32; the logits (N, M), rows contiguous, become scale (softmax − e_n)."""
    losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    (n, m), stride = logits.shape, logits.stride(0)
    _rows[(n,)](logits, targets, losses, m, stride, scale, BLOCK=BLOCK, num_warps=8)
    return losses
