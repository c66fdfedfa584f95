"""Carries a group of runs through a stretch of mini-batches, on the general path or on the fused one.

The general path is torch, works for every option, on CPU and CUDA. The fused one (kernels/fused.c) covers what
the paper's experiments use, on CPUs, and is far faster; tests hold the two equal.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scansnap import kernels
from scansnap.dynamics import yz
from scansnap.dynamics.batches import Stretch
from scansnap.dynamics.layout import Layout
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State
from scansnap.runs import Runs

ENGINES = ("auto", "general", "fused")
_GROUP_BYTES = {"cpu": 4 << 20, "cuda": 4 << 30}  # temporaries of one group of runs: the cache, or the memory


class Engine:
    """Update rules for one layout and one set of runs."""

    def __init__(
        self, layout: Layout, settings: Settings, runs: Runs, device: torch.device, engine: str = "auto"
    ) -> None:
        self.layout, self.settings, self.runs, self.device = layout, settings, runs, device
        self.dtype = getattr(torch, settings.dtype)
        self.tables = yz.Tables.of(layout, device, self.dtype)
        self.stream = torch.as_tensor(np.unique(runs.seed, return_inverse=True)[1], device=device)
        self.fused = engine != "general" and self.why_not_fused() is None
        per_sample = len(layout.rows) * 2 + len(layout.columns) * 4 + layout.slots.shape[1] * 8
        samples = settings.batch_size or layout.slots.shape[0]
        limit = _GROUP_BYTES.get(device.type, 1 << 30)
        self.group = max(1, limit // (samples * per_sample * self.dtype.itemsize))

    def why_not_fused(self) -> str | None:
        """The first reason the fused path does not apply, or None."""
        model, optimizers = self.settings.model, (self.settings.optimizer_y, self.settings.optimizer_z)
        reasons = {
            "the device is not a CPU": self.device.type != "cpu",
            "the kernels were not compiled": not kernels.available(),
            "dtype is not float32": self.dtype != torch.float32,
            "norm is not l2": model.norm != "l2",
            "there is a residual connection": model.residual != "none",
            "there are several heads": model.heads != 1,
            "the optimiser is not plain SGD or momentum": any(o.name != "sgd" or o.clip for o in optimizers),
            "there is weight decay": bool(self.runs.weight_decay.any()),
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    def advance(self, state: State, stretch: Stretch) -> State:
        """The state after all mini-batches of the stretch; the given state is left as it is."""
        if self.fused:
            return self._advance_fused(state, stretch)
        return self._advance_general(state, stretch, np.arange(len(self.runs)))

    def _rates(self, step: int, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        steps = self.settings.steps
        factor_y = self.settings.optimizer_y.rate_factor(step, steps)
        factor_z = self.settings.optimizer_z.rate_factor(step, steps)
        return self.runs.eta_y[which] * factor_y, self.runs.eta_z[which] * factor_z

    # --- general -----------------------------------------------------------------------------------------

    def _advance_general(self, state: State, stretch: Stretch, which: np.ndarray) -> State:
        """Groups of runs small enough for the cache, one after the other, each through all the steps."""
        groups = np.array_split(np.arange(len(which)), -(-len(which) // self.group))
        parts = []
        for group in groups:
            part = state if len(groups) == 1 else state.take(torch.as_tensor(group, device=self.device))
            for i in range(len(stretch)):
                part = self._step(part, stretch, i, which[group])
            parts.append(part)
        return parts[0] if len(parts) == 1 else State.cat(parts)

    def _step(self, state: State, stretch: Stretch, i: int, which: np.ndarray) -> State:
        settings, step = self.settings, stretch.start + i
        batch = stretch.batch(i, self.stream[torch.as_tensor(which, device=self.device)])
        grad = yz.gradients(state.y, state.z, batch, self.tables, settings.model)
        eta_y, eta_z = (self._per_run(rate) for rate in self._rates(step, which))
        momentum, decay = self._per_run(self.runs.momentum[which]), self._per_run(self.runs.weight_decay[which])
        y, moments_y = settings.optimizer_y.update(
            state.y, grad.dy, state.moments_y,
            step=step, eta=eta_y, momentum=momentum, weight_decay=decay, multiplicity=self.tables.multiplicity,
        )  # fmt: skip
        z, moments_z = settings.optimizer_z.update(
            state.z, grad.dz, state.moments_z, step=step, eta=eta_z, momentum=momentum, weight_decay=decay
        )
        finite = _finite(y) & _finite(z)
        failed_step = torch.where(state.alive & ~finite, step, state.failed_step)
        keep = failed_step < 0
        return State(
            step + 1,
            torch.where(keep[:, None, None], y, state.y),
            torch.where(keep[:, None, None, None], z, state.z),
            moments_y, moments_z, failed_step,
        )  # fmt: skip

    def _per_run(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=self.dtype).to(self.device, non_blocking=True)

    # --- fused -------------------------------------------------------------------------------------------

    def _advance_fused(self, state: State, stretch: Stretch) -> State:
        every = np.arange(len(self.runs))
        rates = [self._rates(stretch.start + i, every) for i in range(len(stretch))]
        (y, v, z, vz), finite = kernels.advance(
            self.layout,
            (
                state.y.numpy(), state.moments_y["velocity"].numpy(),
                state.z[:, 0].numpy(), state.moments_z["velocity"][:, 0].numpy(),
            ),
            stream=self.stream.numpy(),
            cls=stretch.cls.numpy(),
            counts=stretch.counts.numpy(),
            weight=stretch.weight.numpy(),
            rate_y=np.stack([rate for rate, _ in rates]),
            rate_z=np.stack([rate for _, rate in rates]),
            momentum=self.runs.momentum,
        )  # fmt: skip
        new = State(
            stretch.start + len(stretch),
            torch.from_numpy(y), torch.from_numpy(z)[:, None],
            {"velocity": torch.from_numpy(v)}, {"velocity": torch.from_numpy(vz)[:, None]},
            state.failed_step,
        )  # fmt: skip
        redo = np.flatnonzero(~(finite & state.alive.numpy()))
        if len(redo) == 0:
            return new
        # The kernel only says that a run failed somewhere in the stretch. The general path finds the step and
        # leaves the run at its last finite state.
        where = torch.from_numpy(redo)
        return new.put(where, self._advance_general(state.take(where), stretch, redo))


def _finite(table: Tensor) -> Tensor:
    return torch.isfinite(torch.linalg.vector_norm(table.flatten(1), ord=torch.inf, dim=1))
