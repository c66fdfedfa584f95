"""Triton kernels of one update of the one-layer full-rank YZ model; text/yz/fused.py puts them together.

Nothing is added atomically: whatever adds to one number is in one program, which takes its windows (or positions) in
their order. Triton comes with CUDA builds of torch; this module is imported only where it is.

    T positions of a window, BT the power of two that holds them · M tokens, BN columns of a tile
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _norm(v, same, L2: tl.constexpr):
    """v by its token-level norm, that norm, and v summed over equal tokens."""
    if L2:
        token = tl.dot(v, same, input_precision="tf32x3")
        size = tl.sqrt(tl.sum(v * token, 1))
        size = tl.where(size > 0, size, 1.0)  # rows beyond the window
        return v / size[:, None], size, token / size[:, None]
    else:  # noqa: RET505 (Triton takes one of the two when it compiles, and only in this form)
        return v, tl.full([v.shape[0]], 1.0, tl.float32), tl.dot(v, same, input_precision="tf32x3")


@triton.jit
def _attend(
    x, z, stride,
    RESIDUAL: tl.constexpr, L2: tl.constexpr, SELF: tl.constexpr, UNIFORM: tl.constexpr,
    T: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """One window: E, b, the inner f with its norm and token sums, f with its own; see text/yz/layers.py."""
    t = tl.arange(0, BT)
    token = tl.load(x + tl.program_id(0) * T + t, mask=t < T, other=-1)
    q, k = t[:, None], t[None, :]
    inside = (q < T) & (k < T)
    same = ((token[:, None] == token[None, :]) & inside).to(tl.float32)
    keys = (((k < q) | ((k == q) & ((q == 0) | SELF))) & inside).to(tl.int1)
    if UNIFORM:
        logit = tl.where(keys, 0.0, -float("inf"))
    else:
        logit = tl.load(z + token[:, None].to(tl.int64) * stride + token[None, :], mask=keys, other=-float("inf"))
    top = tl.where(t < T, tl.max(logit, 1), 0.0)
    weight = tl.exp(logit - top[:, None])
    b = weight / tl.where(t < T, tl.sum(weight, 1), 1.0)[:, None]
    one = ((q == k) & (q < T)).to(tl.float32)
    if RESIDUAL == "normed":
        inner, inner_size, inner_token = _norm(b, same, L2)
        f, size, f_token = _norm(inner + one, same, L2)
    elif RESIDUAL == "plain":
        inner, inner_size, inner_token = b, top, b
        f, size, f_token = _norm(b + one, same, L2)
    else:
        inner, inner_size, inner_token = b, top, b
        f, size, f_token = _norm(b, same, L2)
    first = tl.sum(tl.where(q < k, same, 0.0), 0) == 0  # no earlier position holds this token
    return same, first & (t < T), b, inner, inner_size, inner_token, f, size, f_token


@triton.jit
def attend_kernel(
    x, target, z, z_stride, y, y_stride, f_out, token_out, first_out, right_out,
    RESIDUAL: tl.constexpr, L2: tl.constexpr, SELF: tl.constexpr, UNIFORM: tl.constexpr,
    T: tl.constexpr, BT: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """f (t, s); f summed over equal tokens (s, t), at the first of them; the logit of each position's next token."""
    _, first, _, _, _, _, f, _, f_token = _attend(x, z, z_stride, RESIDUAL, L2, SELF, UNIFORM, T, BT)
    window = tl.program_id(0)
    t = tl.arange(0, BT)
    place = window * BT * BT + t[:, None] * BT + t[None, :]
    tl.store(f_out + place, f)
    f_token = tl.trans(tl.where(first[None, :], f_token, 0.0))
    if SPLIT:
        high, low = _halves(f_token)
        tl.store(token_out + place, high)
        tl.store(token_out + tl.num_programs(0) * BT * BT + place, low)
    else:
        tl.store(token_out + place, f_token)
    tl.store(first_out + window * BT + t, first.to(tl.int8))
    token = tl.load(x + window * T + t, mask=t < T, other=0).to(tl.int64)
    n = tl.load(target + window * T + t, mask=t < T, other=0)
    vote = tl.load(y + token[None, :] * y_stride + n[:, None], mask=f != 0, other=0.0)
    tl.store(right_out + window * BT + t, tl.sum(f * vote, 1))


