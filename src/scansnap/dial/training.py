"""The training loop of the dial: all runs of a cell at once, read at chosen steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from scansnap.dial.data import Batch, Task
from scansnap.dial.descent import Descent
from scansnap.dial.model import Parameters, forward, loss, start, table_of, trained
from scansnap.dial.reading import Reader, Reading
from scansnap.dial.rungs import Flags

AHEAD = {"cpu": 64, "cuda": 128}  # steps whose data are drawn at once: more of them where every launch counts
EAGER = 3  # steps before a graph is recorded, in which libraries set themselves up
Look = Callable[[int, "Runs"], None]


class Runs:
    """The runs of one cell under way. ``eta`` are the nominal rates of the two groups of parameters, (R,) each."""

    def __init__(
        self, flags: Flags, task: Task, optimizer: str, seeds: np.ndarray, eta: dict[str, Tensor], decay_steps: int
    ) -> None:
        self.flags, self.task, self.reader, self.step = flags, task, Reader(task), 0
        self.seeds = torch.as_tensor(seeds, device=task.device)
        self.streams, self.stream = torch.unique(self.seeds, return_inverse=True)
        every = start(flags, task.vocab_size, task.context, self.seeds, task.dtype)
        self.fixed = {name: t for name, t in every.items() if not trained(flags, name)}
        eta = {table: value.to(task.device, task.dtype) for table, value in eta.items()}
        tables = {name: t for name, t in every.items() if name not in self.fixed}
        each = {name: eta[table_of(name)] for name in tables}
        # what decays loses a factor e until the end where nothing drives it, whatever its rate
        matrices = {name for name, t in tables.items() if t.ndim > 2 and name != "embed"}
        decays = {"none": "", "both": "yz"}.get(flags.decay, flags.decay)
        decay = {name: (1 / (decay_steps * rate)) if table_of(name) in decays and name in matrices else 0 * rate
                 for name, rate in each.items()}  # fmt: skip
        self.descent = Descent(optimizer, tables, each, decay)
        self._recorded: _Recorded | None = None

    @property
    def parameters(self) -> Parameters:
        """As they are now; the next step moves them in place."""
        return {**self.fixed, **self.descent.tables}

    def advance(self, steps: int, look: Look | None = None, at: frozenset[int] = frozenset()) -> None:
        """Some steps on; ``look`` is called before the steps (counted from the start) in ``at``."""
        end, ahead = self.step + steps, AHEAD[self.task.device.type]
        while self.step < end:
            first, last = self.step, min(self.step + ahead, end)
            for step, batch in zip(range(first, last), self.task.batches(self.streams, first, last), strict=True):
                if look is not None and step in at:
                    look(step, self)
                self._update(_short(batch))
                self.step += 1

    def _update(self, batch: Batch) -> None:
        if self.task.device.type == "cpu" or self.step < EAGER:
            self.move(batch)
            return
        if self._recorded is None:
            self._recorded = _Recorded(self, batch)
        self._recorded.replay(batch)

    def move(self, batch: Batch) -> None:
        """One update on a batch, in place."""
        tables = {name: t.detach().requires_grad_() for name, t in self.descent.tables.items()}
        with torch.enable_grad():
            total = -loss({**self.fixed, **tables}, self.flags, batch.of(self.stream)).sum()
            gradients = torch.autograd.grad(total, list(tables.values()))
        self.descent.move(gradients)

    @torch.no_grad()
    def read(self) -> Reading:
        """Loss, attention and logits as they are now."""
        out, reader = forward(self.parameters, self.flags, self.reader.batch, at_end=True), self.reader
        found = reader.loss(out), reader.attention(out.attention[0]), reader.z(out.scores[0])
        return Reading(*(t.double().cpu().numpy() for t in found))

    @torch.no_grad()
    def losses(self) -> Tensor:
        """T = ∞ losses now, (R,), left on the device."""
        return self.reader.loss(forward(self.parameters, self.flags, self.reader.batch, at_end=True, only_logits=True))


class _Recorded:
    """An update recorded once as a CUDA graph and replayed: its hundreds of small launches are paid a single time."""

    def __init__(self, runs: Runs, batch: Batch) -> None:
        self.batch = replace(batch, **{name: t.clone() for name, t in vars(batch).items() if t is not None})
        self._given: Batch | None = None
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            runs.move(self.batch)

    def replay(self, batch: Batch) -> None:
        if batch is not self._given:  # the expectation is one batch for all steps
            for mine, given in zip(vars(self.batch).values(), vars(batch).values(), strict=True):
                if mine is not None:
                    mine.copy_(given)
            self._given = batch
        self.graph.replay()


def _short(batch: Batch) -> Batch:
    """Without the copies of what is the same in all streams and sequences: which keys a position sees."""
    bias = batch.bias
    for dim in (0, 1):
        bias = bias.narrow(dim, 0, 1) if bias.stride(dim) == 0 else bias
    return batch if bias is batch.bias else replace(batch, bias=bias)
