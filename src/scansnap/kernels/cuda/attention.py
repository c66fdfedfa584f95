"""Statistics of rows of attention on CUDA in two launches: logits of the chosen queries, then a program for each row.

A row stays in registers while everything is taken from it, so that nothing of size queries × keys is read twice. The
torch version is ``scansnap.probe.statistics.plain``; a test holds them equal. Nothing is added atomically: each row
writes its own line, and torch adds the lines. Triton comes with CUDA builds of torch; this module is imported only
where it is.

    B sequences · H heads · T queries, Q of them looked at · S keys · d width of a head
"""

# mypy: ignore-errors
# (Triton's language is not Python's types)

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 16384  # keys of a row that registers hold
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
N_DECILES = 10
N_LINES = 14 + N_DECILES + 1  # the lines of ``probe.statistics``: statistics, deciles, distinctness


class Keys(NamedTuple):
    """What is known of the keys, (B, S) each and contiguous; None where it is not."""

    tokens: Tensor | None  # int32
    decile: Tensor | None  # int32, −1 where unknown
    distinctness: Tensor | None  # float32, NaN where unknown


class Sample(NamedTuple):
    """Where rows are written whole."""

    place: Tensor  # (Q,) int32, of a query's row; −1: nowhere
    p: Tensor  # (B, H, q, S) float32
    visible: Tensor  # (B, H, q, S) booleans


def logits(q: Tensor, k: Tensor, scale: float, queries: Tensor) -> Tensor:
    """scale · q kᵀ of the queries at these positions, (B, H, Q, S) in float32; groups of heads may share keys.

    q (B, H, T, d) and k (B, H′, S, d) have the same type, one of DTYPES, and any strides. Products are float32's own,
    whatever the user lets matrix products be made in.
    """
    b, h, _, width = q.shape
    k = k.expand(b, -1, -1, -1)
    n, s = len(queries), k.shape[2]
    out = torch.empty(b, h, n, s, dtype=torch.float32, device=q.device)
    tile_q, tile_s = 16, 64
    grid = (b * h, triton.cdiv(n, tile_q), triton.cdiv(s, tile_s))
    with torch.cuda.device(q.device):
        _logits[grid](
            q, k, queries, out, n, s, h, h // k.shape[1], width, float(scale), *q.stride(), *k.stride(),
            BQ=tile_q, BS=tile_s, BD=max(16, min(64, triton.next_power_of_2(width))), num_warps=4,
        )  # fmt: skip
    return out


def row_sums(
    weights: Tensor, queries: Tensor, causal: bool, mask: Tensor | None, keys: Keys, sample: Sample, made: bool
) -> Tensor:
    """(line, B, H, 3) in float64: over the queries the sum, that of uniform attention, and how many count.

    weights  (B, H, Q, S) float32, contiguous: logits, or probabilities if they are ``made``
    queries  (Q,) int64, their positions
    mask     to be added to the logits, or booleans that say what is seen; of shape (B, H, T, S), or (B, H, Q, S) where
             the probabilities are made; any strides
    """
    b, h, n, s = weights.shape
    block = max(32, triton.next_power_of_2(s))
    out = torch.zeros(b, h, n, N_LINES, 3, dtype=torch.float32, device=weights.device)
    kind = 0 if mask is None else 1 if mask.dtype == torch.bool else 2
    mask_data = weights if mask is None else mask.view(torch.int8) if kind == 1 else mask
    strides = (0, 0, 0, 0) if mask is None else mask.stride()
    key_data = [weights if key is None else key for key in keys]  # a pointer that is not read
    with torch.cuda.device(weights.device):
        _rows[(b * h * n,)](
            weights, queries, mask_data, *key_data, sample.place, sample.p, sample.visible.view(torch.int8), out,
            n, s, h, sample.p.shape[2], *strides,
            CAUSAL=causal, MASK=kind, MADE=made, TOKENS=keys.tokens is not None, DECILE=keys.decile is not None,
            SCORE=keys.distinctness is not None, LINES=N_LINES, DECILES=N_DECILES, BLOCK=block,
            num_warps=min(16, max(1, block // 512)),
        )  # fmt: skip
    return out.sum(2, dtype=torch.float64).permute(2, 0, 1, 3)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "heads", "group"])
