"""Adam on a table in one launch: the weights, both moments and the direction are read once, and written once.

In torch the same is ten passes over tables; here it is seven streams of one. Triton comes with CUDA builds of torch;
this module is imported only where it is.
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _adam(
    table, d, mean, square, eta, correction, columns, across, table_stride, d_stride, mean_stride, square_stride,
    beta1, beta2, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    """One stretch of one row; ``across`` stretches make a row."""
    row = (tl.program_id(0) // across).to(tl.int64)
    column = (tl.program_id(0) % across).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    step = tl.load(d + row * d_stride + column, mask=inside, other=0.0)
    a = tl.load(mean + row * mean_stride + column, mask=inside, other=0.0)
    b = tl.load(square + row * square_stride + column, mask=inside, other=0.0)
    w = tl.load(table + row * table_stride + column, mask=inside, other=0.0)
    a = beta1 * a + (1 - beta1) * step
    b = beta2 * b + (1 - beta2) * step * step
    spread = tl.sqrt(b / tl.load(correction + 1).to(tl.float32)) + eps
    rate = tl.load(eta) / tl.load(correction).to(tl.float32)
    tl.store(mean + row * mean_stride + column, a, mask=inside)
    tl.store(square + row * square_stride + column, b, mask=inside)
    tl.store(table + row * table_stride + column, w + rate * (a / spread), mask=inside)


def adam_(
    table: torch.Tensor, d: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, eta: torch.Tensor,
    step: torch.Tensor, beta1: float, beta2: float, eps: float,
) -> None:  # fmt: skip
    """A table (R, C), or of another shape and contiguous, with its moments in place; d is minus the gradient."""
    every = (table, d, mean, square)
    if all(tensor.is_contiguous() for tensor in every):
        rows, columns, strides = 1, table.numel(), (0, 0, 0, 0)
    else:
        (rows, columns), strides = table.shape, tuple(tensor.stride(0) for tensor in every)
    across = triton.cdiv(columns, BLOCK)
    correction = torch.stack([1 - beta1**step, 1 - beta2**step])
    _adam[(rows * across,)](*every, eta, correction, columns, across, *strides, beta1, beta2, eps, BLOCK=BLOCK)
