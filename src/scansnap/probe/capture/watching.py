"""Watching one forward pass.

A ``TorchFunctionMode`` sees every call of ``scaled_dot_product_attention``, of ``flex_attention`` and of flash-attn's
operator, and every softmax over keys inside a module that is called attention; a stack of the modules at work says
whose it is. A call is named by its path and its number there: a module may be used several times in a pass. What is
compiled runs as it was written for as long as it is watched, and keeps what was compiled.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scansnap.probe.capture.call import AttentionCall, Seen
from scansnap.probe.capture.interface import switched
from scansnap.probe.capture.modules import Modules
from scansnap.probe.capture.sources import by_blocks, of_flash, of_flex, of_products, of_softmax

_ATEN = torch.ops.aten
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_SOFTMAX = (torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax,
            _ATEN.softmax, _ATEN.softmax.int, _ATEN._softmax, _ATEN._softmax.default)  # fmt: skip
_LOOKED_AT = frozenset({F.multi_head_attention_forward, F.scaled_dot_product_attention, *_SOFTMAX})
_ORDINARY = frozenset({types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
                       types.WrapperDescriptorType, types.MethodWrapperType})  # fmt: skip
_HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads")  # what modules call their number
_OF_TORCH = ("query", "key", "value", "embed_dim_to_check", "num_heads")  # how torch's own attention begins
BLOCK = 1 << 24  # weights of a flex attention that are there at once

Sink = Callable[[AttentionCall], None]
_AT_WORK: list[Watching] = []  # of all that watch, from the first; a list, so that compiled code may ask


class Watching(TorchFunctionMode):
    """Hands every attention to ``sink`` as it is computed, and computes it as if nobody looked."""

    def __init__(self, model: nn.Module, sink: Sink) -> None:
        super().__init__()
        self.sink, self.modules = sink, Modules(model)
        self.stack: list[nn.Module] = []  # at work
        self.ran: set[str] = set()  # paths of those that have been
        self.calls: Counter[str] = Counter()  # attentions seen, by path
        self.batch: int | None = None  # sequences, as the first module that is given some has them
        self.heads: int | None = None  # where torch's own attention has folded them into the batch
        self.others = False  # whether it is given keys that are not its queries

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if type(func) in _ORDINARY and func not in _LOOKED_AT:  # nearly all of a pass, so it must cost little
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._inside(func, args, kwargs)
        if func is F.scaled_dot_product_attention:
            if not (args[0] if args else kwargs["query"]).is_nested:
                self.hand(of_products(*args, **kwargs))
            return func(*args, **kwargs)
        if isinstance(func, _OPERATORS) and str(func).startswith("flash_attn._flash_attn_forward"):
            self.hand(of_flash(*args, **kwargs))
            return func(*args, **kwargs)
        if type(func).__name__ == "FlexAttentionHOP":
            self.hand(of_flex(args, _sinks(self.stack[-1]) if self.stack else None))
            return by_blocks(func, args, BLOCK)
        result = func(*args, **kwargs)
        if func in _SOFTMAX and (attention := self.modules.attending(self.stack)) is not None:
            seen = self._over_keys(attention, result, args, kwargs)
            if seen is not None:
                self.hand(seen)
        return result

    def _inside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Torch's own attention is one function that hides what is inside: run it with the mode on.

        It would hand itself to the mode again, so its question whether there is one is answered with no.
        """
        query, key, _, _, self.heads = (*args, *(kwargs[name] for name in _OF_TORCH[len(args) :]))[:5]
        self.others = query is not key
        functional: Any = F
        asked = functional.has_torch_function
        functional.has_torch_function = lambda tensors: False
        try:
            with self:
                return func(*args, **kwargs)
        finally:
            functional.has_torch_function, self.heads, self.others = asked, None, False

    def _over_keys(self, attention: nn.Module, p: Any, args: Any, kwargs: Any) -> Seen | None:
        """A softmax, if it is over the keys of queries: the last of three dimensions or more, and more than one key.

        Of three the first may be sequences × heads; if it is not, the keys must be as many as the queries, or it could
        be over anything.
        """
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(p, Tensor) or p.ndim < 3 or dim not in (-1, p.ndim - 1):
            return None
        n_queries, n_keys = p.shape[-2:]
        sink = _sinks(attention) is not None
        heads = self.heads or next((n for name in _HEADS if isinstance(n := getattr(attention, name, None), int)), None)
        folded = p.ndim == 3 and heads and (self.heads or p.shape[0] == heads * (self.batch or 0))
        if min(n_queries, n_keys - sink) < 2 or (p.ndim == 3 and not folded and n_queries != n_keys - sink):
            return None
        logits = args[0] if args else kwargs.get("input", kwargs.get("self"))
        overwritten = kwargs.get("out") is not None or not isinstance(logits, Tensor)
        return of_softmax(p, None if overwritten else logits, heads if folded else None, sink)

    def hand(self, seen: Seen, name: str | None = None) -> None:
        """Give it to the sink, under the path of the module at work."""
        own = [module for module in self.stack if not isinstance(module, nn.Softmax)]
        path = ".".join(filter(None, [self.modules.paths[id(own[-1])] if own else "", name]))
        others = self.others or any(map(self.modules.to_others, own[-1:]))
        call = AttentionCall(path, self.calls[path], seen.shape, seen.on.device, seen.rows, seen.products, others)
        with torch.no_grad(), torch.autocast(seen.on.device.type, enabled=False), torch._C.DisableTorchFunction():
            self.sink(call)
        self.calls[path] += 1

    def enter(self, module: nn.Module, args: Any) -> None:
        if id(module) in self.modules.paths:
            self.stack.append(module)
            self.ran.add(self.modules.paths[id(module)])
            if self.batch is None and args and isinstance(args[0], Tensor) and args[0].ndim > 1:
                self.batch = len(args[0])

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if id(module) in self.modules.paths:
            self.stack.pop()


@contextmanager
def watching(model: nn.Module, sink: Sink) -> Iterator[Watching]:
    """Attention computed inside the block goes to ``sink``, with the path of the module of ``model`` that did it."""
    mode = Watching(model, sink)
    with ExitStack() as stack:
        stack.callback(nn.modules.module.register_module_forward_pre_hook(mode.enter).remove)
        stack.callback(nn.modules.module.register_module_forward_hook(mode.leave, always_call=True).remove)
        stack.callback(_AT_WORK.remove, mode)
        _AT_WORK.append(mode)
        stack.enter_context(switched(model, mode))
        stack.enter_context(as_written())
        stack.enter_context(mode)
        yield mode


@contextmanager
def as_written() -> Iterator[None]:
    """What was compiled runs uncompiled inside the block: nothing is compiled again, and nothing is lost."""
    if not {"torch._dynamo", "torch.nn.attention.flex_attention"} & set(sys.modules):  # it takes a second to import
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        for known in (
            "flex_attention called without torch.compile",
            r"Using `torch.compile\(module\)` when there are glob",
        ):
            warnings.filterwarnings("ignore", message=known)
        yield


def _sinks(module: nn.Module) -> Tensor | None:
    """Logits of a sink beside the keys, as gpt-oss keeps them."""
    sinks = getattr(module, "sinks", None)
    return sinks if isinstance(sinks, Tensor) else None


def at_work() -> Watching | None:
    """Who watches now, if anybody does."""
    return _AT_WORK[-1] if _AT_WORK else None
