"""Token counts on CUDA in one launch: the GPU twin of ``sample_counts`` in scansnap/sampling/counts.py.

The torch version makes thousands of small launches for the walks and rejections; here each lane does one sequence.
The arithmetic is the same operation by operation, in float64 and without fused multiply-adds, so that all three
versions draw the same data. Triton comes with CUDA builds of torch; this module is imported only where it is.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.random import philox_impl

from scansnap.sampling.counts import INVERSION_LIMIT, STIRLING_TABLE, SamplingTable
from scansnap.sampling.philox import Purpose

BLOCK = 64


def sample_counts(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
    """Counts (G, N, B, S) in float32."""
    chain = np.ascontiguousarray(table.conditional)
    device = cls.device
    conditional = torch.as_tensor(chain, device=device)
    log_rest = torch.as_tensor(np.log1p(-np.minimum(chain, 1 - chain)), device=device)
    counts = torch.empty(*cls.shape, chain.shape[1], dtype=torch.float32, device=device)
    n = cls.numel()
    _count_kernel[(-(-n // BLOCK),)](
        cls.contiguous(), conditional, log_rest, STIRLING_TABLE.to(device), seeds, steps, counts,
        n, len(steps), cls.shape[-1], chain.shape[1], int(length),
        PURPOSE=int(Purpose.COUNT), LIMIT=INVERSION_LIMIT, BLOCK=BLOCK, num_warps=2, enable_fp_fusion=False,
    )  # fmt: skip
    return counts


@triton.jit
def _uniforms(k0, k1, purpose, step, major, minor):
    c3 = tl.zeros_like(minor) + purpose
    a, b, c, d = philox_impl(minor, major, step, c3, k0, k1, 10)
    u = (a.to(tl.uint64) << 21 | b.to(tl.uint64) >> 11).to(tl.float64) * 1.1102230246251565e-16
    v = (c.to(tl.uint64) << 21 | d.to(tl.uint64) >> 11).to(tl.float64) * 1.1102230246251565e-16
    return u, v


@triton.jit
def _stirling(table, k):
    i = k + 1
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / (i * i)) / (i * i)) / i
    small = k < 10
    return tl.where(small, tl.load(table + tl.where(small, k, 0.0).to(tl.int32)), series)


@triton.jit
def _count_kernel(
    cls_ptr, conditional, log_rest, table, seeds, steps, counts,
    n, n_steps, batch_size, n_slots, length,
    PURPOSE: tl.constexpr, LIMIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    place = at // batch_size
    sample = (at % batch_size).to(tl.uint32)
    seed = tl.load(seeds + place // n_steps, mask=inside, other=0)
    k0, k1 = (seed & 0xFFFFFFFF).to(tl.uint32), (seed >> 32).to(tl.uint32)
    step = tl.load(steps + place % n_steps, mask=inside, other=0).to(tl.uint32)
    cls = tl.load(cls_ptr + at, mask=inside, other=0)
    left = tl.zeros([BLOCK], dtype=tl.float64) + length
    for slot in range(n_slots):
        p = tl.load(conditional + cls * n_slots + slot)
        flip = p > 0.5
        p = tl.where(flip, 1 - p, p)
        large = left * p >= LIMIT
        odds = p / (1 - p)
        minor = tl.zeros([BLOCK], dtype=tl.uint32) + (slot << 8).to(tl.uint32)

        # walk up the distribution function until it passes u
        u, _ = _uniforms(k0, k1, PURPOSE, step, sample, minor)
        pmf = tl.exp(left * tl.load(log_rest + cls * n_slots + slot))
        k = tl.zeros([BLOCK], dtype=tl.float64)
        more = inside & ~large & (u >= pmf) & (k < left)
        while tl.max(more.to(tl.int32), axis=0) > 0:
            u = tl.where(more, u - pmf, u)
            k = tl.where(more, k + 1, k)
            pmf = tl.where(more, pmf * (odds * (left - k + 1) * (1.0 / tl.where(k > 0, k, 1.0))), pmf)
            more = more & (u >= pmf) & (k < left)

        # transformed rejection (BTRS), see sampling.py
        undecided = inside & large
        if tl.max(undecided.to(tl.int32), axis=0) > 0:
            m = tl.where(large, left, 100.0)
            q = tl.where(large, p, 0.5)
            r = q / (1 - q)
            spread = tl.sqrt(m * q * (1 - q))
            b = 1.15 + 2.53 * spread
            a = -0.0873 + 0.0248 * b + 0.01 * q
            mode = tl.floor((m + 1) * q)
            peak = (mode + 0.5) * tl.log((mode + 1) / (r * (m - mode + 1))) + _stirling(table, mode)
            peak = peak + _stirling(table, m - mode)
            scale = (2.83 + 5.1 / b) * spread
            trial = 1
            while tl.max(undecided.to(tl.int32), axis=0) > 0:
                u, v = _uniforms(k0, k1, PURPOSE, step, sample, minor | trial.to(tl.uint32))
                u = u - 0.5
                us = 0.5 - tl.abs(u)
                x = tl.floor((2 * a / us + b) * u + m * q + 0.5)
                fits = (x >= 0) & (x <= m)
                y = tl.where(fits, x, mode)
                bound = peak + (m + 1) * tl.log((m - mode + 1) / (m - y + 1))
                bound = bound + (y + 0.5) * tl.log(r * (m - y + 1) / (y + 1))
                bound = bound - _stirling(table, y) - _stirling(table, m - y)
                quick = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
                good = fits & (quick | (tl.log(v * scale / (a / (us * us) + b)) <= bound))
                k = tl.where(undecided & good, x, k)
                undecided = undecided & ~good
                trial += 1

        k = tl.where(flip, left - k, k)
        tl.store(counts + at.to(tl.int64) * n_slots + slot, k.to(tl.float32), mask=inside)
        left = left - k
