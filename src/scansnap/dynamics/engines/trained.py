"""What the loop trains: the YZ model by its hand-written engine, or a module by autograd (``autograd``)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr

from scansnap.classes import SequenceClasses
from scansnap.dynamics.checkpoint import Records
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.engines.observe import Observer
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State, start
from scansnap.results.trajectory import identity, labels
from scansnap.results.variables import SIMULATED, VARIABLES, add_labels
from scansnap.runs import Runs

_FLOATS_PER_SECOND = 2e10  # a first guess of the speed, replaced by what is measured


class Trained(Protocol):
    """Runs of one kind on one device, between the sampler and the records."""

    @property
    def runs(self) -> Runs: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def engine_used(self) -> str:
        """Its name, part of a run's mark: engines round differently."""
        ...

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """What can be recorded, and its dimensions after run and step."""
        ...

    @property
    def floats_per_step(self) -> int:
        """Size of the data of one step, which is sampled ahead."""
        ...

    @property
    def seconds_per_step(self) -> float:
        """A guess; what is measured replaces it."""
        ...

    def start(self) -> State:
        """Before the first update."""
        ...

    def advance(self, state: State, stop: int) -> State:
        """After the updates state.step … stop − 1; the given state is left as it is."""
        ...

    def observe(self, state: State, names: tuple[str, ...]) -> Records:
        """Some of the variables of ``dims``, the run first."""
        ...

    def at_once(self, names: tuple[str, ...]) -> Records | None:
        """The variables at all recorded steps, (run, step, …), where that needs no states in between; or None."""
        ...

    def mark(self) -> dict[str, Any]:
        """What is trained on what, by parts: everything that decides numbers beside runs and settings."""
        ...

    def labels(self, dims: Collection[Hashable]) -> dict[str, Any]:
        """Coordinates of these dimensions that go with this kind."""
        ...

    def describe(self, data: xr.Dataset) -> None:
        """Gives the result the attributes that go with this kind."""
        ...


class TrainedYZ:
    """The YZ model on sequence classes."""

    def __init__(
        self, classes: SequenceClasses, runs: Runs, settings: Settings, device: torch.device, engine: str
    ) -> None:
        self.classes, self.runs, self.settings, self.device = classes, runs, settings, device
        layout = make_layout(classes, settings.model, decays=runs.decays)
        self.engine = Engine(layout, settings, runs, device, engine)
        self.batches = Batches(layout, settings, np.unique(runs.seed), device)
        self._observer = Observer(classes, self.engine, self.batches)
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
        return start(self.engine.layout, self.settings, self.runs.seed, self.device)

    def advance(self, state: State, stop: int) -> State:
        return self.engine.advance(state, self.batches.take(state.step, stop))

    def observe(self, state: State, names: tuple[str, ...]) -> Records:
        return self._observer(state, names)

    def at_once(self, names: tuple[str, ...]) -> Records | None:
        blocks = self.engine.blocks
        if blocks is None or not self.engine.fused or not self.engine.bounded.all():
            return None
        return blocks.whole(names, self._observer.distinct)

    def mark(self) -> dict[str, Any]:
        return {"classes": self.classes.as_toml(words=False)}

    def labels(self, dims: Collection[Hashable]) -> dict[str, Any]:
        return labels(self.classes, dims)

    def describe(self, data: xr.Dataset) -> None:
        add_labels(data)
        data.attrs |= identity(self.classes)
