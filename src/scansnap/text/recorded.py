"""A training step recorded as a CUDA graph: what some hundred small launches cost is paid a single time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Recorded:
    """A step of one batch shape. Random numbers, if any, come from the generator, seeded anew before each replay."""

    def __init__(
        self,
        step: Callable[[Tensor, Tensor], Tensor],
        generator: torch.Generator | None,
        inputs: Tensor,
        targets: Tensor,
    ) -> None:
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
