"""Seeing the attention that a model computes, whoever wrote it, while it runs one forward pass.

A ``TorchFunctionMode`` sees every call of ``scaled_dot_product_attention``, and every softmax over keys inside a module
that is called attention (elsewhere it may be over words); a stack of module paths says whose it is. A call is named by
its path and its number there: a module may be used several times in a pass. Nothing of size T × T is kept: the
probabilities of some queries are made from q and k when they are asked for.

    B sequences · H heads · T queries · S keys · d width of a head
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_SOFTMAX = (torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax)


class Rows(NamedTuple):
    """The attention of some queries."""

    p: Tensor  # (B, H, Q, S) probabilities, in float32 or better; NaN where all is masked
    visible: Tensor  # the same shape, or broadcasting to it: keys that may be looked at, whatever they get


@dataclass(frozen=True)
class Products:
    """What scaled_dot_product_attention was asked: softmax(scale · q kᵀ + mask) over the keys a query may see."""

    q: Tensor  # (B, H, T, d)
    k: Tensor  # (B, H′, S, d); H/H′ heads share one of keys
    scale: float
    causal: bool
    mask: Tensor | None  # broadcasts to (B, H, T, S); booleans say what is seen, numbers are added


@dataclass(frozen=True)
class AttentionCall:
    """One attention of one forward pass."""

    path: str  # of the module that computed it
    number: int  # which call of that path it was, from 0
    shape: tuple[int, int, int, int]  # B, H, T, S
    device: torch.device
    _rows: Callable[[Tensor], Rows]
    products: Products | None = None  # where it is nothing but these: a kernel may start from them

    @property
    def kind(self) -> str:
        """self where there are as many keys as queries, else cross."""
        return "self" if self.shape[2] == self.shape[3] else "cross"

    def rows(self, queries: Tensor) -> Rows:
        """Those of some query positions (Q,)."""
        return self._rows(queries)


Sink = Callable[[AttentionCall], None]


class Watching(TorchFunctionMode):
    """Hands every attention to ``sink`` as it is computed, and computes it as if nobody looked."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink
        self.stack: list[tuple[str, bool]] = []  # paths of the modules at work, and whether they are attention by name
        self.calls: Counter[str] = Counter()
        self.heads: int | None = None  # where torch's own attention has folded them into the batch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            return self._inside(func, args, kwargs)
        if func is F.scaled_dot_product_attention:
            self._seen(args[0] if args else kwargs["query"], *_of_products(*args, **kwargs))
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in _SOFTMAX and any(named for _, named in self.stack) and _over_keys(result, args, kwargs):
            self._seen(result, *_of_probabilities(result, self.heads))
        return result

    def _inside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Torch's own attention is one function that hides what is inside: run it with the mode on.

        It would hand itself to the mode again, so its question whether there is one is answered with no.
        """
        self.heads = kwargs.get("num_heads", args[4] if len(args) > 4 else None)
        functional: Any = F
        asked = functional.has_torch_function
        functional.has_torch_function = lambda tensors: False
        try:
            with self:
                return func(*args, **kwargs)
        finally:
            functional.has_torch_function, self.heads = asked, None

    def _seen(
        self,
        on: Tensor,
        shape: tuple[int, int, int, int],
        rows: Callable[[Tensor], Rows],
        products: Products | None = None,
    ) -> None:
        path = self.stack[-1][0] if self.stack else ""
        with torch.no_grad(), torch.autocast(on.device.type, enabled=False), torch._C.DisableTorchFunction():
            self.sink(AttentionCall(path, self.calls[path], shape, on.device, rows, products))
        self.calls[path] += 1


@contextmanager
def watching(model: nn.Module, sink: Sink) -> Iterator[Watching]:
    """Attention computed inside the block goes to ``sink``, with the path of the module of ``model`` that did it."""
    names = {module: name for name, module in model.named_modules()}
    mode = Watching(sink)

    def enter(module: nn.Module, args: Any) -> None:
        if module in names:
            mode.stack.append((names[module], "att" in f"{names[module]} {type(module).__name__}".lower()))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if module in names:
            mode.stack.pop()

    hooks = [nn.modules.module.register_module_forward_pre_hook(enter),
             nn.modules.module.register_module_forward_hook(leave, always_call=True)]  # fmt: skip
    try:
        with mode:
            yield mode
    finally:
        for hook in hooks:
            hook.remove()


def _of_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[tuple[int, int, int, int], Callable[[Tensor], Rows], Products]:
    """Shape and rows of ``scaled_dot_product_attention``; fewer heads of keys are shared by groups of heads."""
    q, k = (t if t.ndim == 4 else t.reshape(-1, 1, *t.shape[-2:]) for t in (query, key))  # (B, H, T, d), (B, H', S, d)
    b, h, n_queries, width = q.shape
    n_keys = k.shape[2]
    factor = 1 / math.sqrt(width) if scale is None else scale
    mask = None if attn_mask is None else attn_mask.detach()

    def rows(queries: Tensor) -> Rows:
        dtype = torch.promote_types(q.dtype, torch.float32)
        keys = k.to(dtype).repeat_interleave(h // k.shape[1], dim=1)  # (B, H, S, d)
        logits = factor * q[:, :, queries].to(dtype) @ keys.mT  # (B, H, Q, S)
        visible = torch.ones(1, 1, len(queries), n_keys, dtype=torch.bool, device=q.device)
        if is_causal:
            visible = torch.arange(n_keys, device=q.device) <= queries[:, None]
        if mask is not None:
            chosen = mask[..., queries, :] if mask.shape[-2] == n_queries else mask  # (…, Q or 1, S)
            visible = visible & (chosen if chosen.dtype == torch.bool else chosen > -torch.inf)
            logits = logits if chosen.dtype == torch.bool else logits + chosen.to(dtype)
        return Rows(torch.softmax(logits.masked_fill(~visible, -torch.inf), dim=-1), visible)

    return (b, h, n_queries, n_keys), rows, Products(q.detach(), k.detach(), factor, is_causal, mask)


def _of_probabilities(p: Tensor, heads: int | None) -> tuple[tuple[int, int, int, int], Callable[[Tensor], Rows]]:
    """Shape and rows of attention that was made by a softmax; (B·H, T, S) by ``heads``, or else as one head each."""
    whole = (p if p.ndim == 4 else p.reshape(-1, heads or 1, *p.shape[-2:])).detach()
    b, h, n_queries, n_keys = whole.shape

    def rows(queries: Tensor) -> Rows:
        some = whole[:, :, queries].to(torch.promote_types(p.dtype, torch.float32))
        return Rows(some, some > 0)  # a key that gets nothing at all cannot be told from one that is masked

    return (b, h, n_queries, n_keys), rows


def _over_keys(result: Any, args: Any, kwargs: Any) -> bool:
    """Whether a softmax is over the keys of queries: the last of three or four dimensions, and more than one key."""
    if not isinstance(result, Tensor) or result.ndim not in (3, 4) or min(result.shape[-2:]) < 2:
        return False
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return dim in (-1, result.ndim - 1)
