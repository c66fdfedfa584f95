"""CUDA helpers of both kinds of model: precision of products, streams, and captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]


@contextmanager
def matmul_precision(device: torch.device, precision: str) -> Iterator[None]:
    """Use tf32 products on CUDA in the block if ``precision`` is tf32, else float32."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def on_stream(stream: torch.cuda.Stream | None, *used: Tensor) -> Iterator[None]:
    """Run on a stream, after the work of the current one; ``used`` are tensors that must outlive the block's work."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    for tensor in used:
        tensor.record_stream(stream)
    with torch.cuda.stream(stream):
        yield


class GraphedSteps:
    """Steps captured as a CUDA graph for each batch shape and replayed, which saves some hundred small launches.

    The first step of a shape runs without a graph: it compiles kernels and sets up libraries, and the shape may not
    come again. Without ``graphs``, and on a CPU, all steps run so.
    """

    def __init__(self, device: torch.device, graphs: bool, generator: torch.Generator | None = None) -> None:
        self.is_enabled, self.generator = graphs and device.type == "cuda", generator
        self._graphs: dict[torch.Size, _CapturedGraph | None] = {}

    def run(self, step: Step, inputs: Tensor, targets: Tensor) -> Tensor:
        """One step. (``step`` is not stored: a model and its steps would refer to each other and never be freed.)"""
        if not self.is_enabled or inputs.shape not in self._graphs:
            self._graphs[inputs.shape] = None
            return step(inputs, targets)
        graph = self._graphs[inputs.shape]
        if graph is None:
            graph = self._graphs[inputs.shape] = _CapturedGraph(step, self.generator, inputs, targets)
        return graph(inputs, targets)


class _CapturedGraph:
    """A step of one batch shape. Its random numbers come from the generator, which is seeded before each replay."""

    def __init__(self, step: Step, generator: torch.Generator | None, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs.clone(), targets.clone()
        self.graph = torch.cuda.CUDAGraph()
        if generator is not None:
            self.graph.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.loss = step(self.inputs, self.targets)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.graph.replay()
        return self.loss.clone()
