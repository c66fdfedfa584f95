"""Watch one forward pass and capture its attention.

A ``TorchFunctionMode`` intercepts ``scaled_dot_product_attention``, ``flex_attention``, the operator of flash-attn, and
every softmax over keys inside an attention module. A stack of running modules, kept by hooks, gives the path. A capture
is named by path and call number, since a module may run several times in a pass. Compiled code runs eagerly meanwhile,
and stays compiled.
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

from scansnap.checks import InputError
from scansnap.probe.capture.call import AttentionCall, CapturedAttention
from scansnap.probe.capture.dataflow import ADDITIONS, LINEAR, PRODUCTS, Dataflow, HeadOutput
from scansnap.probe.capture.interface import replace_kernels
from scansnap.probe.capture.modules import Coverage, Modules
from scansnap.probe.capture.sources import flex_in_blocks, from_flash, from_flex, from_sdpa, from_softmax

_ATEN = torch.ops.aten
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_SOFTMAX = (torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax,
            _ATEN.softmax, _ATEN.softmax.int, _ATEN._softmax, _ATEN._softmax.default)  # fmt: skip
_INTERCEPTED = frozenset({F.multi_head_attention_forward, F.scaled_dot_product_attention, *_SOFTMAX,
                          *PRODUCTS, *LINEAR, *ADDITIONS})  # fmt: skip
_ORDINARY = frozenset({types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
                       types.WrapperDescriptorType, types.MethodWrapperType})  # fmt: skip
_HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads")  # attributes of modules with their number
_OF_TORCH = ("query", "key", "value", "embed_dim_to_check", "num_heads")  # the first arguments of torch's own attention
BLOCK = 1 << 24  # weights of a flex attention in memory at once

Callback = Callable[[AttentionCall], None]
OutputCallback = Callable[[HeadOutput], None]
_ACTIVE: list[AttentionWatcher] = []  # the latest is last; a list, so that compiled code can read it


class AttentionWatcher(TorchFunctionMode):
    """Passes every attention to ``callback`` while it is computed, with unchanged results.

    ``on_output`` receives what the heads of an attention add to the residual stream, later.
    """

    def __init__(self, model: nn.Module, callback: Callback, on_output: OutputCallback | None = None) -> None:
        super().__init__()
        self.callback, self.on_output, self.modules = callback, on_output, Modules(model)
        self.flow = Dataflow(self._emit)
        self.stack: list[nn.Module] = []  # running now, outermost first
        self.inputs: dict[int, Tensor] = {}  # of the modules that run
        self.ran: set[str] = set()  # paths of modules that have run
        self.calls: Counter[str] = Counter()  # captures by path
        self.batch: int | None = None  # sequences, from the input of the first module
        self.heads: int | None = None  # if torch's own attention has folded them into the batch
        self.is_cross = False  # inside torch's own attention with other keys than queries

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if type(func) in _ORDINARY and func not in _INTERCEPTED:  # nearly all calls of a pass, so this must be fast
            return func(*args, **kwargs)
        if func in LINEAR or func in ADDITIONS or func in PRODUCTS:
            self.flow.before(func, args, kwargs, self.heads is not None)
            result = func(*args, **kwargs)
            if func in PRODUCTS:
                self.flow.after(func, args, kwargs, result)
            return result
        if func is F.multi_head_attention_forward:
            return self._run_multi_head(func, args, kwargs)
        if func is F.scaled_dot_product_attention:
            if not (args[0] if args else kwargs["query"]).is_nested:
                self.capture(from_sdpa(*args, **kwargs))
            return func(*args, **kwargs)
        if isinstance(func, _OPERATORS) and str(func).startswith("flash_attn._flash_attn_forward"):
            self.capture(from_flash(*args, **kwargs))
            return func(*args, **kwargs)
        if type(func).__name__ == "FlexAttentionHOP":
            self.capture(from_flex(args, _sinks(self.stack[-1]) if self.stack else None))
            return flex_in_blocks(func, args, BLOCK)
        result = func(*args, **kwargs)
        if func in _SOFTMAX:
            captured = self._softmax_over_keys(result, args, kwargs)
            if captured is not None:
                self.capture(captured)
        return result

    def _run_multi_head(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Torch's own attention hides what it calls: run it with the mode active.

        It would dispatch itself to the mode again, so ``has_torch_function`` returns False meanwhile.
        """
        query, key, _, _, self.heads = (*args, *(kwargs[name] for name in _OF_TORCH[len(args) :]))[:5]
        self.is_cross = query is not key
        functional: Any = F
        original = functional.has_torch_function
        functional.has_torch_function = lambda tensors: False
        try:
            with self:
                return func(*args, **kwargs)
        finally:
            functional.has_torch_function, self.heads, self.is_cross = original, None, False

    def _softmax_over_keys(self, p: Any, args: Any, kwargs: Any) -> CapturedAttention | None:
        """A softmax over the last of three or more dimensions, with more than one key, that is attention.

        Its argument comes from a product of two activations (a softmax over words or experts comes from a product with
        a weight), or it is inside a module with the name of an attention. The first of three dimensions may be
        sequences × heads; if it is not, there must be as many keys as queries.
        """
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(p, Tensor) or p.ndim < 3 or dim not in (-1, p.ndim - 1):
            return None
        logits = args[0] if args else kwargs.get("input", kwargs.get("self"))
        factors = None if not isinstance(logits, Tensor) else self.flow.factors(logits)
        attention = self.modules.current_attention(self.stack)
        if attention is None and factors is not None:
            attention = next((m for m in reversed(self.stack) if not isinstance(m, nn.Softmax)), None)
        if attention is None:
            return None
        n_queries, n_keys = p.shape[-2:]
        sink = _sinks(attention) is not None
        heads = self.heads or next((n for name in _HEADS if isinstance(n := getattr(attention, name, None), int)), None)
        folded = p.ndim == 3 and heads and (self.heads or p.shape[0] == heads * (self.batch or 0))
        if min(n_queries, n_keys - sink) < 2 or (p.ndim == 3 and not folded and n_queries != n_keys - sink):
            return None
        if factors is not None and self.heads:  # torch's own attention scales the queries first
            factors = factors[0] * factors[0].shape[-1] ** 0.5, factors[1]
        overwritten = kwargs.get("out") is not None or not isinstance(logits, Tensor)
        return from_softmax(p, None if overwritten else logits, heads if folded else None, sink, factors)

    def capture(self, attention: CapturedAttention, name: str | None = None) -> None:
        """Pass an attention to the callback, under the path of the running module."""
        running = [module for module in self.stack if not isinstance(module, nn.Softmax)]
        path = ".".join(filter(None, [self.modules.paths[id(running[-1])] if running else "", name]))
        is_cross = self.is_cross or any(map(self.modules.is_cross, running[-1:]))
        call = AttentionCall(
            path,
            self.calls[path],
            attention.shape,
            attention.reference.device,
            attention.rows,
            attention.products,
            attention.logits,
            attention.q,
            attention.k,
            self.inputs.get(id(running[-1])) if running else None,
            is_cross,
        )
        with _plain_torch(attention.reference.device):
            self.callback(call)
        self.calls[path] += 1
        self.flow.add_attention(call, attention.value_width)

    def _emit(self, output: HeadOutput) -> None:
        if self.on_output is not None:
            with _plain_torch(output.values.device):
                self.on_output(output)

    def coverage(self) -> Coverage:
        """How many of the attention modules that have run were captured."""
        return Coverage.of(self.modules, self.ran, self.calls)

    def enter(self, module: nn.Module, args: Any) -> None:
        if id(module) in self.modules.paths:
            self.stack.append(module)
            self.ran.add(self.modules.paths[id(module)])
            if args and isinstance(args[0], Tensor):
                self.flow.enter(args[0])
                self.inputs[id(module)] = args[0]
                if self.batch is None and args[0].ndim > 1:
                    self.batch = len(args[0])

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if id(module) in self.modules.paths:
            self.stack.pop()
            self.inputs.pop(id(module), None)


