"""The ways in which a model computes attention, each turned into rows of probabilities.

B sequences · H heads · T queries · S keys · d width of a head
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available
from scansnap.probe.capture.call import Products, Rows, Seen, at_least_float32, not_hidden


def of_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Seen:
    """``scaled_dot_product_attention``; fewer heads of keys are shared by groups of heads."""
    q, k = (four_dimensional(t.detach()) for t in (query, key))
    b, h, n_queries, width = q.shape
    n_keys = k.shape[2]
    factor = 1 / math.sqrt(width) if scale is None else scale
    mask = None if attn_mask is None else attn_mask.detach()
    if mask is not None and mask.ndim > 2 and query.ndim != 4:
        mask = four_dimensional(mask.expand(*query.shape[:-2], *mask.shape[-2:]))
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.masked_fill(~not_hidden(mask), -torch.inf)  # many write the lowest number there is

    def rows(queries: Tensor) -> Rows:
        logits = products(q[:, :, queries], k, factor)
        visible = torch.ones(1, 1, len(queries), n_keys, dtype=torch.bool, device=q.device)
        if is_causal:
            visible = torch.arange(n_keys, device=q.device) <= queries[:, None]
        if mask is not None:
            chosen = mask[..., queries, :] if mask.shape[-2] == n_queries else mask  # (…, Q or 1, S)
            visible = visible & (chosen if chosen.dtype == torch.bool else chosen > -torch.inf)
            logits = logits if chosen.dtype == torch.bool else logits + chosen.to(logits.dtype)
        return Rows(torch.softmax(logits.masked_fill(~visible, -torch.inf), dim=-1), visible)

    k = k.expand(b, -1, -1, -1)
    return Seen(q, (b, h, n_queries, n_keys), rows, Products(q, k, factor, is_causal, mask))


def of_softmax(p: Tensor, logits: Tensor | None, heads: int | None, sink: bool) -> Seen:
    """A softmax over keys; (B·H, T, S) by ``heads``, or else as one head each.

    logits  what it was taken of, None where that is no longer there
    sink    whether the last column is no key
    """
    whole, before = (None if t is None else four_dimensional(t.detach(), heads) for t in (p, logits))
    assert whole is not None
    b, h, n_queries, n_columns = whole.shape
    n_keys = n_columns - sink

    def rows(queries: Tensor) -> Rows:
        some = whole[:, :, queries].to(at_least_float32(p))
        seen = some > 0 if before is None else not_hidden(before[:, :, queries])
        return Rows(some[..., :n_keys], seen[..., :n_keys])

    return Seen(whole, (b, h, n_queries, n_keys), rows)


def of_scores(
    query: Tensor,
    key: Tensor,
    scale: float,
    changed: Callable[[Tensor, Tensor], Tensor],
    sinks: Tensor | None = None,
) -> Seen:
    """Attention whose logits are ``changed(scale · q kᵀ, queries)``: capped, biased, masked by −∞ or the lowest number.

    sinks  (H,) logits of a sink that is no key
    """
    q, k = query.detach(), key.detach()
    b, h, n_queries, _ = q.shape

    def rows(queries: Tensor) -> Rows:
        logits = changed(products(q[:, :, queries], k, scale), queries)
        visible = not_hidden(logits)
        logits = logits.masked_fill(~visible, -torch.inf)
        if sinks is None:
            return Rows(torch.softmax(logits, dim=-1), visible)
        extra = sinks.detach().to(logits.dtype).reshape(1, h, 1, 1).expand(b, h, len(queries), 1)
        return Rows(torch.softmax(torch.cat([logits, extra], dim=-1), dim=-1)[..., :-1], visible)

    return Seen(q, (b, h, n_queries, k.shape[2]), rows)


def products(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """scale · q kᵀ (B, H, Q, S) from (B, H, Q, d) and (B, H′, S, d): heads that share keys are rows of one product."""
    b, h, n, d = q.shape
    if q.is_cuda and q.dtype == k.dtype != torch.float64 and triton_available():
        from scansnap.kernels.cuda import attention  # whose products are float32's own where the user allows TF32

        return attention.logits(q, k, scale, torch.arange(n, device=q.device))
    dtype = at_least_float32(q)
    folded = (scale * q.to(dtype)).reshape(b, k.shape[1], -1, d)
    return (folded @ k.to(dtype).mT).reshape(b, h, n, -1)


def four_dimensional(tensor: Tensor, heads: int | None = None) -> Tensor:
    """(B, H, T, ·): groups of heads are heads; what is folded into one dimension is sequences × ``heads``."""
    if tensor.ndim > 4:
        return tensor.flatten(1, -3)
    return tensor if tensor.ndim == 4 else tensor.reshape(-1, heads or 1, *tensor.shape[-2:])


def of_flex(args: tuple[Any, ...], sinks: Tensor | None) -> Seen:
    """``flex_attention``, from the arguments of the operator: score_mod and mask_mod are asked about some queries."""
    q, k, _, score_mod, block_mask, scale, *_ = args
    k = k.expand(len(q), -1, -1, -1)

    def changed(scores: Tensor, queries: Tensor) -> Tensor:
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

        n_batch, n_heads, _, n_keys = scores.shape
        b, h, n = (torch.arange(size, device=scores.device) for size in (n_batch, n_heads, n_keys))
        with torch._C._EnableTorchFunction(), TransformGetItemToIndex():  # table[index] of an index that vmap hides
            new = _at_each(score_mod, True)(scores, b, h, queries, n)
            seen = _at_each(block_mask[-1], False)(b, h, queries, n)
        return new.masked_fill(~seen, -torch.inf)

    return of_scores(q, k, scale, changed, sinks)


def _at_each(function: Callable[..., Tensor], scores: bool) -> Callable[..., Tensor]:
    """A function of one sequence, head, query and key at all of them, with the score there if it wants it."""
    first = (0,) if scores else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*first, *dims))
    return function


def by_blocks(flex: Callable[..., Any], args: tuple[Any, ...], block: int) -> Any:
    """The operator's own result, some queries at a time: not compiled it makes all weights at once."""
    q, k, v, score_mod, block_mask, *rest = args
    b, h, n_queries, _ = q.shape
    size = max(1, block // (b * h * k.shape[2]))
    if size >= n_queries:
        return flex(*args)

    def moved(function: Callable[..., Tensor], start: int, query: int) -> Callable[..., Tensor]:
        return lambda *at: function(*at[:query], at[query] + start, *at[query + 1 :])

    parts = [
        flex(q[:, :, start : start + size], k, v, moved(score_mod, start, 3),
             (*block_mask[:-1], moved(block_mask[-1], start, 2)), *rest)
        for start in range(0, n_queries, size)
    ]  # fmt: skip
    return tuple(torch.cat(part, dim=2) for part in zip(*parts, strict=True))


def of_flash(
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
) -> Seen:
    """The operator of the package flash-attn, on (B, T, H, d): the last query stands at the last key."""
    query, key, value = (t.detach().transpose(1, 2) for t in (q, k, v))
    n_queries, n_keys = query.shape[2], key.shape[2]
    scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    if not softcap and alibi_slopes is None and max(window_size_left, window_size_right) < 0 and n_queries == n_keys:
        return of_products(query, key, value, is_causal=causal, scale=scale)
    right = 0 if causal else window_size_right

    def changed(scores: Tensor, queries: Tensor) -> Tensor:
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        ahead = torch.arange(n_keys, device=scores.device) - (queries[:, None] + n_keys - n_queries)
        if alibi_slopes is not None:  # (H,) or (B, H)
            scores = scores - alibi_slopes[..., None, None] * ahead.abs()
        scores = scores.masked_fill(ahead > right, -torch.inf) if right >= 0 else scores
        return scores.masked_fill(ahead < -window_size_left, -torch.inf) if window_size_left >= 0 else scores

    return of_scores(query, key, scale, changed)
