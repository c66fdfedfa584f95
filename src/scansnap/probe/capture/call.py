"""One attention that was seen: where, of what shape, and the probabilities of some queries when they are asked for.

Nothing of size T × T is kept.

    B sequences · H heads · T queries · S keys · d width of a head
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

HIDES = 9000.0  # masks add −10 000 or less; a bias that is meant to be seen through adds less

Shape = tuple[int, int, int, int]  # B, H, T, S


class Rows(NamedTuple):
    """The attention of some queries.

    Rows add up to one, but for attention with a sink of its own (gpt-oss), an extra logit that takes a share and is no
    key: there they add up to what the keys get, as in the model's own maps.
    """

    p: Tensor  # (B, H, Q, S) probabilities, in float32 or better; NaN where all is masked
    visible: Tensor  # the same shape, or broadcasting to it: keys that may be looked at, whatever they get


@dataclass(frozen=True)
class Products:
    """What scaled_dot_product_attention was asked: softmax(scale · q kᵀ + mask) over the keys a query may see."""

    q: Tensor  # (B, H, T, d)
    k: Tensor  # (B, H′, S, d); H/H′ heads share one of keys
    scale: float
    causal: bool
    mask: Tensor | None  # broadcasts to (B, H, T, S); booleans say what is seen, numbers are added and −∞ hides


@dataclass(frozen=True)
class AttentionCall:
    """One attention of one forward pass."""

    path: str  # of the module that computed it
    number: int  # which call of that path it was, from 0
    shape: Shape
    device: torch.device
    _rows: Callable[[Tensor], Rows]
    products: Products | None = None  # where it is nothing but these: a kernel may start from them
    to_others: bool = False  # keys are of another sequence, though they may be as many

    @property
    def kind(self) -> str:
        """self where the keys are the queries' own positions, else cross."""
        return "cross" if self.to_others or self.shape[2] != self.shape[3] else "self"

    def rows(self, queries: Tensor) -> Rows:
        """Those of some query positions (Q,)."""
        return self._rows(queries)


class Seen(NamedTuple):
    """An attention before it is known whose it is."""

    on: Tensor  # on the device where it is computed
    shape: Shape
    rows: Callable[[Tensor], Rows]
    products: Products | None = None


def not_hidden(added: Tensor) -> Tensor:
    """Which keys may be looked at, from logits or from what is added to them (…, S).

    A weight of zero does not tell: attention that has snapped gives it to keys that it may look at. Masks are far below
    anything else in their row, and a row in which nothing is left is at the end of the range.
    """
    lowest = torch.finfo(added.dtype).min / 2
    return added > (added.amax(-1, keepdim=True).to(at_least_float32(added)) - HIDES).clamp_min(lowest)


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The precision in which its attention is looked at."""
    return torch.promote_types(tensor.dtype, torch.float32)