@contextmanager
def _plain_torch(device: torch.device) -> Iterator[None]:
    """Inside the block torch computes without gradients, autocast and modes."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False), torch._C.DisableTorchFunction():
        yield


@contextmanager
def watch_attention(
    model: nn.Module, callback: Callback, on_output: OutputCallback | None = None
) -> Iterator[AttentionWatcher]:
    """Inside the block every attention of ``model`` goes to ``callback``, and later its output to ``on_output``."""
    mode = AttentionWatcher(model, callback, on_output)
    with ExitStack() as stack:
        stack.callback(nn.modules.module.register_module_forward_pre_hook(mode.enter).remove)
        stack.callback(nn.modules.module.register_module_forward_hook(mode.leave, always_call=True).remove)
        stack.callback(_ACTIVE.remove, mode)
        _ACTIVE.append(mode)
        stack.enter_context(replace_kernels(model, mode))
        stack.enter_context(run_eagerly())
        stack.enter_context(mode)
        yield mode
        mode.flow.finish()


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Inside the block compiled code runs eagerly: nothing is recompiled, and nothing is lost."""
    if not {"torch._dynamo", "torch.nn.attention.flex_attention"} & set(sys.modules):  # importing them takes a second
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
    """Logits of a sink beside the keys, as in gpt-oss."""
    sinks = getattr(module, "sinks", None)
    return sinks if isinstance(sinks, Tensor) else None


