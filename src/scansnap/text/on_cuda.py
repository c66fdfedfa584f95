"""What steps of both kinds of model do on CUDA: precision of products, work side by side, steps recorded as graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]
Result = TypeVar("Result", Tensor, None)


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


class RecordedSteps:
    """Steps recorded once for each shape of what they are given and replayed: some hundred small launches are paid a
    single time.

    The first step of a shape runs as it comes: it compiles and sets libraries up, and a shape may come only once.
    Without ``graphs``, and on a CPU, all do.
    """

    def __init__(self, device: torch.device, graphs: bool, generator: torch.Generator | None = None) -> None:
        self.on, self.generator = graphs and device.type == "cuda", generator
        self._recorded: dict[tuple[torch.Size, ...], _Recorded | None] = {}

    def run(self, step: Callable[..., Result], *given: Tensor) -> Result:
        """One step. (It is not kept: a model and its steps that hold each other would outlive their use.)"""
        shapes = tuple(tensor.shape for tensor in given)
        if not self.on or shapes not in self._recorded:
            self._recorded[shapes] = None
            return step(*given)
        recorded = self._recorded[shapes]
        if recorded is None:
            recorded = self._recorded[shapes] = _Recorded(step, self.generator, given)
        return recorded(given)


class _Recorded:
    """A step of one shape. Random numbers, if any, come from the generator, seeded anew before each replay."""

    def __init__(self, step: Callable[..., Any], generator: torch.Generator | None, given: tuple[Tensor, ...]) -> None:
        self.given = [tensor.clone() for tensor in given]
        self.graph = torch.cuda.CUDAGraph()
        if generator is not None:
            self.graph.register_generator_state(generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.result = step(*self.given)

    def __call__(self, given: tuple[Tensor, ...]) -> Any:
        for mine, new in zip(self.given, given, strict=True):
            mine.copy_(new)
        self.graph.replay()
        return None if self.result is None else self.result.clone()