@triton.jit
def _halves(v):
    """v as two bfloat16 numbers, to 2⁻¹⁷ of it."""
    high = v.to(tl.bfloat16)
    return high, (v - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _three_products(a, a_low, b, b_low, sum):
    """(a + a_low)(b + b_low) but for the product of the low parts."""
    sum = tl.dot(a_low, b, sum)
    sum = tl.dot(a, b_low, sum)
    return tl.dot(a, b, sum)


@triton.jit
def sums_kernel(
    x, y, stride, m, f, partial, part,
    T: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, TILES: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    split, window = tl.program_id(0), tl.program_id(1)
    t, j = tl.arange(0, BT), tl.arange(0, BN)
    rows = y + tl.load(x + window * T + t, mask=t < T, other=0).to(tl.int64) * stride
    weight = tl.load(f + window * BT * BT + t[:, None] * BT + t[None, :])
    high, low = _halves(weight)
    top = tl.full([BT], -float("inf"), tl.float32)
    total = tl.zeros([BT], tl.float32)
    for tile in range(TILES):
        column = (split * TILES + tile) * BN + j
        inside = (t < T)[:, None] & (column < stride)[None, :]  # the padding of a row is zero, and in whole vectors
        votes = tl.load(rows[:, None] + column[None, :], mask=inside, other=0.0)
        if SPLIT:
            votes_high, votes_low = _halves(votes)
            logit = _three_products(high, low, votes_high, votes_low, tl.zeros([BT, BN], tl.float32))
        else:
            logit = tl.dot(weight, votes, input_precision=PRECISION)
        logit = tl.where((column < m)[None, :], logit, -float("inf"))
        higher = tl.maximum(top, tl.max(logit, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(logit - higher[:, None]), 1)
        top = higher
    place = partial + (split * tl.num_programs(1) + window) * BT + t
    tl.store(place, top)
    tl.store(place + part, total)


@triton.jit
def normalise_kernel(
    partial, part, between, splits, right, log_total, losses, T: tl.constexpr, BT: tl.constexpr, SPLITS: tl.constexpr
):
    window = tl.program_id(0)
    t, split = tl.arange(0, BT), tl.arange(0, SPLITS)
    place = partial + split[:, None] * between + window * BT + t[None, :]
    there = (split < splits)[:, None] & (t < BT)[None, :]
    tops = tl.load(place, mask=there, other=-float("inf"))
    top = tl.max(tops, 0)
    total = tl.sum(tl.load(place + part, mask=there, other=0.0) * tl.exp(tops - top[None, :]), 0)
    whole = top + tl.log(total)
    tl.store(log_total + window * BT + t, whole)
    tl.store(losses + window * T + t, whole - tl.load(right + window * BT + t), mask=t < T)


@triton.jit
def errors_kernel(
    x, target, y, stride, m, f, log_total, share, e_out, g_out, square,
    T: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, TILES: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    split, window = tl.program_id(0), tl.program_id(1)
    t, j = tl.arange(0, BT), tl.arange(0, BN)
    rows = y + tl.load(x + window * T + t, mask=t < T, other=0).to(tl.int64) * stride
    n = tl.load(target + window * T + t, mask=t < T, other=-1)
    whole = tl.load(log_total + window * BT + t)
    weight = tl.load(f + window * BT * BT + t[:, None] * BT + t[None, :])
    high, low = _halves(weight)
    out = e_out + (window * T + t).to(tl.int64) * stride * (2 if SPLIT else 1)
    g = tl.zeros([BT, BT], tl.float32)
    for tile in range(TILES):
        column = (split * TILES + tile) * BN + j
        inside = (t < T)[:, None] & (column < stride)[None, :]
        real = (t < T)[:, None] & (column < m)[None, :]
        votes = tl.load(rows[:, None] + column[None, :], mask=inside, other=0.0)
        place = out[:, None] + column[None, :]
        one = tl.where(column[None, :] == n[:, None], 1.0, 0.0)
        if SPLIT:
            votes_high, votes_low = _halves(votes)
            logit = _three_products(high, low, votes_high, votes_low, tl.zeros([BT, BN], tl.float32))
            e = tl.where(real, (one - tl.exp(logit - whole[:, None])) * share, 0.0)
            e_high, e_low = _halves(e)
            tl.store(place, e_high, mask=inside)
            tl.store(place + stride, e_low, mask=inside)
            g = _three_products(e_high, e_low, tl.trans(votes_high), tl.trans(votes_low), g)
        else:
            logit = tl.dot(weight, votes, input_precision=PRECISION)
            e = tl.where(real, (one - tl.exp(logit - whole[:, None])) * share, 0.0)
            tl.store(place, e, mask=inside)
            g = tl.dot(e, tl.trans(votes), g, input_precision=PRECISION)
    tl.store(g_out + split * square + window * BT * BT + t[:, None] * BT + t[None, :], g)


@triton.jit
def _norm_backward(g, f, size, f_token, L2: tl.constexpr):
    if L2:
        return (g - f_token * tl.sum(f * g, 1)[:, None]) / size[:, None]
    else:  # noqa: RET505
        return g


@triton.jit
def dlogits_kernel(
    x, z, stride, g_in, dz_out, token_out,
    RESIDUAL: tl.constexpr, L2: tl.constexpr, SELF: tl.constexpr, UNIFORM: tl.constexpr,
    T: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    same, first, b, inner, inner_size, inner_token, f, size, f_token = _attend(
        x, z, stride, RESIDUAL, L2, SELF, UNIFORM, T, BT
    )
    t = tl.arange(0, BT)
    place = tl.program_id(0) * BT * BT + t[:, None] * BT + t[None, :]
    d = _norm_backward(tl.load(g_in + place), f, size, f_token, L2)
    if RESIDUAL == "normed":
        d = _norm_backward(d, inner, inner_size, inner_token, L2)
    d = b * (d - tl.sum(b * d, 1)[:, None])
    tl.store(dz_out + place, d)
    tl.store(token_out + place, tl.where(first[None, :], tl.dot(d, same, input_precision="tf32x3"), 0.0))


@triton.jit
def entries_kernel(ids, order, n, x, dz, z, stride, eta, T: tl.constexpr, BT: tl.constexpr):
    """All positions of one query token in turn; their keys are distinct once equal tokens are summed."""
    at = tl.program_id(0)
    token = tl.load(ids + at)
    before = tl.load(ids + at - 1, mask=at > 0, other=-1)
    if token != before:
        s = tl.arange(0, BT)
        rate = tl.load(eta)
        row = z + token.to(tl.int64) * stride
        here = token
        while here == token:
            position = tl.load(order + at)
            window = position // T
            d = tl.load(dz + (window * BT + position % T) * BT + s)
            key = tl.load(x + window * T + s, mask=s < T, other=0)
            moved = d != 0
            old = tl.load(row + key, mask=moved, other=0.0)
            tl.store(row + key, old + rate * d, mask=moved)
            tl.debug_barrier()  # the next position may have the same key in another lane
            at += 1
            here = tl.load(ids + at, mask=at < n, other=-1)


@triton.jit
def rows_kernel(
    ids, e, stride, f_token, first, table, eta, windows,
    T: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """table[ids_s] += η Σ_t f_ts e_t for a band of columns, window after window."""
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    t = tl.arange(0, BT)
    rate = tl.load(eta)
    read = (t < T)[:, None] & (column < stride)[None, :]
    f_place = f_token + t[:, None] * BT + t[None, :]  # (s, t)
    e_place = e + t.to(tl.int64)[:, None] * stride * (2 if SPLIT else 1) + column[None, :]
    weight, tile = tl.load(f_place), tl.load(e_place, mask=read, other=0.0)
    low_half = windows * BT * BT
    if SPLIT:
        weight_low, tile_low = tl.load(f_place + low_half), tl.load(e_place + stride, mask=read, other=0.0)
    for window in range(windows):
        row = tl.load(ids + window * T + t, mask=t < T, other=0).to(tl.int64) * stride
        mine = (tl.load(first + window * BT + t) != 0)[:, None] & (column < stride)[None, :]
        place = table + row[:, None] + column[None, :]
        old = tl.load(place, mask=mine, other=0.0)
        more = window + 1 < windows  # what the next window needs is on its way while this one is worked on
        f_place += tl.where(more, BT * BT, 0)
        e_place += tl.where(more, T * stride * (2 if SPLIT else 1), 0)
        next_weight, next_tile = tl.load(f_place), tl.load(e_place, mask=read, other=0.0)
        if SPLIT:
            next_weight_low = tl.load(f_place + low_half)
            next_tile_low = tl.load(e_place + stride, mask=read, other=0.0)
            d = _three_products(weight, weight_low, tile, tile_low, tl.zeros([BT, BN], tl.float32))
            weight_low, tile_low = next_weight_low, next_tile_low
        else:
            d = tl.dot(weight, tile, input_precision=PRECISION)
        tl.store(place, old + rate * d, mask=mine)
        tl.debug_barrier()  # the next window may add to the same rows from other lanes
        weight, tile = next_weight, next_tile


@triton.jit
def move_kernel(
    token, d, table, moment_a, moment_b, stride, eta, correction, momentum, beta1, beta2, eps,
    ADAM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A touched row by momentum (a: velocity) or Adam (a: mean, b: square)."""
    group = tl.program_id(0)
    row = tl.load(token + group)
    if row >= 0:
        column = tl.program_id(1) * BN + tl.arange(0, BN)
        inside = column < stride
        place = row.to(tl.int64) * stride + column
        rate = tl.load(eta)
        step = tl.load(d + group.to(tl.int64) * stride + column, mask=inside, other=0.0)
        a = tl.load(moment_a + place, mask=inside, other=0.0)
        old = tl.load(table + place, mask=inside, other=0.0)
        if ADAM:
            square = tl.load(moment_b + place, mask=inside, other=0.0)
            a = beta1 * a + (1 - beta1) * step
            square = beta2 * square + (1 - beta2) * step * step
            spread = tl.sqrt(square / tl.load(correction + 1).to(tl.float32)) + eps
            tl.store(moment_b + place, square, mask=inside)
            move = a / tl.load(correction).to(tl.float32) / spread
        else:
            a = momentum * a + step
            move = a
        tl.store(moment_a + place, a, mask=inside)
        tl.store(table + place, old + rate * move, mask=inside)
