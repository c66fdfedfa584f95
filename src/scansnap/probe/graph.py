"""Record a measurement as a CUDA graph, and replay it with the current weights.

A pass of GPT-2 small keeps a GPU busy for half of the time that Python needs to launch it. A replay runs no Python:
the pass must depend on weights, buffers and the batch alone, and the memory of one pass stays allocated. The user
enables it with ``graph=True``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from scansnap.probe.batch import tensors_of
from scansnap.probe.capture import AttentionRows
from scansnap.probe.distributed import is_sharded
from scansnap.probe.measurement import ForwardPass
from scansnap.probe.state import preserve_rng

_FLAGS = (
    torch.is_autocast_enabled, torch.get_default_dtype, torch.get_float32_matmul_precision,
    torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.cudnn_sdp_enabled, torch.get_deterministic_debug_mode,
)  # fmt: skip


@dataclass(frozen=True)
class RecordedPass:
    """A pass that can be replayed; each replay writes to the same tensors."""

    graph: torch.cuda.CUDAGraph
    dependencies: tuple[Any, ...]
    result: ForwardPass
    batch: Any  # the graph reads it in place

    def replay(self, model: nn.Module) -> ForwardPass:
        """The same pass with the current weights."""
        with torch.cuda.device(_device(model)), preserve_rng(), _preserve_buffers(model):
            self.graph.replay()
        collector = self.result.collector
        # The next replay must not write to the samples of this one.
        results = {
            key: (layer, replace(sums, sample=AttentionRows(sums.sample.p.clone(), sums.sample.visible)), plan)
            for key, (layer, sums, plan) in collector.results.items()
        }
        return replace(self.result, collector=replace(collector, results=results))


def record_pass(model: nn.Module, batch: Any, run: Callable[[], ForwardPass]) -> RecordedPass:
    """Record ``run``, which has run before: whatever it compiles or selects is ready."""
    device, depends = _device(model), pass_dependencies(model)
    generator = torch.cuda.default_generators[device.index]
    graph, memory, rng_state = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), generator.clone_state()
    current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(current)
    try:
        with torch.cuda.stream(side):
            graph.capture_begin(memory, capture_error_mode="thread_local")  # other threads may load data
            try:
                result = run()
            finally:
                graph.capture_end()
    except BaseException:
        # After a failed recording the generator and the allocator wait for its end, and the next random number of the
        # training would fail.
        generator.graphsafe_set_state(rng_state)
        with suppress(RuntimeError):  # the recording has ended, and the pass itself has failed
            torch._C._cuda_endAllocateToPool(device.index, memory)
        raise
    current.wait_stream(side)
    return RecordedPass(graph, depends, result, batch)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def pass_dependencies(model: nn.Module) -> tuple[Any, ...]:
    """Addresses of weights and buffers, and torch's settings: a change of any invalidates the graph."""
    tensors = [(tensor.data_ptr(), tensor.dtype, tensor.shape) for tensor in (*model.parameters(), *model.buffers())]
    autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return (*tensors, autocast, *(flag() for flag in _FLAGS), torch.backends.cuda.matmul.allow_tf32)


def why_not_recordable(model: nn.Module, batch: Any) -> str | None:
    """Why the pass cannot be recorded; None if it can."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers(), *tensors_of(batch))}
    if is_sharded(model):
        return "the model is sharded"
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return f"the model is on {' and '.join(sorted(map(str, devices)))}"
    return None


@contextmanager
def _preserve_buffers(model: nn.Module) -> Iterator[None]:
    """A pass may write to buffers that are caches."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, content in before:
                with torch.autograd.grad_mode._unsafe_preserve_version_counter(buffer):
                    buffer.copy_(content)