def current_watcher() -> AttentionWatcher | None:
    """The active watcher, if any."""
    return _ACTIVE[-1] if _ACTIVE else None


_EXPECTED = "probabilities (B, H, T, S), (H, T, S) or (T, S), from 0 to 1 with sums ≤ 1 over the keys"


def record(p: Tensor, name: str) -> None:
    """Give the probe attention that it cannot capture; does nothing outside a measurement.

    Call it in a module whose attention is a sigmoid, a hand-written exp, a custom kernel or scripted code.

    Parameters
    ----------
    p : torch.Tensor
        Probabilities of the keys for every query, (B, H, T, S), (H, T, S) or (T, S).
    name : str
        The name of the attention inside its module. The probe calls it PATH.NAME.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> class Sigmoid(torch.nn.Module):
    ...     def forward(self, x):
    ...         p = torch.sigmoid(x @ x.mT) / x.shape[1]
    ...         ss.probe.record(p[:, None], "attention")
    ...         return p @ x
    >>> probe = ss.Probe(Sigmoid(), torch.randn(2, 5, 3))
    >>> probe.measure(0)
    >>> probe.dataset().path.values.tolist()
    ['attention']
    """
    watcher = current_watcher()
    if watcher is None:
        return
    if not isinstance(name, str) or not name:
        raise InputError("name", name, "a non-empty string")
    if not isinstance(p, Tensor) or not p.is_floating_point():
        raise InputError("p", type(p).__name__ if not isinstance(p, Tensor) else str(p.dtype), _EXPECTED)
    if not 2 <= p.ndim <= 4 or min(p.shape) == 0:
        raise InputError("p", f"shape {tuple(p.shape)}", _EXPECTED)
    with torch.no_grad(), torch._C.DisableTorchFunction():
        p = p.detach()[(None,) * (4 - p.ndim)]
        least, most, total = (
            float(t.nan_to_num(0.0)) for t in (p.amin(), p.amax(), p.sum(-1, dtype=torch.float32).amax())
        )
    if least < 0 or most > 1.001 or total > 1.01:  # three digits are enough
        raise InputError("p", f"values from {least:.3g} to {most:.3g} with sums up to {total:.4g}", _EXPECTED)
    watcher.capture(from_softmax(p, None, None, False), name)