def _logits(
    q, k, queries, out, n_queries, n_keys, heads, group, width, scale,
    q_b, q_h, q_t, q_d, k_b, k_h, k_s, k_d,
    BQ: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    b, h = place // heads, place % heads
    i = tl.program_id(1) * BQ + tl.arange(0, BQ)
    s = tl.program_id(2) * BS + tl.arange(0, BS)
    d = tl.arange(0, BD)
    t = tl.load(queries + i, mask=i < n_queries, other=0).to(tl.int64)
    q_row = q + b * q_b + h * q_h + t[:, None] * q_t
    k_row = k + b * k_b + (h // group) * k_h + s[None, :].to(tl.int64) * k_s
    acc = tl.zeros([BQ, BS], dtype=tl.float32)
    for first in range(0, width, BD):
        at = first + d
        left = tl.load(q_row + at[None, :] * q_d, mask=(i < n_queries)[:, None] & (at < width)[None, :], other=0.0)
        right = tl.load(k_row + at[:, None] * k_d, mask=(s < n_keys)[None, :] & (at < width)[:, None], other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    to = out + (place * n_queries + i[:, None]) * n_keys + s[None, :]
    tl.store(to, acc * scale, mask=(i < n_queries)[:, None] & (s < n_keys)[None, :])


@triton.jit
def _on(p, keys):
    """Attention on some keys, and how many they are."""
    return tl.sum(tl.where(keys, p, 0.0), 0), tl.sum(keys.to(tl.int32), 0)


@triton.jit
def _put(out, line, value, uniform, counts):
    tl.store(out + 3 * line, tl.where(counts, value, 0.0))
    tl.store(out + 3 * line + 1, tl.where(counts, uniform, 0.0))
    tl.store(out + 3 * line + 2, counts.to(tl.float32))


@triton.jit
def _needed(p, share):
    """How many keys the smallest set with this share of the weight has.

    The weight of its last key is found bit by bit: positive floats are in the order of their bits. Of keys with just
    that weight only as many are taken as it needs.
    """
    mass = share * tl.sum(p, 0)
    bits = p.to(tl.int32, bitcast=True)
    low = tl.sum(bits * 0, 0)
    high = low + 0x40000000  # 2.0, above every weight
    for _ in range(30):
        middle = (low + high) >> 1
        enough = tl.sum(tl.where(bits >= middle, p, 0.0), 0) >= mass
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    above, n_above = _on(p, bits > low)
    n_equal = tl.sum((bits == low).to(tl.int32), 0).to(tl.float32)
    last = tl.maximum(low.to(tl.float32, bitcast=True), 1e-37)
    return n_above.to(tl.float32) + tl.maximum(tl.minimum(tl.ceil((mass - above) / last), n_equal), 1.0)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "heads", "n_sampled"])
def _rows(
    weights, queries, mask, tokens, decile, distinctness, sampled, sample, sample_visible, out,
    n_queries, n_keys, heads, n_sampled, m_b, m_h, m_t, m_s,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, MADE: tl.constexpr, TOKENS: tl.constexpr, DECILE: tl.constexpr,
    SCORE: tl.constexpr, LINES: tl.constexpr, DECILES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i, place = row % n_queries, row // n_queries
    b, h = place // heads, place % heads
    t = tl.load(queries + i)
    s = tl.arange(0, BLOCK)
    visible = s < n_keys
    x = tl.load(weights + row * n_keys + s, mask=visible, other=-float("inf"))
    if MASK:
        if MADE:
            seen = tl.load(mask + b * m_b + h * m_h + i * m_t + s * m_s, mask=visible, other=0)
        else:
            seen = tl.load(mask + b * m_b + h * m_h + t * m_t + s * m_s, mask=visible, other=0)
        if MASK == 1:
            visible = visible & (seen != 0)
        else:
            visible = visible & (seen > -float("inf"))
            x = x + seen.to(tl.float32)
    if CAUSAL:
        visible = visible & (s <= t)
    inside = s < n_keys
    if MADE:
        e = tl.where(inside, x, 0.0)
        total = tl.sum(e, 0)  # not finite where a weight is not
        good = (total >= 0) & (total < float("inf"))
        p = tl.where(good, e, 0.0)
    else:
        x = tl.where(visible, x, -float("inf"))
        e = tl.where(visible, tl.exp(x - tl.max(x, 0)), 0.0)
        total = tl.sum(e, 0)
        good = (total > 0) & (total < float("inf"))
        p = tl.where(good, e / total, 0.0)
    slot = tl.load(sampled + i)
    if slot >= 0:
        at = (place * n_sampled + slot) * n_keys + s
        tl.store(sample + at, p, mask=inside)
        tl.store(sample_visible + at, visible.to(tl.int8), mask=inside)

    n_visible = tl.sum(visible.to(tl.int32), 0)
    counts = good & (n_visible > 1)
    n = tl.maximum(n_visible, 1).to(tl.float32)
    out += row * (3 * LINES)
    entropy = tl.sum(tl.where(p > 0, -p * tl.log(tl.where(p > 0, p, 1.0)), 0.0), 0)
    most = tl.log(n)
    _put(out, 0, entropy, most, counts)
    _put(out, 1, entropy / tl.maximum(most, 1e-9), 1.0, counts)
    _put(out, 2, tl.exp(entropy), n, counts)
    _put(out, 3, tl.max(p, 0), 1.0 / n, counts)
    _put(out, 4, _needed(p, 0.949999) / n, tl.ceil(n * 0.949999) / n, counts)
    for line in tl.static_range(5, 8):
        if line == 5:
            keys = visible & (s == 0)
        elif line == 6:
            keys = visible & (s == t)
        else:
            keys = visible & (s == t - 1)
        value, n_keys_on = _on(p, keys)
        _put(out, line, value, n_keys_on / n, counts & (n_keys_on > 0))
    if TOKENS:
        there = tl.load(tokens + b * n_keys + s, mask=inside, other=-1)
        before = tl.load(tokens + b * n_keys + (s - 1), mask=inside & (s > 0), other=-1)
        own = tl.load(tokens + b * n_keys + t)
        following = tl.load(tokens + b * n_keys + t + 1, mask=t + 1 < n_keys, other=-1)
        for line in tl.static_range(8, 11):
            if line == 8:
                keys = visible & (there == own) & (s < t)
            elif line == 9:
                keys = visible & (before == own) & (s <= t)
            else:
                keys = visible & (there == following) & (s <= t)
            value, n_keys_on = _on(p, keys)
            _put(out, line, value, n_keys_on / n, counts & (n_keys_on > 0))
            _put(out, line + 3, value, n_keys_on / n, counts)
    if DECILE:
        group = tl.load(decile + b * n_keys + s, mask=inside, other=-1)
        for one in range(DECILES):
            value, n_keys_on = _on(p, visible & (group == one))
            _put(out, 14 + one, value, n_keys_on / n, counts)
    if SCORE:
        score = tl.load(distinctness + b * n_keys + s, mask=inside, other=float("nan"))
        known = visible & (score == score)  # it is not NaN
        score = tl.where(known, score, 0.0)
        mass, n_known = _on(p, known)
        even = tl.sum(score, 0) / tl.maximum(n_known, 1)
        _put(out, LINES - 1, tl.sum(p * score, 0) / tl.where(mass > 0, mass, 1.0), even, counts & (mass > 0))
