"""Run a model and restore its state, so that a measurement leaves no trace in the training.

Restored are modes, buffers and attributes of the modules (tensors, generators and plain containers, but not the content
of other objects), the state of every random generator of Python, NumPy and torch, and the default dtype. Weights are
not copied; a warning names weights that the forward pass changes. The model's own hooks run as in any forward pass.
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
from scansnap.probe.distributed import is_sharded, reshard_after

_DICTS = (dict, OrderedDict, defaultdict)
_LISTS = (list, deque)
_CONTAINERS = frozenset({*_DICTS, *_LISTS, set})
_PLAIN = frozenset({str, int, float, bool, type(None), nn.Parameter})


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Inside the block the model is in evaluation mode without gradients; afterwards its state is restored.

    ``training`` is set directly, since a model may override ``eval``. Autocast stays as it is, but its cache is off:
    weights cast here have no gradient, and training in the same region would reuse them.
    """
    modules = list(model.modules())
    weights = [weight for module in modules for weight in module._parameters.values() if weight is not None]
    if any(map(nn.parameter.is_lazy, weights)):
        raise InputError("model", "lazy modules", "a model with weights", "run it on a batch first")
    in_shards = is_sharded(model)
    with ExitStack() as after:
        after.enter_context(preserve_rng())
        after.callback(torch.set_default_dtype, torch.get_default_dtype())
        after.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        if not in_shards:
            after.callback(_warn_about_written_weights, [(n, p, p._version) for n, p in model.named_parameters()])
        saved = _SavedState(after, {id(module._parameters) for module in modules} if in_shards else set())
        for module in modules:
            saved.save_module(module)
        after.enter_context(reshard_after(model))
        torch.set_autocast_cache_enabled(False)
        for module in modules:
            module.training = False
        after.enter_context(torch.no_grad())
        # Checkpointing warns that nothing needs gradients. A filter would make the user's earlier warnings repeat.
        after.callback(setattr, checkpoint, "check_backward_validity", checkpoint.check_backward_validity)
        checkpoint.check_backward_validity = lambda inputs: None
        yield


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Inside the block Python collects no garbage: in a large process one collection takes longer than a pass."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def allow_nondeterminism() -> Iterator[None]:
    """Inside the block torch may use nondeterministic algorithms (CUDA's cumsum), whatever the training demands."""
    before = torch.get_deterministic_debug_mode()
    if before:
        torch.set_deterministic_debug_mode(0)
    try:
        yield
    finally:
        if before:
            torch.set_deterministic_debug_mode(before)


class _SavedState:
    """Values as they are now, each saved once; ``after`` restores them.

    A module has some fifteen containers for hooks, nearly all empty. Those are only listed, for speed.
    """

    def __init__(self, after: ExitStack, skip: set[int]) -> None:
        self.after, self.saved = after, skip
        self.empty: list[Any] = []
        self.tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # each with its content
        after.callback(self._restore)

    def _restore(self) -> None:
        for table, before in self.tables:
            _restore_dict(table, before)
        for container in self.empty:
            if container:
                container.clear()

    def save_module(self, module: nn.Module) -> None:
        """Mode, attributes and buffers, and the weights of layers that write to them."""
        if isinstance(module, torch.jit.ScriptModule):  # it has no Python attributes
            self.after.callback(setattr, module, "training", module.training)
            self.save(list(module.buffers(recurse=False)))
        else:
            self.save(module.__dict__)
        if getattr(module, "max_norm", None) is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            self._save_tensor(module.weight)

    def save(self, value: Any) -> None:
        """The content of containers, tensors and generators."""
        kind = type(value)
        if kind in _PLAIN or id(value) in self.saved or isinstance(value, nn.Parameter | nn.Module):
            return
        self.saved.add(id(value))
        if isinstance(value, Tensor):
            self._save_tensor(value)
        elif kind in _DICTS:
            self.tables.append((value, dict(value)))
            for part in list(value.values()):
                kind = type(part)
                if kind in _CONTAINERS and not part:
                    self.empty.append(part)
                elif kind not in _PLAIN:
                    self.save(part)
        elif kind in _LISTS or kind is tuple:
            if kind in _LISTS:
                self.after.callback(_restore_list, value, list(value))
            for part in list(value):
                self.save(part)
        elif kind is set:
            self.after.callback(_restore_set, value, set(value))
        elif isinstance(value, torch.Generator):
            self.after.callback(value.set_state, value.get_state())
        elif isinstance(value, random.Random):
            self.after.callback(value.setstate, value.getstate())
        elif isinstance(value, np.random.Generator):
            self.after.callback(setattr, value.bit_generator, "state", value.bit_generator.state)

    def _save_tensor(self, tensor: Tensor) -> None:
        if not tensor.is_inference():  # autograd may check its version in a backward pass
            self.after.enter_context(torch.autograd.grad_mode._unsafe_preserve_version_counter(tensor))
        base = tensor.detach()
        for dim, stride in enumerate(tensor.stride() if tensor.layout is torch.strided else ()):
            if not stride:  # expanded: one number in many places
                base = base.narrow(dim, 0, min(1, tensor.shape[dim]))
        self.after.callback(_restore_tensor, base, base.clone())


def _restore_dict(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    if len(table) != len(before) or any(a is not b for a, b in zip(table, before, strict=True)):
        table.clear()
        table.update(before)
    for key, value in before.items():
        if table[key] is not value:
            table[key] = value


def _restore_list(values: Any, before: list[Any]) -> None:
    if list(map(id, values)) != list(map(id, before)):
        values.clear()
        values.extend(before)


def _restore_set(values: set[Any], before: set[Any]) -> None:
    values.intersection_update(before)
    values.update(before)


def _restore_tensor(tensor: Tensor, before: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(before)


def _warn_about_written_weights(weights: list[tuple[str, nn.Parameter, int]]) -> None:
    written = [name for name, tensor, version in weights if tensor._version != version]
    if written:
        names = ", ".join(written[:3]) + (" and more" if len(written) > 3 else "")
        warnings.warn(f"the model's forward pass changes its weights {names}, also in a measurement", stacklevel=2)


@contextmanager
def preserve_rng() -> Iterator[None]:
    """After the block every random generator is in its earlier state."""
    with ExitStack() as after:
        after.callback(random.setstate, random.getstate())
        after.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 the user may draw from it
        after.callback(torch.set_rng_state, torch.get_rng_state())
        for device in (torch.cuda, torch.xpu):
            if device.is_initialized():
                after.callback(device.set_rng_state_all, device.get_rng_state_all())
        if torch.backends.mps.is_available():
            after.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
        yield
