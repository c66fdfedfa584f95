"""What steps of both kinds of model do on CUDA: precision of products, work side by side, steps recorded as graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]


@contextmanager
def products_on(device: torch.device, precision: str) -> Iterator[None]:
    """tf32 products inside the block if that is the precision asked for, else exact ones; nothing on a CPU."""
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
def beside(stream: torch.cuda.Stream | None, *used: Tensor) -> Iterator[None]:
    """On a stream that starts where the current one is; ``used`` are tensors that must outlive what is done there."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    for tensor in used:
        tensor.record_stream(stream)
    with torch.cuda.stream(stream):
        yield


class GraphedSteps:
    """Steps recorded once for each batch shape and replayed: some hundred small launches are paid a single time.

    The first step of a shape runs as it comes: it compiles and sets libraries up, and a shape may come only once.
    Without ``graphs``, and on a CPU, all do.
    """

    def __init__(self, device: torch.device, graphs: bool, generator: torch.Generator | None = None) -> None:
        self.on, self.generator = graphs and device.type == "cuda", generator
        self._recorded: dict[torch.Size, _CapturedGraph | None] = {}

    def run(self, step: Step, inputs: Tensor, targets: Tensor) -> Tensor:
        """One step. (It is not kept: a model and its steps that hold each other would outlive their use.)"""
        if not self.on or inputs.shape not in self._recorded:
            self._recorded[inputs.shape] = None
            return step(inputs, targets)
        recorded = self._recorded[inputs.shape]
        if recorded is None:
            recorded = self._recorded[inputs.shape] = _CapturedGraph(step, self.generator, inputs, targets)
        return recorded(inputs, targets)


class _CapturedGraph:
    """A step of one batch shape. Random numbers, if any, come from the generator, seeded anew before each replay."""

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
