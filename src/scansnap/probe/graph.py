"""A measurement as one CUDA graph: recorded once, then replayed with the weights as they are.

A pass of GPT-2 small keeps a GPU busy for half of the time that Python takes to ask for it. Replayed, nothing of Python
runs, neither the model's nor ours, so that the pass must depend on weights, buffers and the batch alone, and the memory
of one pass stays taken. Both are for the user to allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from scansnap.probe.batch import tensors_of
from scansnap.probe.capture import Rows
from scansnap.probe.look import Pass
from scansnap.probe.parallel import sharded
from scansnap.probe.quiet import chance_kept

_FLAGS = (
    torch.is_autocast_enabled, torch.get_default_dtype, torch.get_float32_matmul_precision,
    torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.cudnn_sdp_enabled, torch.get_deterministic_debug_mode,
)  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """A pass that can be made again; its tensors are written anew each time."""

    graph: torch.cuda.CUDAGraph
    made_for: tuple[Any, ...]
    found: Pass
    batch: Any  # read where it lies

    def again(self, model: nn.Module) -> Pass:
        """The same pass with the weights of now."""
        with torch.cuda.device(_device(model)), chance_kept(), _buffers_kept(model):
            self.graph.replay()
        look = self.found.look
        # What is kept from one measurement to the next must not be written to by the next.
        kept = {
            name: (layer, replace(one, sample=Rows(one.sample.p.clone(), one.sample.visible)), chosen)
            for name, (layer, one, chosen) in look.found.items()
        }
        return replace(self.found, look=replace(look, found=kept))


def recorded(model: nn.Module, batch: Any, run: Callable[[], Pass]) -> Recorded:
    """Record what ``run`` does. It has run before: what is compiled or chosen on the way is there."""
    device, depends = _device(model), what_it_depends_on(model)
    generator = torch.cuda.default_generators[device.index]
    graph, memory, chance = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), generator.clone_state()
    here, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    aside.wait_stream(here)
    try:
        with torch.cuda.stream(aside):
            graph.capture_begin(memory, capture_error_mode="thread_local")  # other threads may go on loading data
            try:
                found = run()
            finally:
                graph.capture_end()
    except BaseException:
        # A recording that was broken off leaves the generator waiting for its end, and the allocator too: the next
        # random number of the training would fail.
        generator.graphsafe_set_state(chance)
        with suppress(RuntimeError):  # where the recording has ended well, and the pass itself has failed
            torch._C._cuda_endAllocateToPool(device.index, memory)
        raise
    here.wait_stream(aside)
    return Recorded(graph, depends, found, batch)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def what_it_depends_on(model: nn.Module) -> tuple[Any, ...]:
    """Where weights and buffers lie, and how torch computes: a graph is of no use once one of these is another."""
    places = [(tensor.data_ptr(), tensor.dtype, tensor.shape) for tensor in (*model.parameters(), *model.buffers())]
    autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return (*places, autocast, *(flag() for flag in _FLAGS), torch.backends.cuda.matmul.allow_tf32)


def cannot_be_recorded(model: nn.Module, batch: Any) -> str | None:
    """Why not, if it cannot."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers(), *tensors_of(batch))}
    if sharded(model):
        return "the model is in shards"
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return f"the model is on {' and '.join(sorted(map(str, devices)))}"
    return None


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """A pass may write to them, as caches are."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, content in before:
                with torch.autograd.grad_mode._unsafe_preserve_version_counter(buffer):
                    buffer.copy_(content)
