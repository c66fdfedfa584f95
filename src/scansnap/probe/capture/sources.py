"""Turn each way to compute attention into rows of probabilities.

B sequences · H heads · T queries · S keys · d width of a head
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available
from scansnap.probe.capture.call import (
    AttentionRows,
    CapturedAttention,
    DotProducts,
    LogitsOf,
    at_least_float32,
    visible_keys,
)


def from_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> CapturedAttention:
    """From the arguments of ``scaled_dot_product_attention``; groups of query heads may share key heads."""
    q, k = (four_dimensional(t.detach()) for t in (query, key))
    b, h, n_queries, width = q.shape
    n_keys = k.shape[2]
    factor = 1 / math.sqrt(width) if scale is None else scale
    mask = None if attn_mask is None else attn_mask.detach()
    if mask is not None and mask.ndim > 2 and query.ndim != 4:
        mask = four_dimensional(mask.expand(*query.shape[:-2], *mask.shape[-2:]))
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.masked_fill(~visible_keys(mask), -torch.inf)  # many write the smallest float instead of −∞

    @remember_last
    def masked_logits(queries: Tensor) -> tuple[Tensor, Tensor]:
        logits = attention_logits(q[:, :, queries], k, factor)
        visible = torch.ones(1, 1, len(queries), n_keys, dtype=torch.bool, device=q.device)
        if is_causal:
            visible = torch.arange(n_keys, device=q.device) <= queries[:, None]
        if mask is not None:
            chosen = mask[..., queries, :] if mask.shape[-2] == n_queries else mask  # (…, Q or 1, S)
            visible = visible & (chosen if chosen.dtype == torch.bool else chosen > -torch.inf)
            logits = logits if chosen.dtype == torch.bool else logits + chosen.to(logits.dtype)
        return logits.masked_fill(~visible, -torch.inf), visible

    def rows(queries: Tensor) -> AttentionRows:
        logits, visible = masked_logits(queries)
        return AttentionRows(torch.softmax(logits, dim=-1), visible)

    k = k.expand(b, -1, -1, -1)
    products = DotProducts(q, k, factor, is_causal, mask)
    return CapturedAttention(q, (b, h, n_queries, n_keys), rows, products, masked_logits, q, k, value.shape[-1])


def from_softmax(
    p: Tensor, logits: Tensor | None, heads: int | None, sink: bool, factors: tuple[Tensor, Tensor] | None = None
) -> CapturedAttention:
    """From the result of a softmax over keys; (B·H, T, S) is split by ``heads``, or has one head.

    logits   its argument; None if it was overwritten
    sink     whether the last column is no key
    factors  the queries and keys (…, T, d) whose product the logits are, if known
    """
    weights, scores = (None if t is None else four_dimensional(t.detach(), heads) for t in (p, logits))
    assert weights is not None
    b, h, n_queries, n_columns = weights.shape
    n_keys = n_columns - sink

    def rows(queries: Tensor) -> AttentionRows:
        some = weights[:, :, queries].to(at_least_float32(p))
        visible = ~(some <= 0) if scores is None else visible_keys(scores[:, :, queries])
        return AttentionRows(some[..., :n_keys], visible[..., :n_keys])

    def masked_logits(queries: Tensor) -> tuple[Tensor, Tensor]:
        assert scores is not None
        some = scores[:, :, queries].to(at_least_float32(p))
        visible = visible_keys(some)
        return some.masked_fill(~visible, -torch.inf)[..., :n_keys], visible[..., :n_keys]

    q, k = (None, None) if factors is None else (four_dimensional(t.detach(), heads) for t in factors)
    if q is not None and k is not None:
        fits = q.shape[:3] == (b, h, n_queries) and k.shape[0] in (1, b) and k.shape[2] in (n_keys, n_columns)
        q, k = (q, k[:, :, :n_keys].expand(b, -1, -1, -1)) if fits and h % k.shape[1] == 0 else (None, None)
    masked = None if scores is None else masked_logits
    return CapturedAttention(weights, (b, h, n_queries, n_keys), rows, None, masked, q, k)


def from_scores(
    query: Tensor,
    key: Tensor,
    scale: float,
    modify: Callable[[Tensor, Tensor], Tensor],
    sinks: Tensor | None = None,
    value_width: int | None = None,
) -> CapturedAttention:
    """From logits ``modify(scale · q kᵀ, queries)``: capped, biased, masked by −∞ or the smallest float.

    sinks  (H,) logits of a sink that is no key
    """
    q, k = query.detach(), key.detach()
    b, h, n_queries, _ = q.shape

    @remember_last
    def masked_logits(queries: Tensor) -> tuple[Tensor, Tensor]:
        logits = modify(attention_logits(q[:, :, queries], k, scale), queries)
        visible = visible_keys(logits)
        return logits.masked_fill(~visible, -torch.inf), visible

    def rows(queries: Tensor) -> AttentionRows:
        logits, visible = masked_logits(queries)
        if sinks is None:
            return AttentionRows(torch.softmax(logits, dim=-1), visible)
        extra = sinks.detach().to(logits.dtype).reshape(1, h, 1, 1).expand(b, h, len(queries), 1)
        return AttentionRows(torch.softmax(torch.cat([logits, extra], dim=-1), dim=-1)[..., :-1], visible)

    return CapturedAttention(q, (b, h, n_queries, k.shape[2]), rows, None, masked_logits, q, k, value_width)


def remember_last(function: LogitsOf) -> LogitsOf:
    """The same function, which does not compute twice in a row for the same queries."""
    last: list[Any] = [None, None]

    def remembered(queries: Tensor) -> tuple[Tensor, Tensor]:
        if last[0] is not queries:
            last[:] = [None, None]  # free the memory first
            last[:] = queries, function(queries)
        return last[1]

    return remembered


def attention_logits(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """scale · q kᵀ (B, H, Q, S) from (B, H, Q, d) and (B, H′, S, d): query heads of a key head are rows of one."""
    b, h, n, d = q.shape
    if q.is_cuda and q.dtype == k.dtype != torch.float64 and triton_available():
        from scansnap.kernels.cuda import attention  # it does not use TF32

        return attention.logits(q, k, scale, torch.arange(n, device=q.device))
    dtype = at_least_float32(q)
    folded = (scale * q.to(dtype)).reshape(b, k.shape[1], -1, d)
    return (folded @ k.to(dtype).mT).reshape(b, h, n, -1)


def four_dimensional(tensor: Tensor, heads: int | None = None) -> Tensor:
    """(B, H, T, ·): groups of heads are flattened, and (B·H, T, ·) is split by ``heads``."""
    if tensor.ndim > 4:
        return tensor.flatten(1, -3)
    return tensor if tensor.ndim == 4 else tensor.reshape(-1, heads or 1, *tensor.shape[-2:])


def from_flex(args: tuple[Any, ...], sinks: Tensor | None) -> CapturedAttention:
    """From the arguments of the ``flex_attention`` operator: score_mod and mask_mod are evaluated at some queries."""
    q, k, v, score_mod, block_mask, scale, *_ = args
    k = k.expand(len(q), -1, -1, -1)

    def modify(scores: Tensor, queries: Tensor) -> Tensor:
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

        n_batch, n_heads, _, n_keys = scores.shape
        b, h, n = (torch.arange(size, device=scores.device) for size in (n_batch, n_heads, n_keys))
        with torch._C._EnableTorchFunction(), TransformGetItemToIndex():  # score_mod may index a table
            scores = _vmap_all(score_mod, True)(scores, b, h, queries, n)
            visible = _vmap_all(block_mask[-1], False)(b, h, queries, n)
        return scores.masked_fill(~visible, -torch.inf)

    return from_scores(q, k, scale, modify, sinks, v.shape[-1])


def _vmap_all(function: Callable[..., Tensor], scores: bool) -> Callable[..., Tensor]:
    """A function of one sequence, head, query and key, applied to all; with the score first if ``scores``."""
    first = (0,) if scores else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*first, *dims))
    return function


def flex_in_blocks(flex: Callable[..., Any], args: tuple[Any, ...], block: int) -> Any:
    """The operator's own result, some queries at a time: uncompiled it holds all weights at once."""
    q, k, v, score_mod, block_mask, *rest = args
    b, h, n_queries, _ = q.shape
    size = max(1, block // (b * h * k.shape[2]))
    if size >= n_queries:
        return flex(*args)

    def shift(function: Callable[..., Tensor], start: int, query: int) -> Callable[..., Tensor]:
        return lambda *at: function(*at[:query], at[query] + start, *at[query + 1 :])

    parts = [
        flex(q[:, :, start : start + size], k, v, shift(score_mod, start, 3),
             (*block_mask[:-1], shift(block_mask[-1], start, 2)), *rest)
        for start in range(0, n_queries, size)
    ]  # fmt: skip
    return tuple(torch.cat(part, dim=2) for part in zip(*parts, strict=True))


def from_flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
) -> CapturedAttention:
    """From the arguments of flash-attn's operator, (B, T, H, d): the last query is at the last key."""
    query, key, value = (t.detach().transpose(1, 2) for t in (q, k, v))
    n_queries, n_keys = query.shape[2], key.shape[2]
    scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    if not softcap and alibi_slopes is None and max(window_size_left, window_size_right) < 0 and n_queries == n_keys:
        return from_sdpa(query, key, value, is_causal=causal, scale=scale)
    right = 0 if causal else window_size_right

    def modify(scores: Tensor, queries: Tensor) -> Tensor:
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        ahead = torch.arange(n_keys, device=scores.device) - (queries[:, None] + n_keys - n_queries)
        if alibi_slopes is not None:  # (H,) or (B, H)
            scores = scores - alibi_slopes[..., None, None] * ahead.abs()
        scores = scores.masked_fill(ahead > right, -torch.inf) if right >= 0 else scores
        return scores.masked_fill(ahead < -window_size_left, -torch.inf) if window_size_left >= 0 else scores

    return from_scores(query, key, scale, modify, value_width=value.shape[-1])
