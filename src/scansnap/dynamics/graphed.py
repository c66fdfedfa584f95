"""An update recorded once as a CUDA graph and replayed: what many small launches cost is paid a single time."""

from __future__ import annotations

import torch

from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State
from scansnap.dynamics.step import Rates, one_step
from scansnap.dynamics.yz import Batch, Tables


class GraphedStep:
    """``one_step`` in place on fixed tensors."""

    def __init__(self, state: State, batch: Batch, rates: Rates, tables: Tables, settings: Settings) -> None:
        self.state = State.from_arrays(0, {name: t.clone() for name, t in state.arrays().items()})
        self.batch = Batch(*[t.clone() for t in batch])
        self.rates = Rates(*[t.clone() for t in rates])
        self.step = torch.zeros((), dtype=torch.float64, device=state.y.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries set themselves up outside the recording
            one_step(self.state, self.batch, self.rates, self.step, tables, settings)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            after = one_step(self.state, self.batch, self.rates, self.step, tables, settings).arrays()
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
        for mine, given in zip((*self.batch, *self.rates[:2]), (*batch, *rates[:2]), strict=True):
            mine.copy_(given)
        self.graph.replay()

    def result(self, step: int) -> State:
        """A copy of the state now."""
        return State.from_arrays(step, {name: t.clone() for name, t in self.state.arrays().items()})
