"""Triton kernels of the last layer of a YZ model with full tables; text/yz/fused_votes.py puts them together.

A state has entries at U tokens of its window, the first ``sizes`` of them distinct and the rest unused. All products
with a side of M take windows in tiles of BT positions, tokens in chunks of BK and columns in tiles of BN. Nothing is
added atomically: whatever adds to one number is in one program, which takes its windows (or positions) in their order.

    T positions of a window · U tokens · M columns, rows of the table ``stride`` apart
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

import triton
import triton.language as tl

from scansnap.text.yz.triton_kernels import _halves, _three_products


@triton.jit
def _product(a, b, sum, PRECISION: tl.constexpr, SPLIT: tl.constexpr):
    """sum + a b of float32 numbers."""
    if SPLIT:
        high, low = _halves(a)
        other_high, other_low = _halves(b)
        return _three_products(high, low, other_high, other_low, sum)
    else:  # noqa: RET505 (Triton takes one of the two when it compiles, and only in this form)
        return tl.dot(a, b, sum, input_precision=PRECISION)


@triton.jit
def _votes(
    ids, n, y, stride, f, window, position, here, column,
    U: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """f Y[ids] of one tile: positions that are ``here`` × columns."""
    s = tl.arange(0, BK)
    logit = tl.zeros([BT, BN], tl.float32)
    for first in range(0, n, BK):
        slot = first + s
        row = tl.load(ids + window * U + slot, mask=slot < n, other=0).to(tl.int64) * stride
        inside = (slot < n)[:, None] & (column < stride)[None, :]  # the padding of a row is zero
        votes = tl.load(y + row[:, None] + column[None, :], mask=inside, other=0.0)
        weight = tl.load(f + position[:, None] * U + slot[None, :], mask=here[:, None] & (slot < n)[None, :], other=0.0)
        logit = _product(weight, votes, logit, PRECISION, SPLIT)
    return logit


@triton.jit
def logits_kernel(
    ids, sizes, y, stride, m, f, h, partial, part,
    T: tl.constexpr, U: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, TILES: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """h = f Y[ids] of some tiles of columns, with their running max and Σ exp.

    Programs of one stretch of columns are side by side: a row that several windows have is read from the cache.
    """
    split = tl.program_id(1)
    window, piece = tl.program_id(0) // tl.cdiv(T, BT), tl.program_id(0) % tl.cdiv(T, BT)
    t, j = piece * BT + tl.arange(0, BT), tl.arange(0, BN)
    n = tl.load(sizes + window)
    position = window * T + t
    top = tl.full([BT], -float("inf"), tl.float32)
    total = tl.zeros([BT], tl.float32)
    for tile in range(TILES):
        column = (split * TILES + tile) * BN + j
        logit = _votes(ids, n, y, stride, f, window, position, t < T, column, U, BT, BK, BN, PRECISION, SPLIT)
        place = h + position.to(tl.int64)[:, None] * stride + column[None, :]
        tl.store(place, logit, mask=(t < T)[:, None] & (column < stride)[None, :])
        logit = tl.where((column < m)[None, :], logit, -float("inf"))
        higher = tl.maximum(top, tl.max(logit, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(logit - higher[:, None]), 1)
        top = higher
    place = partial + split * (part // tl.num_programs(1)) + position
    tl.store(place, top, mask=t < T)
    tl.store(place + part, total, mask=t < T)


@triton.jit
def errors_kernel(
    h, stride, m, partial, part, n, splits, target, share, e, losses,
    SPLITS: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """e = (e_n − α)/N of one position, and its loss."""
    position = tl.program_id(0)
    split = tl.arange(0, SPLITS)
    place = partial + split * n + position
    tops = tl.load(place, mask=split < splits, other=-float("inf"))
    top = tl.max(tops, 0)
    totals = tl.load(place + part, mask=split < splits, other=0.0)
    whole = top + tl.log(tl.sum(totals * tl.exp(tops - top), 0))
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    row = h + position.to(tl.int64) * stride
    right = tl.load(target + position)
    logit = tl.load(row + column, mask=column < stride, other=0.0)
    out = tl.where(column < m, (tl.where(column == right, 1.0, 0.0) - tl.exp(logit - whole)) * share, 0.0)
    if SPLIT:
        high, low = _halves(out)
        place = e + position.to(tl.int64) * 2 * stride + column
        tl.store(place, high, mask=column < stride)
        tl.store(place + stride, low, mask=column < stride)
    else:
        tl.store(e + position.to(tl.int64) * stride + column, out, mask=column < stride)
    if tl.program_id(1) == 0:
        tl.store(losses + position, whole - tl.load(row + right))


@triton.jit
def back_kernel(
    ids, sizes, y, stride, e, g, part,
    T: tl.constexpr, U: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, TILES: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """g = e Y[ids]ᵀ over some tiles of columns, for one chunk of tokens."""
    split = tl.program_id(2)
    window, piece = tl.program_id(1) // tl.cdiv(T, BT), tl.program_id(1) % tl.cdiv(T, BT)
    t, j = piece * BT + tl.arange(0, BT), tl.arange(0, BN)
    slot = tl.program_id(0) * BK + tl.arange(0, BK)
    n = tl.load(sizes + window)
    row = tl.load(ids + window * U + slot, mask=slot < n, other=0).to(tl.int64) * stride
    position = window * T + t
    error = e + position.to(tl.int64)[:, None] * stride * (2 if SPLIT else 1)
    out = tl.zeros([BT, BK], tl.float32)
    tiles = tl.where(tl.program_id(0) * BK < n, TILES, 0)
    for tile in range(tiles):
        column = (split * TILES + tile) * BN + j
        votes = tl.load(y + row[:, None] + column[None, :],
                        mask=(slot < n)[:, None] & (column < stride)[None, :], other=0.0)  # fmt: skip
        there = (t < T)[:, None] & (column < stride)[None, :]
        one = tl.load(error + column[None, :], mask=there, other=0.0)
        if SPLIT:
            low = tl.load(error + stride + column[None, :], mask=there, other=0.0)
            votes_high, votes_low = _halves(votes)
            out = _three_products(one, low, tl.trans(votes_high), tl.trans(votes_low), out)
        else:
            out = tl.dot(one, tl.trans(votes), out, input_precision=PRECISION)
    place = g + split * part + position[:, None] * U + slot[None, :]
    tl.store(place, out, mask=(t < T)[:, None] & (slot < U)[None, :])


@triton.jit
def rows_kernel(
    ids, sizes, e, stride, f, table, eta, windows,
    T: tl.constexpr, U: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """table[ids] += η fᵀ e for a band of columns, window after window; the tokens of one window are distinct."""
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    s, at = tl.arange(0, BK), tl.arange(0, BT)
    rate = tl.load(eta)
    for window in range(windows):
        n = tl.load(sizes + window)
        for first in range(0, n, BK):
            slot = first + s
            row = tl.load(ids + window * U + slot, mask=slot < n, other=0).to(tl.int64) * stride
            mine = (slot < n)[:, None] & (column < stride)[None, :]
            place = table + row[:, None] + column[None, :]
            old = tl.load(place, mask=mine, other=0.0)
            d = tl.zeros([BK, BN], tl.float32)
            for piece in range(0, T, BT):
                t = piece + at
                position = window * T + t
                weight = tl.load(f + position[None, :] * U + slot[:, None],
                                 mask=(t < T)[None, :] & (slot < n)[:, None], other=0.0)  # fmt: skip
                error = e + position.to(tl.int64)[:, None] * stride * (2 if SPLIT else 1) + column[None, :]
                there = (t < T)[:, None] & (column < stride)[None, :]
                one = tl.load(error, mask=there, other=0.0)
                if SPLIT:
                    low = tl.load(error + stride, mask=there, other=0.0)
                    high_weight, low_weight = _halves(weight)
                    d = _three_products(high_weight, low_weight, one, low, d)
                else:
                    d = tl.dot(weight, one, d, input_precision=PRECISION)
            tl.store(place, old + rate * d, mask=mine)
        tl.debug_barrier()  # the next window may add to the same rows from other lanes


@triton.jit
def blocks_kernel(ids, order, n, m, columns, d, table, stride, eta, R, C, BC: tl.constexpr):
    """table[row, column] += η d, all slots (window, row) of one token in turn; what is 0 in d is not touched.

    Columns of a window are distinct where d is not 0. Rows that do not move at all have the id m, no token's.
    """
    at = tl.program_id(0)
    token = tl.load(ids + at)
    before = tl.load(ids + at - 1, mask=at > 0, other=-1)
    if (token != before) & (token < m):
        lane = tl.arange(0, BC)
        rate = tl.load(eta)
        row = table + token.to(tl.int64) * stride
        here = token
        while here == token:
            slot = tl.load(order + at)
            for first in range(0, C, BC):
                c = first + lane
                move = tl.load(d + slot * C + c, mask=c < C, other=0.0)
                column = tl.load(columns + (slot // R) * C + c, mask=c < C, other=0)
                moved = move != 0
                old = tl.load(row + column, mask=moved, other=0.0)
                tl.store(row + column, old + rate * move, mask=moved)
            tl.debug_barrier()  # the next slot may have the same column in another lane
            at += 1
            here = tl.load(ids + at, mask=at < n, other=-1)
