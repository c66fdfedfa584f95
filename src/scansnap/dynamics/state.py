"""The state of a group of runs between two steps, and how it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.dynamics.engines.layout import TableLayout
from scansnap.dynamics.optimizers import Moments, Optimizer
from scansnap.dynamics.settings import Settings
from scansnap.kernels.cpu import library
from scansnap.kernels.cpu import sampling as compiled
from scansnap.sampling.philox import Purpose, uniforms


@dataclass(frozen=True)
class State:
    """Named tables, their optimiser buffers and the health of R runs after ``step`` updates.

    The YZ model has the tables ``y`` (R, L, J) and ``z`` (R, H, Q, M), a module those of its parameters.
    """

    step: int
    tables: dict[str, Tensor]  # (R, …) each
    moments: dict[str, Moments]  # of each table, buffers shaped like it
    failed_step: Tensor  # (R,) the update that would have made the run, or its loss, non-finite; or -1

    @property
    def alive(self) -> Tensor:
        """Runs that are still finite; the others stay as they were before they failed."""
        return self.failed_step < 0

    def take(self, runs: Any) -> State:
        """The state of some of the runs."""
        return self.map(lambda t: t[runs])

    def put(self, runs: Any, other: State) -> State:
        """This state with some of the runs replaced by ``other``'s."""
        arrays, new = self.arrays(), other.arrays()
        for name, tensor in arrays.items():
            arrays[name] = tensor.index_copy(0, runs, new[name])
        return State.from_arrays(self.step, arrays)

    def map(self, change: Callable[[Tensor], Tensor]) -> State:
        """The same change to every tensor."""
        return State.from_arrays(self.step, {name: change(t) for name, t in self.arrays().items()})

    def arrays(self) -> dict[str, Tensor]:
        """All tensors by name, for checkpoints: tables by their own, the buffer b of table t as ``moments_t.b``."""
        flat = {**self.tables, "failed_step": self.failed_step}
        for table, buffers in self.moments.items():
            flat |= {f"moments_{table}.{name}": t for name, t in buffers.items()}
        return flat

    @classmethod
    def from_arrays(cls, step: int, arrays: dict[str, Tensor]) -> State:
        """The inverse of `arrays`."""
        tables = {name: t for name, t in arrays.items() if not name.startswith("moments_") and name != "failed_step"}
        moments: dict[str, Moments] = {name: {} for name in tables}
        for name, tensor in arrays.items():
            if name.startswith("moments_"):
                table, _, buffer = name.removeprefix("moments_").rpartition(".")
                moments[table][buffer] = tensor
        return cls(step, tables, moments, arrays["failed_step"])

    @classmethod
    def cat(cls, states: list[State]) -> State:
        """States of groups of runs, one after the other."""
        parts = [state.arrays() for state in states]
        return cls.from_arrays(states[0].step, {name: torch.cat([p[name] for p in parts]) for name in parts[0]})


def begin(tables: dict[str, Tensor], optimizers: dict[str, Optimizer]) -> State:
    """The state before the first update, from initial tables."""
    n_runs, device = next((len(t), t.device) for t in tables.values())
    moments = {name: optimizers[name].start(table) for name, table in tables.items()}
    return State(0, tables, moments, torch.full((n_runs,), -1, dtype=torch.int64, device=device))


def start(layout: TableLayout, settings: Settings, seeds: np.ndarray, device: torch.device) -> State:
    """The YZ model before the first update; the seed alone decides the initial values."""
    model, dtype = settings.model, getattr(torch, settings.dtype)
    unique, which = np.unique(seeds, return_inverse=True)
    stream = torch.as_tensor(which, device=device)
    scale = model.init_scale(layout.vocab_size)
    columns = np.maximum(layout.columns, 0)  # the lumped column exists only with zero init
    heads = np.arange(model.heads)
    every = np.arange(layout.vocab_size)
    y = initial(scale, unique, Purpose.INIT_Y, np.zeros(1, dtype=int), layout.rows, columns, device)[:, 0]
    z = initial(scale, unique, Purpose.INIT_Z, heads, layout.queries, every, device)
    return begin({"y": y.to(dtype)[stream], "z": z.to(dtype)[stream]}, settings.optimizers)


def initial(
    scale: tuple[str, float],
    seeds: np.ndarray,
    purpose: Purpose,
    heads: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    device: torch.device,
) -> Tensor:
    """Values by token id, so that an entry does not depend on the other rows and columns; (G, H, rows, cols)."""
    kind, size = scale
    shape = (len(seeds), len(heads), len(rows), len(columns))
    if kind == "zero":
        return torch.zeros(shape, dtype=torch.float64, device=device)
    if device.type == "cpu" and library.available():
        u, v = (torch.from_numpy(a) for a in compiled.uniforms(seeds, purpose, heads, rows, columns))
    else:
        seed, head, row, column = (torch.as_tensor(a, device=device) for a in (seeds, heads, rows, columns))
        u, v = uniforms(seed[:, None, None, None], purpose, head[:, None, None], row[:, None], column)
    if kind == "uniform":
        return (2 * u - 1) * size
    return torch.sqrt(-2 * torch.log1p(-u)) * torch.cos(2 * torch.pi * v) * size  # Box and Muller
