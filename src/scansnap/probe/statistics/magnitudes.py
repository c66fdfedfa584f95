"""How large logits, queries, keys and outputs of heads are, whatever the probabilities.

The largest logit is over all queries of the batch; it costs a product of all queries and keys, in blocks. The other
numbers are means over the measured queries (the keys' norms over all keys).

    B sequences · H heads · T queries · S keys · Q measured queries · d width of a head · D width of the model
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.probe.capture.call import AttentionCall, DotProducts, at_least_float32
from scansnap.probe.capture.dataflow import HeadOutput
from scansnap.probe.capture.sources import attention_logits

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 23}  # logits in memory at once; on a CPU they stay in its cache


def measure_magnitudes(call: AttentionCall, queries: Tensor) -> dict[str, Tensor]:
    """``max_logit``, ``logit_std``, ``q_norm`` and ``k_norm``, (H,) each; NaN if unknown."""
    h = call.shape[1]
    unknown = torch.full((h,), torch.nan, device=call.device)
    real = None if call.padding is None else call.padding != 0  # (B, T)
    logits = call.logits(queries)
    return {
        "max_logit": unknown if logits is None else largest_logit(call),
        "logit_std": unknown if logits is None else _spread(*logits),
        "q_norm": unknown if call.q is None else _mean_norm(call.q[:, :, queries], _at(real, queries)),
        "k_norm": unknown if call.k is None else _mean_norm(call.k, real).repeat_interleave(h // call.k.shape[1]),
    }


def largest_logit(call: AttentionCall) -> Tensor:
    """The largest logit of each head over all queries and their visible keys, (H,); NaN if one is NaN."""
    b, h, n_queries, n_keys = call.shape
    size = max(1, BLOCK.get(call.device.type, BLOCK["cpu"]) // (b * h * n_keys))
    products = call.products
    is_causal = products is not None and products.causal and products.mask is None and call.padding is None
    blocks = torch.arange(n_queries, device=call.device).split(size)
    maxima: list[Tensor] = []
    for i, block in enumerate(blocks):
        if products is not None and is_causal:
            maxima.append(_largest_causal(products, i * size, len(block)))
        else:
            logits = call.logits(block)
            assert logits is not None
            maxima.append(logits[0].amax((0, 2, 3)))
    most = torch.stack(maxima).amax(0)
    return most.masked_fill(most == -torch.inf, torch.nan)  # no visible keys


def _largest_causal(products: DotProducts, start: int, n: int) -> Tensor:
    """Of n queries from ``start`` on, without products with later keys."""
    q, k = products.q[:, :, start : start + n], products.k[:, :, : start + n]
    logits = attention_logits(q, k, products.scale)
    own = logits[..., start:]  # the rest is visible to all
    at = torch.arange(n, device=q.device)
    own.masked_fill_(at[: own.shape[-1]] > at[:, None], -torch.inf)
    return logits.amax((0, 2, 3))


def measure_output(output: HeadOutput, queries: Tensor, padding: Tensor | None) -> dict[str, Tensor]:
    """``output_norm`` and ``output_share``, (H,) each; the share is NaN without a residual stream."""
    values = output.values[:, queries]
    dtype = at_least_float32(values)
    weight = output.weight.to(dtype)
    gram = weight @ weight.mT  # (H, d, d)
    values = values.to(dtype).permute(2, 0, 1, 3)  # (H, B, Q, d)
    norm = ((values @ gram[:, None]) * values).sum(-1).clamp_min(0).sqrt()  # (H, B, Q)
    counts = torch.ones_like(norm[0]) if padding is None else (padding[:, queries] != 0).to(dtype)
    total = counts.sum()
    share = torch.full((len(norm),), torch.nan, device=norm.device)
    if output.residual is not None:
        stream = torch.linalg.vector_norm(output.residual[:, queries].to(dtype), dim=-1)
        share = torch.where(counts > 0, norm / stream, 0.0).sum((1, 2)) / total
    return {"output_norm": torch.where(counts > 0, norm, 0.0).sum((1, 2)) / total, "output_share": share}


def _spread(logits: Tensor, visible: Tensor) -> Tensor:
    """Standard deviation of a query's logits over its visible keys; mean over queries with more than one, (H,)."""
    n = visible.sum(-1).expand(logits.shape[:-1])
    deviation = logits.masked_fill(~visible, 0.0)
    deviation.sub_((deviation.sum(-1) / n)[..., None]).mul_(visible.to(logits.dtype))
    counts = n > 1
    spread = torch.where(counts, torch.linalg.vector_norm(deviation, dim=-1) / n.sqrt(), 0.0)
    return spread.sum((0, 2)) / counts.sum((0, 2))


def _mean_norm(vectors: Tensor, real: Tensor | None) -> Tensor:
    """Mean Euclidean norm of vectors (B, H, T, d), (H,); only of positions that are ``real`` (B, T)."""
    norms = torch.linalg.vector_norm(vectors, dim=-1, dtype=at_least_float32(vectors))
    if real is None:
        return norms.mean((0, 2))
    return torch.where(real[:, None], norms, 0.0).sum((0, 2)) / real.sum()


def _at(real: Tensor | None, queries: Tensor) -> Tensor | None:
    return None if real is None else real[:, queries]
