"""Looking at a model without a trace: what the look changes is put back, whatever happens inside it.

Put back are modes, buffers and what else hangs on the modules (attributes new, replaced or written to; tensors,
generators and plain containers among them, but not what is inside other objects), the state of every random generator
of Python, NumPy and torch, and the default dtype. Weights are not copied: a forward pass that writes to them is said in
a warning. Hooks of the model run as in any forward pass (sharded models need theirs): what they do elsewhere stays.
"""

from __future__ import annotations

import gc
import random
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from scansnap.checks import InputError
from scansnap.probe.parallel import kept_in_shards, sharded

_TABLES = (dict, OrderedDict, defaultdict)
_ROWS = (list, deque)
_HOLDING = frozenset({*_TABLES, *_ROWS, set})
_PLAIN = frozenset({str, int, float, bool, type(None), nn.Parameter})


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Inside, the model evaluates without gradients; afterwards all is as before.

    ``training`` is set directly, since a model's own ``eval`` may do more. Autocast is as it is outside, but keeps no
    casts: weights cast here have no gradient, and training in the same region would go on with them.
    """
    modules = list(model.modules())
    if any(nn.parameter.is_lazy(one) for module in modules for one in module._parameters.values() if one is not None):
        raise InputError("model", "without weights so far (lazy modules)", "run on a batch before it is measured")
    in_shards = sharded(model)
    with ExitStack() as after:
        after.enter_context(chance_kept())
        after.callback(torch.set_default_dtype, torch.get_default_dtype())
        after.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        if not in_shards:
            after.callback(_say_what_was_written, [(n, p, p._version) for n, p in model.named_parameters()])
        memory = _Memory(after, {id(module._parameters) for module in modules} if in_shards else set())
        for module in modules:
            memory.keep_module(module)
        after.enter_context(kept_in_shards(model))
        torch.set_autocast_cache_enabled(False)
        for module in modules:
            module.training = False
        after.enter_context(torch.no_grad())
        # Checkpoints warn that nothing needs gradients. A filter would make all of the user's warnings come again.
        after.callback(setattr, checkpoint, "check_backward_validity", checkpoint.check_backward_validity)
        checkpoint.check_backward_validity = lambda inputs: None
        yield


@contextmanager
def without_collecting() -> Iterator[None]:
    """Inside, Python looks for no garbage: much is remembered for a moment, and in a large process one search takes
    longer than a look."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def any_algorithm() -> Iterator[None]:
    """Inside, torch may add in any order, where a training that must not has to let statistics pass (CUDA's cumsum)."""
    before = torch.get_deterministic_debug_mode()
    if before:
        torch.set_deterministic_debug_mode(0)
    try:
        yield
    finally:
        if before:
            torch.set_deterministic_debug_mode(before)


class _Memory:
    """Things as they are now, each once, to be put back in ``after``.

    A module has some fifteen containers for hooks, nearly all empty: those are only listed, which is most of the speed.
    """

    def __init__(self, after: ExitStack, leave: set[int]) -> None:
        self.after, self.seen = after, leave
        self.empty: list[Any] = []
        self.tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # each with its content
        after.callback(self._put_back)

    def _put_back(self) -> None:
        for table, before in self.tables:
            _put_back_table(table, before)
        for container in self.empty:
            if container:
                container.clear()

    def keep_module(self, module: nn.Module) -> None:
        """Its mode, attributes and buffers, and its weights where the layer is known to write to them."""
        if isinstance(module, torch.jit.ScriptModule):  # its attributes are not Python's
            self.after.callback(setattr, module, "training", module.training)
            self.keep(list(module.buffers(recurse=False)))
        else:
            self.keep(module.__dict__)
        if getattr(module, "max_norm", None) is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            self._keep_tensor(module.weight)

    def keep(self, value: Any) -> None:
        """What it holds, if it is something that holds."""
        kind = type(value)
        if kind in _PLAIN or id(value) in self.seen or isinstance(value, nn.Parameter | nn.Module):
            return
        self.seen.add(id(value))
        if isinstance(value, Tensor):
            self._keep_tensor(value)
        elif kind in _TABLES:
            self.tables.append((value, dict(value)))
            for one in list(value.values()):
                kind = type(one)
                if kind in _HOLDING and not one:
                    self.empty.append(one)
                elif kind not in _PLAIN:
                    self.keep(one)
        elif kind in _ROWS or kind is tuple:
            if kind in _ROWS:
                self.after.callback(_put_back_row, value, list(value))
            for one in list(value):
                self.keep(one)
        elif kind is set:
            self.after.callback(_put_back_set, value, set(value))
        elif isinstance(value, torch.Generator):
            self.after.callback(value.set_state, value.get_state())
        elif isinstance(value, random.Random):
            self.after.callback(value.setstate, value.getstate())
        elif isinstance(value, np.random.Generator):
            self.after.callback(setattr, value.bit_generator, "state", value.bit_generator.state)

    def _keep_tensor(self, tensor: Tensor) -> None:
        if not tensor.is_inference():  # autograd may hold it for a backward pass, and would find it written to
            self.after.enter_context(torch.autograd.grad_mode._unsafe_preserve_version_counter(tensor))
        once = tensor.detach()
        for dim, stride in enumerate(tensor.stride() if tensor.layout is torch.strided else ()):
            if not stride:  # expanded: many places, one number
                once = once.narrow(dim, 0, min(1, tensor.shape[dim]))
        self.after.callback(_put_back_tensor, once, once.clone())


def _put_back_table(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    if len(table) != len(before) or any(a is not b for a, b in zip(table, before, strict=True)):
        table.clear()
        table.update(before)
    for key, value in before.items():
        if table[key] is not value:
            table[key] = value


def _put_back_row(row: Any, before: list[Any]) -> None:
    if list(map(id, row)) != list(map(id, before)):
        row.clear()
        row.extend(before)


def _put_back_set(some: set[Any], before: set[Any]) -> None:
    some.intersection_update(before)
    some.update(before)


def _put_back_tensor(tensor: Tensor, before: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(before)


def _say_what_was_written(weights: list[tuple[str, nn.Parameter, int]]) -> None:
    written = [name for name, tensor, version in weights if tensor._version != version]
    if written:
        names = ", ".join(written[:3]) + (" and more" if len(written) > 3 else "")
        warnings.warn(f"the model's forward pass writes to its weights {names}, and so does a look at it", stacklevel=2)


@contextmanager
def chance_kept() -> Iterator[None]:
    """Whatever is drawn inside, every random generator goes on from where it was."""
    with ExitStack() as after:
        after.callback(random.setstate, random.getstate())
        after.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 whatever the user draws from
        after.callback(torch.set_rng_state, torch.get_rng_state())
        for device in (torch.cuda, torch.xpu):
            if device.is_initialized():
                after.callback(device.set_rng_state_all, device.get_rng_state_all())
        if torch.backends.mps.is_available():
            after.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
        yield
