"""Training of a group of runs on a stretch of mini-batches, on the fastest path that applies.

The general path is torch, works for every option, on CPU and CUDA; on CUDA it is recorded as a graph. The fused one
(kernels/cpu/fused.c, kernels/cuda/runs.py) covers the paper's experiments and is far faster; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from scansnap.dynamics import yz
from scansnap.dynamics.device import one_thread
from scansnap.dynamics.engines.batches import Stretch
from scansnap.dynamics.engines.cuda_engine import CudaEngine
from scansnap.dynamics.engines.layout import TableLayout
from scansnap.dynamics.schedules import Schedule
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State
from scansnap.dynamics.step import RunRates, one_step
from scansnap.kernels.cpu import fused, library
from scansnap.kernels.cuda import compiler
from scansnap.runs import Runs

ENGINES = ("auto", "general", "fused")
_GROUP_BYTES = {"cpu": 4 << 20, "cuda": 4 << 30}  # temporaries of one group of runs: the cache, or the memory


OneStep = Callable[[State, yz.CountBatch, RunRates, Tensor], State]


class Engine:
    """Update rules for one layout and one set of runs."""

    def __init__(
        self, layout: TableLayout, settings: Settings, runs: Runs, device: torch.device, engine: str = "auto"
    ) -> None:
        self.layout, self.settings, self.runs, self.device = layout, settings, runs, device
        self.dtype = getattr(torch, settings.dtype)
        self.tables = yz.Tables.of(layout, device, self.dtype)
        self.stream = torch.as_tensor(np.unique(runs.seed, return_inverse=True)[1], device=device)
        self.rates = RunRates.of(runs, {"y": "y", "z": "z"}, device, self.dtype)
        self.limits = {"y": largest_y(self.dtype, layout.vocab_size), "z": math.inf}
        self.multiplicity = {"y": self.tables.multiplicity}
        self._graphed: GraphedStep | None = None
        self.blocks: CudaEngine | None = None  # the fused path on CUDA
        self.fused = engine != "general" and self.why_not_fused() is None
        self.bounded = self._bounded()
        per_sample = len(layout.rows) * 2 + len(layout.columns) * 4 + layout.slots.shape[1] * 8
        samples = settings.batch_size or layout.slots.shape[0]
        limit = _GROUP_BYTES.get(device.type, 1 << 30)
        self.group = max(1, limit // (samples * per_sample * self.dtype.itemsize))

    def why_not_fused(self) -> str | None:
        """The first reason the fused path does not apply, or None."""
        model, optimizers = self.settings.model, (self.settings.optimizer_y, self.settings.optimizer_z)
        reasons = {
            "the device is neither a CPU nor CUDA": self.device.type not in ("cpu", "cuda"),
            "the kernels were not compiled": self.device.type == "cpu" and not library.available(),
            "torch does not bring NVRTC or the device is older than Volta": self.device.type == "cuda"
            and not compiler.available(),
            "dtype is not float32": self.dtype != torch.float32,
            "norm is not l2": model.norm != "l2",
            "there is a residual connection": model.residual != "none",
            "there are several heads": model.heads != 1,
            "the optimiser is not plain SGD or momentum": any(o.name != "sgd" or o.clip for o in optimizers),
            "there is weight decay": self.runs.decays,
            "the decoder's update is modified": self.settings.update != "gradient",
        }
        reason = next((words for words, applies in reasons.items() if applies), None)
        if reason is None and self.device.type == "cuda":
            self.blocks = self.blocks or CudaEngine.on_cuda(self.layout, self.settings, self.runs, self.device)
            reason = self.blocks.why_not()
        return reason

    def advance(self, state: State, stretch: Stretch) -> State:
        """The state after all mini-batches of the stretch; the given state is left as it is."""
        every = torch.arange(len(self.runs), device=self.device)
        if self.fused and self.bounded.all():
            return self._advance_fused(state, stretch, every)
        if self.fused and self.bounded.any():
            fast, slow = (torch.as_tensor(np.flatnonzero(which), device=self.device)
                          for which in (self.bounded, ~self.bounded))  # fmt: skip
            after = [self._advance_fused(state.take(fast), stretch, fast),
                     self._advance_general(state.take(slow), stretch, slow)]  # fmt: skip
            return State.cat(after).take(torch.cat([fast, slow]).argsort())
        if self.device.type == "cuda" and len(self.runs) <= self.group:
            return self._advance_graphed(state, stretch)
        return self._advance_general(state, stretch, every)

    def _bounded(self) -> np.ndarray:
        """Runs whose rates are too small for their tables to ever leave the float range, (R,).

        On the fused path |f| = 1, so |dY| ≤ 1 and |dz| ≤ 2 √S max|Y|, and momentum adds up at most 1/(1 − μ) of them.
        The other runs take the general path: the kernel detects failures only at the end of a stretch, and results
        must not depend on where stretches end.
        """
        settings, (_, scale) = self.settings, self.settings.model.init_scale(self.layout.vocab_size)
        factor_y, factor_z = (
            Schedule.parse(settings.optimizers[name].schedule).largest_factor(settings.steps) for name in ("y", "z")
        )
        updates = settings.steps / (1 - self.runs.momentum)
        with np.errstate(over="ignore", invalid="ignore"):
            y = 10 * scale + factor_y * self.runs.eta_y * updates
            z = 10 * scale + factor_z * self.runs.eta_z * updates * 2 * self.layout.slots.shape[1] * y
        return np.maximum(y, z) < largest_y(self.dtype, self.layout.vocab_size)

    def _factors(self, step: int) -> dict[str, float]:
        """The schedules' factors in this update."""
        return {name: o.rate_factor(step, self.settings.steps) for name, o in self.settings.optimizers.items()}

    def step(self, state: State, batch: yz.CountBatch, rates: RunRates, step: int | Tensor) -> State:
        """One update of some of the runs."""
        grad = yz.gradients(state.tables["y"], state.tables["z"], batch, self.tables, self.settings.model,
                            self.settings.update)  # fmt: skip
        return one_step(state, {"y": grad.dy, "z": grad.dz}, rates, step, self.settings.optimizers,
                        limits=self.limits, multiplicity=self.multiplicity)  # fmt: skip

    # --- general -----------------------------------------------------------------------------------------

    def _advance_general(self, state: State, stretch: Stretch, which: Tensor) -> State:
        """Groups of runs small enough for the cache, each through all the steps."""
        groups = torch.arange(len(which), device=self.device).split(self.group)

        def advance(group: Tensor) -> State:
            part = state.take(group)
            stream, rates = self.stream[which[group]], self.rates.take(which[group])
            for i in range(len(stretch)):
                step = stretch.start + i
                part = self.step(part, stretch.batch(i, stream), rates.scaled(self._factors(step)), step)
            return part

        if self.device.type == "cpu":
            with one_thread() as threads, ThreadPoolExecutor(threads) as pool:
                return State.cat(list(pool.map(advance, groups)))
        return State.cat([advance(group) for group in groups])

    # --- graphed -----------------------------------------------------------------------------------------

    def _advance_graphed(self, state: State, stretch: Stretch) -> State:
        """The general path, recorded once and replayed."""
        if self._graphed is None:
            first = stretch.batch(0, self.stream)
            self._graphed = GraphedStep(self.step, state, first, self.rates)
        self._graphed.load(state)
        for i in range(len(stretch)):
            scaled = self.rates.scaled(self._factors(stretch.start + i))
            self._graphed.replay(stretch.batch(i, self.stream), scaled)
        return self._graphed.result(stretch.start + len(stretch))

    # --- fused -------------------------------------------------------------------------------------------

    def _advance_fused(self, state: State, stretch: Stretch, which: Tensor) -> State:
        runs = which.cpu().numpy()
        factors = [self._factors(stretch.start + i) for i in range(len(stretch))]
        rate_y, rate_z = (np.array([f[name] for f in factors]) for name in ("y", "z"))  # (N,)
        velocity = {name: buffers["velocity"] for name, buffers in state.moments.items()}
        before = state.tables["y"], velocity["y"], state.tables["z"][:, 0], velocity["z"][:, 0]
        if self.blocks is not None:
            (y, v, z, vz), finite = self.blocks.advance(before, stretch, runs, rate_y, rate_z)
        else:
            after, healthy = fused.advance(
                self.layout,
                tuple(table.numpy() for table in before),  # type: ignore[arg-type]
                stream=self.stream.numpy()[runs],
                cls=stretch.cls.numpy(),
                counts=stretch.counts.numpy(),
                weight=stretch.weight.numpy(),
                rate_y=rate_y[:, None] * self.runs.eta_y[runs],
                rate_z=rate_z[:, None] * self.runs.eta_z[runs],
                momentum=self.runs.momentum[runs],
            )
            y, v, z, vz = (torch.from_numpy(table) for table in after)
            finite = torch.from_numpy(healthy)
        new = State(
            stretch.start + len(stretch),
            {"y": y, "z": z[:, None]},
            {"y": {"velocity": v}, "z": {"velocity": vz[:, None]}},
            state.failed_step,
        )
        where = (~(finite & state.alive)).nonzero()[:, 0]
        if len(where) == 0:
            return new
        # Bounded runs fail only where the data itself leaves the float range (a position bias of hundreds). The
        # general path finds the step and leaves the run at its last finite state.
        return new.put(where, self._advance_general(state.take(where), stretch, which[where]))


class GraphedStep:
    """An update as a CUDA graph: one launch instead of many small ones."""

    def __init__(self, one_step: OneStep, state: State, batch: yz.CountBatch, rates: RunRates) -> None:
        self.state = state.map(torch.clone)
        self.batch = yz.CountBatch(*[t.clone() for t in batch])
        self.rates = rates.take(torch.arange(len(rates.momentum), device=rates.momentum.device))
        self.step = torch.zeros((), dtype=torch.float64, device=rates.momentum.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries initialise outside the recording
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

    def replay(self, batch: yz.CountBatch, rates: RunRates) -> None:
        """One update with this mini-batch."""
        for buffer, new in zip(self.batch, batch, strict=True):
            buffer.copy_(new)
        for name, eta in rates.eta.items():
            self.rates.eta[name].copy_(eta)
        self.graph.replay()

    def result(self, step: int) -> State:
        """A copy of the state now."""
        return replace(self.state.map(torch.clone), step=step)


def largest_y(dtype: torch.dtype, vocab_size: int) -> float:
    """Beyond this size of Y the logits, and so the loss, can overflow although the table itself is finite."""
    return torch.finfo(dtype).max / (8 * vocab_size)
