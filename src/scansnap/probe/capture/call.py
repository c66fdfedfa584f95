"""One captured attention: its module, its shape, and the probabilities of chosen queries on request.

Nothing of size T × T is stored.

    B sequences · H heads · T queries · S keys · d width of a head
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

MASKED = 9000.0  # masks add −10 000 or less; a position bias adds more than −9 000

Shape = tuple[int, int, int, int]  # B, H, T, S
LogitsOf = Callable[[Tensor], tuple[Tensor, Tensor]]  # of query positions: logits, −∞ at hidden keys; visible keys


class AttentionRows(NamedTuple):
    """The attention of some queries.

    Rows sum to one. With a sink logit that is no key (gpt-oss) they sum to the share of the keys.
    """

    p: Tensor  # (B, H, Q, S) probabilities, in float32 or better; NaN in rows that are fully masked
    visible: Tensor  # broadcasts to the same shape: keys that are not masked


@dataclass(frozen=True)
class DotProducts:
    """The arguments of scaled_dot_product_attention: softmax(scale · q kᵀ + mask) over the visible keys."""

    q: Tensor  # (B, H, T, d)
    k: Tensor  # (B, H′, S, d); H/H′ query heads share a key head
    scale: float
    causal: bool
    mask: Tensor | None  # broadcasts to (B, H, T, S): True is visible; floats are added, −∞ masks


@dataclass(frozen=True)
class AttentionCall:
    """A captured attention with the module that computed it."""

    path: str  # of the module
    number: int  # of the call on that path, from 0
    shape: Shape
    device: torch.device
    _rows: Callable[[Tensor], AttentionRows]
    products: DotProducts | None = None  # if a kernel can start from them
    _logits: LogitsOf | None = None
    q: Tensor | None = None  # (B, H, T, d)
    k: Tensor | None = None  # (B, H′, S, d)
    input: Tensor | None = None  # of the module, if it takes one by position
    is_cross: bool = False  # keys are of another sequence, even if there are as many as queries
    padding: Tensor | None = None  # (B, T) 0 at queries that are padding and see no key

    @property
    def kind(self) -> str:
        """``self`` if the keys are the queries' own positions, else ``cross``."""
        return "cross" if self.is_cross or self.shape[2] != self.shape[3] else "self"

    def rows(self, queries: Tensor) -> AttentionRows:
        """The rows of query positions (Q,)."""
        rows = self._rows(queries)
        if self.padding is None:
            return rows
        return AttentionRows(rows.p, rows.visible & (self.padding[:, None, queries, None] != 0))

    def logits(self, queries: Tensor) -> tuple[Tensor, Tensor] | None:
        """The logits (B, H, Q, S) of query positions, −∞ at hidden keys, and which keys are visible (broadcasts).

        They are what the softmax takes: scaled, capped, and with the position bias. None if only probabilities are
        known.
        """
        if self._logits is None:
            return None
        logits, visible = self._logits(queries)
        if self.padding is None:
            return logits, visible
        real = self.padding[:, None, queries, None] != 0
        return logits.masked_fill(~real, -torch.inf), visible & real

    def without_padding(self, padding: Tensor) -> AttentionCall:
        """The same attention; queries see no key where ``padding`` (B, T) is 0."""
        padding = padding.to(self.device)
        real, products = padding[:, None, :, None] != 0, self.products
        if products is not None:
            mask = products.mask
            if mask is not None:
                real = mask & real if mask.dtype == torch.bool else mask.masked_fill(~real, -torch.inf)
            products = replace(products, mask=real)
        return replace(self, padding=padding, products=products)


class CapturedAttention(NamedTuple):
    """An attention before its module is known."""

    reference: Tensor  # on the device of the attention
    shape: Shape
    rows: Callable[[Tensor], AttentionRows]
    products: DotProducts | None = None
    logits: LogitsOf | None = None
    q: Tensor | None = None
    k: Tensor | None = None
    value_width: int | None = None  # of a head; None: not known yet


def visible_keys(added: Tensor) -> Tensor:
    """Which keys are not masked, from logits or from an additive mask (…, S).

    A weight of zero is no evidence: sharp attention gives it to visible keys. Masked logits are far below the others of
    their row, or at the end of the range in a fully masked row. In a row with NaN or +∞ all keys without a mask count,
    so that the row is not mistaken for a masked one.
    """
    lowest = torch.finfo(added.dtype).min / 2
    most = added.amax(-1, keepdim=True).to(at_least_float32(added))
    threshold = torch.where(most < torch.inf, most - MASKED, -torch.inf).clamp_min(lowest)
    return ~(added <= threshold)  # true for NaN


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The dtype for statistics of a tensor."""
    return torch.promote_types(tensor.dtype, torch.float32)
