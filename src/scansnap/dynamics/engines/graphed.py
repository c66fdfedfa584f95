"""An update recorded once as a CUDA graph and replayed: what many small launches cost is paid a single time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from scansnap.dynamics.state import State
from scansnap.dynamics.step import Rates
from scansnap.dynamics.yz import Batch

OneStep = Callable[[State, Batch, Rates, torch.Tensor], State]


class GraphedStep:
    """``one_step`` in place on fixed tensors."""

    def __init__(self, one_step: OneStep, state: State, batch: Batch, rates: Rates) -> None:
        self.state = state.map(torch.clone)
        self.batch = Batch(*[t.clone() for t in batch])
        self.rates = rates.take(torch.arange(len(rates.momentum), device=rates.momentum.device))
        self.step = torch.zeros((), dtype=torch.float64, device=rates.momentum.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries set themselves up outside the recording
            one_step(self.state, self.batch, self.rates, self.step)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            after = one_step(self.state, self.batch, self.rates, self.step).arrays()
            for name, tensor in self.state.arrays().items():
                tensor.copy_(after[name])
            self.step += 1

    def load(self, state: State) -> None:
        """Start from this state."""
        for name, tensor in state.arrays().items():
            self.state.arrays()[name].copy_(tensor)
        self.step.fill_(state.step)

    def replay(self, batch: Batch, rates: Rates) -> None:
        """One update with this mini-batch."""
        for mine, given in zip(self.batch, batch, strict=True):
            mine.copy_(given)
        for name, eta in rates.eta.items():
            self.rates.eta[name].copy_(eta)
        self.graph.replay()

    def result(self, step: int) -> State:
        """A copy of the state now."""
        return replace(self.state.map(torch.clone), step=step)
