"""The interface between the loop and what it trains, and the trainer of the YZ model; ``autograd`` trains modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr

from scansnap.classes import SequenceClasses
from scansnap.dynamics import yz
from scansnap.dynamics.checkpoint import Records
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State, start
from scansnap.dynamics.update import check_frozen, check_update
from scansnap.measure.entropy import masked_entropy
from scansnap.results.trajectory import identity, labels
from scansnap.results.variables import SIMULATED, VARIABLES, add_labels
from scansnap.runs import Runs

_FLOATS_PER_SECOND = 2e10  # a first guess of the speed, replaced by what is measured


class Trainer(Protocol):
    """Runs of one kind on one device, between the sampler and the records."""

    @property
    def runs(self) -> Runs: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def engine_used(self) -> str:
        """The engine's name; part of the fingerprint, since engines round differently."""

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Recordable variables, and their dimensions after run and step."""

    @property
    def floats_per_step(self) -> int:
        """Size of the data of one step, which is sampled ahead."""

    @property
    def seconds_per_step(self) -> float:
        """A first guess."""

    def start(self) -> State:
        """The state before the first update."""

    def advance(self, state: State, stop: int) -> State:
        """The state after the updates state.step … stop − 1; ``state`` is not changed."""

    def measure(self, state: State, names: tuple[str, ...]) -> Records:
        """Some of the variables of ``dims``, the run first."""

    def run_at_once(self, names: tuple[str, ...]) -> Records | None:
        """The variables at all recorded steps, (run, step, …), where no state in between is needed; or None."""

    def fingerprint_parts(self) -> dict[str, Any]:
        """Model and data by parts: all that determines the numbers besides runs and settings."""

    def coordinates(self, dims: Collection[Hashable]) -> dict[str, Any]:
        """Coordinates of these dimensions."""

    def add_attributes(self, data: xr.Dataset) -> None:
        """Add the attributes of this kind to the result."""


class YZTrainer:
    """The YZ model on sequence classes."""

    def __init__(
        self, classes: SequenceClasses, runs: Runs, settings: Settings, device: torch.device, engine: str
    ) -> None:
        self.classes, self.runs, self.settings, self.device = classes, runs, settings, device
        layout = make_layout(classes, settings.model, decays=runs.decays)
        check_frozen(runs.eta_z, settings.update)
        self.engine = Engine(layout, settings, runs, device, engine)
        self.batches = Batches(layout, settings, np.unique(runs.seed), device)
        self._measurement = YZMeasurement(classes, self.engine, self.batches)
        heads = ("head",) if settings.model.heads > 1 else ()
        self.dims = {name: VARIABLES[name].dims for name in SIMULATED} | {"z": (*heads, "query", "token")}

    @property
    def engine_used(self) -> str:
        return "fused" if self.engine.fused else "general"

    @property
    def floats_per_step(self) -> int:
        return self.batches.floats_per_step

    @property
    def seconds_per_step(self) -> float:
        layout = self.engine.layout
        samples = self.settings.batch_size or len(layout.slots)
        return len(self.runs) * samples * layout.slots.shape[1] * len(layout.columns) * 2 / _FLOATS_PER_SECOND

    def start(self) -> State:
        state = start(self.engine.layout, self.settings, self.runs.seed, self.device)
        if self.settings.update != "gradient":
            y, tables, batch = state.tables["y"], self.engine.tables, self.batches.expected(len(self.runs))
            f = yz.forward(y, state.tables["z"], batch, tables, self.settings.model).f
            check_update(yz.to_rows(f, batch, tables, y.shape[1]), self.settings.update)
        return state

    def advance(self, state: State, stop: int) -> State:
        return self.engine.advance(state, self.batches.take(state.step, stop))

    def measure(self, state: State, names: tuple[str, ...]) -> Records:
        return self._measurement(state, names)

    def run_at_once(self, names: tuple[str, ...]) -> Records | None:
        blocks = self.engine.blocks
        if blocks is None or not self.engine.fused or not self.engine.bounded.all():
            return None
        return blocks.whole(names, self._measurement.distinct)

    def fingerprint_parts(self) -> dict[str, Any]:
        return {"classes": self.classes.as_toml(words=False)}

    def coordinates(self, dims: Collection[Hashable]) -> dict[str, Any]:
        return labels(self.classes, dims)

    def add_attributes(self, data: xr.Dataset) -> None:
        add_labels(data)
        data.attrs |= identity(self.classes)


class YZMeasurement:
    """The recorded variables of a state, in groups of runs that bound the memory."""

    def __init__(self, classes: SequenceClasses, engine: Engine, batches: Batches) -> None:
        self.engine, self.batches, self.layout = engine, batches, engine.layout
        tokens = np.zeros((classes.n_classes, classes.vocab_size), dtype=bool)
        for n in range(classes.n_classes):
            tokens[n, classes.distinct(n)] = True
        real = np.arange(self.layout.slots.shape[1]) < self.layout.n_slots[:, None]
        self.distinct = np.take_along_axis(tokens, self.layout.slots, 1) & real

    def __call__(self, state: State, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Each of the named variables, with the run dimension first."""
        n_runs = len(state.failed_step)
        groups = np.array_split(np.arange(n_runs), -(-n_runs // self.engine.group))
        parts = [self._measure(_without_moments(state, g), g, names) for g in groups]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _measure(self, state: State, which: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        model, tables = self.engine.settings.model, self.engine.tables
        y, z = state.tables["y"], state.tables["z"]
        out: dict[str, np.ndarray] = {}
        if {"attention", "entropy", "loss"} & set(names):
            expected = self.batches.expected(len(which))
            view = yz.forward(y, z, expected, tables, model)
            c = view.attention.cpu().numpy()  # (R, K, S)
            out["attention"] = self._to_tokens(c) if "attention" in names else c
            out["entropy"] = masked_entropy(c, self.distinct)
            right = view.log_alpha[:, torch.arange(len(tables.target)), tables.target]  # (R, K)
            out["loss"] = -(expected.weight * right).sum(-1).cpu().numpy()
        if "z" in names:
            each = z.cpu().numpy()
            out["z"] = each[:, 0] if each.shape[1] == 1 else each
        if "y" in names:
            out["y"] = self._full_y(state, which)
        if "batch_loss" in names:
            stretch = self.batches.take(state.step, state.step + 1)
            batch = stretch.batch(0, self.engine.stream[torch.as_tensor(which, device=self.engine.device)])
            out["batch_loss"] = yz.gradients(y, z, batch, tables, model).loss.cpu().numpy()
        return out

    def _to_tokens(self, c: np.ndarray) -> np.ndarray:
        full = np.zeros((*c.shape[:2], self.layout.vocab_size), dtype=c.dtype)
        for n, size in enumerate(self.layout.n_slots):
            full[:, n, self.layout.slots[n, :size]] = c[:, n, :size]
        return full

    def _full_y(self, state: State, which: np.ndarray) -> np.ndarray:
        """(R, M, M): rows outside the layout keep their initial values."""
        layout, y = self.layout, state.tables["y"].cpu().numpy()
        if len(layout.rows) < layout.vocab_size:
            seeds = self.engine.runs.seed[which]
            full_layout = dataclasses.replace(layout, rows=np.arange(layout.vocab_size))
            full = start(full_layout, self.engine.settings, seeds, torch.device("cpu")).tables["y"].numpy().copy()
        else:
            full = np.empty((len(which), layout.vocab_size, len(layout.columns)), dtype=y.dtype)
        full[:, layout.rows] = y
        return layout.expand_columns(full)


def _without_moments(state: State, which: np.ndarray) -> State:
    """Some of the runs without optimiser buffers, which are as large as the tables."""
    runs = slice(int(which[0]), int(which[-1]) + 1)  # they are consecutive: nothing is copied
    return State(state.step, {name: t[runs] for name, t in state.tables.items()}, {}, state.failed_step[runs])
