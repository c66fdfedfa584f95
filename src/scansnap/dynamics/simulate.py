"""The training loop: many runs at once, recorded at chosen steps, stoppable and resumable."""

from __future__ import annotations

import time
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scansnap.checks import InputError, choice, real
from scansnap.classes import SequenceClasses
from scansnap.dynamics.batches import Batches
from scansnap.dynamics.checkpoint import Checkpoint, Records
from scansnap.dynamics.device import pick_device
from scansnap.dynamics.engine import ENGINES, Engine
from scansnap.dynamics.layout import make_layout
from scansnap.dynamics.mark import difference, mark_of
from scansnap.dynamics.observe import Observer
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import Settings, settings
from scansnap.dynamics.state import State, start
from scansnap.interrupt import Interrupt, Stopped
from scansnap.progress import Progress
from scansnap.results.trajectory import assemble, load, write
from scansnap.runs import Runs, grid
from scansnap.storage import claimed, writable

Piece = tuple[list[int], Records]  # steps, and what was recorded at them

_STRETCH_SECONDS = 0.3  # how long the loop is away between two looks at progress, Ctrl-C and checkpoints
_STRETCH_FLOATS = 32 << 20  # and how much data it samples ahead at most
_FLOATS_PER_SECOND = 2e10  # a first guess of the speed, replaced by what is measured


def simulate(
    classes: SequenceClasses,
    runs: Runs | None = None,
    *,
    eta_y: float | None = None,
    eta_z: float | None = None,
    ratio: float | None = None,
    seed: int | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    weight_decay_y: float | None = None,
    weight_decay_z: float | None = None,
    steps: int = 100,
    batch_size: int | None = 128,
    context: float = 128,
    optimizer: str | Optimizer | dict[str, Any] = "sgd",
    init: str = "zero",
    norm: str = "l2",
    residual: str = "none",
    query_in_keys: bool = False,
    outputs: str = "all",
    heads: int = 1,
    position_bias: float | Sequence[float] | None = None,
    sampling: str = "counts",
    record: Sequence[int] | str = "log:50",
    variables: Sequence[str] = ("attention", "loss", "entropy", "z"),
    device: str = "auto",
    dtype: str = "float32",
    engine: str = "auto",
    progress: Progress | None = None,
    save_to: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 30.0,
) -> xr.Dataset:
    """Train the YZ transformer by SGD (or another optimiser) on sequences drawn from ``classes``.

    Give either ``runs`` (see :func:`scansnap.grid`) or the rates of a single run: ``eta_z`` and ``eta_y`` or
    ``ratio``, with ``seed``. The model options are explained at :class:`scansnap.Model`, the optimisers at
    :class:`scansnap.Optimizer`; ``optimizer={"y": …, "z": …}`` treats the two tables differently.

    ``context`` is T; ``math.inf`` replaces counts by probabilities, and with ``batch_size=None`` classes by their
    expectation. ``record`` lists steps, or says ``all``, ``linear:N`` or ``log:N``. ``engine`` "general" keeps
    away from the fused CPU kernel.

    Returns a Dataset with dims run, step, class, token, query. Ctrl-C returns what was done until then
    (``attrs["complete"]`` is 0). With ``save_to`` the result is written there when it is complete; until then
    checkpoints lie beside it, and ``resume=True`` continues from them to the same numbers.
    """
    if not isinstance(classes, SequenceClasses):
        raise InputError("classes", classes, "a SequenceClasses object")
    runs = _runs(runs, eta_y=eta_y, eta_z=eta_z, ratio=ratio, seed=seed).filled(
        momentum=momentum, weight_decay=weight_decay, weight_decay_y=weight_decay_y, weight_decay_z=weight_decay_z
    )
    plan = settings(
        {"steps": steps, "batch_size": batch_size, "context": context, "optimizer": optimizer, "init": init,
         "norm": norm, "residual": residual, "query_in_keys": query_in_keys, "outputs": outputs, "heads": heads,
         "position_bias": position_bias, "sampling": sampling, "record": record, "variables": variables,
         "dtype": dtype}
    )  # fmt: skip
    place = pick_device(device)
    real("checkpoint_seconds", checkpoint_seconds, least=0)
    loop = _Loop(classes, runs, plan, place, choice("engine", engine, ENGINES))
    mark = mark_of(classes, runs, plan, engine=loop.engine_used, device=place.type)
    if engine == "fused" and loop.engine.why_not_fused():
        raise InputError("engine", engine, f"auto or general here, since {loop.engine.why_not_fused()}")

    if save_to is None:
        if resume:
            raise InputError("resume", True, "given together with save_to")
        with Interrupt() as interrupt:
            loop.run(interrupt, progress)
        data = loop.dataset(mark)
    else:
        checkpoint = Checkpoint(_place(Path(save_to)), mark)
        with claimed("save_to", Path(save_to)):
            finished = _prepare(Path(save_to), checkpoint, resume=resume, overwrite=overwrite)
            if finished is not None:
                return finished
            if resume and checkpoint.exists():
                loop.resume(checkpoint)
            with Interrupt() as interrupt:
                loop.run(interrupt, progress, checkpoint, checkpoint_seconds)
                data = loop.dataset(mark)
                if loop.complete:
                    loop.save(data, Path(save_to), checkpoint, overwrite)
    if not loop.complete:
        kept = f"; continue with resume=True and the same save_to ({save_to})" if save_to else ""
        warnings.warn(f"stopped after {loop.state.step} of {plan.steps} steps{kept}", Stopped, stacklevel=2)
    elif interrupt.asked:  # whoever has more to do must hear of it
        warnings.warn("asked to stop in its last steps: the run is complete", Stopped, stacklevel=2)
    return data


@dataclass
class _Loop:
    """One simulation under way: the current state and what was recorded so far."""

    classes: SequenceClasses
    runs: Runs
    settings: Settings
    device: torch.device
    engine_name: str
    records: list[Piece] = field(default_factory=list)  # in order; each added at once, as Ctrl-C may come between

    def __post_init__(self) -> None:
        layout = make_layout(self.classes, self.settings.model, decays=self.runs.decays)
        self.engine = Engine(layout, self.settings, self.runs, self.device, self.engine_name)
        self.batches = Batches(layout, self.settings, np.unique(self.runs.seed), self.device)
        self.observer = Observer(self.classes, self.engine, self.batches)
        self.state: State = start(layout, self.settings, self.runs.seed, self.device)

    @property
    def engine_used(self) -> str:
        """What ``engine`` came down to here."""
        return "fused" if self.engine.fused else "general"

    def resume(self, checkpoint: Checkpoint) -> None:
        there, here = checkpoint.mark_there(), checkpoint.mark
        if there != here:
            allowed = f"one with the same classes, runs and settings ({difference(there, here)})"
            raise InputError("the unfinished run", str(checkpoint.folder), allowed)
        self.state, steps, pieces = checkpoint.resume(self.device)
        self.records = [(steps, _joined(pieces))] if steps else []

    @property
    def complete(self) -> bool:
        return self.state.step >= self.settings.steps

    def run(
        self,
        interrupt: Interrupt,
        progress: Progress | None,
        checkpoint: Checkpoint | None = None,
        checkpoint_seconds: float = 0.0,
    ) -> None:
        """To the last step, or until it is interrupted. The state only ever moves by whole stretches."""
        total, saved = self.settings.steps, time.monotonic()
        length = self._first_length()
        try:
            self._record()
            while not self.complete and not interrupt.asked:
                began = time.monotonic()
                stop = min(self.state.step + length, self._next_wanted(self.state.step), total)
                n_done = stop - self.state.step
                self.state = self.engine.advance(self.state, self.batches.take(self.state.step, stop))
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                self._record()
                length = self._next_length(n_done, time.monotonic() - began)
                if progress is not None:
                    progress(self.state.step, total)
                if checkpoint is not None and time.monotonic() - saved >= checkpoint_seconds:
                    self._checkpoint(checkpoint)
                    saved = time.monotonic()
        except KeyboardInterrupt:  # from a callback, or a second Ctrl-C
            interrupt.asked = True
        if not self.complete:
            if checkpoint is not None:
                self._checkpoint(checkpoint)
            self._record(always=True)

    def save(self, data: xr.Dataset, target: Path, checkpoint: Checkpoint, overwrite: bool) -> None:
        """The finished result in place of the checkpoints; where it does not fit on the disk they may still."""
        try:
            write(data, target, overwrite)
        except BaseException:
            with suppress(OSError):
                self._checkpoint(checkpoint)
            raise
        checkpoint.discard()

    def _record(self, always: bool = False) -> None:
        step = self.state.step
        last = self.records[-1][0][-1] if self.records else -1
        if step > last and (always or self._next_wanted(step - 1) == step):
            seen = self.observer(self.state)
            self.records.append(([step], {name: array[:, None] for name, array in seen.items()}))

    def _next_wanted(self, step: int) -> int:
        """The first step to record after ``step``, or one past the end."""
        place = bisect_right(self.settings.record, step)
        return self.settings.record[place] if place < len(self.settings.record) else self.settings.steps + 1

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        saved = checkpoint.steps[-1] if checkpoint.steps else -1
        new = [(steps, records) for steps, records in self.records if steps[-1] > saved]
        checkpoint.write(self.state, _steps(new), _joined([records for _, records in new]))

    def _first_length(self) -> int:
        rows, columns = self.engine.layout.slots.shape[1], len(self.engine.layout.columns)
        samples = self.settings.batch_size or len(self.engine.layout.slots)
        seconds = len(self.runs) * samples * rows * columns * 2 / _FLOATS_PER_SECOND
        return self._bounded(_STRETCH_SECONDS / seconds)

    def _next_length(self, n_done: int, seconds: float) -> int:
        return self._bounded(min(n_done * 4, n_done * _STRETCH_SECONDS / max(seconds, 1e-6)))

    def _bounded(self, length: float) -> int:
        return int(max(1, min(length, _STRETCH_FLOATS // self.batches.floats_per_step, 4096)))

    def dataset(self, mark: str) -> xr.Dataset:
        failed = self.state.failed_step.cpu().numpy()
        described = {**self.settings.to_dict(), "device": str(self.device), "engine": self.engine_used}
        records = _joined([records for _, records in self.records])
        steps = _steps(self.records)
        data = assemble(self.classes, self.runs, described, steps, records, failed, self.complete)
        return data.assign_attrs(fingerprint=mark)


def _steps(pieces: list[Piece]) -> list[int]:
    return [step for steps, _ in pieces for step in steps]


def _joined(pieces: list[Records]) -> Records:
    return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]} if pieces else {}


def _runs(runs: Runs | None, **rates: Any) -> Runs:
    given = {name: value for name, value in rates.items() if value is not None}
    if runs is None:
        return grid(**given)
    if not isinstance(runs, Runs):
        raise InputError("runs", runs, "what scansnap.grid returns")
    if given:
        name, value = next(iter(given.items()))
        raise InputError(name, value, "left out here, since runs are given")
    return runs


def _place(target: Path) -> Path:
    """Refused before the work, and nothing made on the way, where result or checkpoints could not be written."""
    if target.suffix not in (".zarr", ".nc"):
        raise InputError("save_to", str(target), "a name ending in .zarr or .nc")
    writable("save_to", target, folder=target.suffix == ".zarr")
    writable("save_to", Checkpoint(target, "").folder, folder=True)
    return target


def _prepare(target: Path, checkpoint: Checkpoint, *, resume: bool, overwrite: bool) -> xr.Dataset | None:
    """Make way for a result at ``target``, or return it if this very run is finished there already."""
    if target.exists():
        allowed = "a path that does not exist yet (or say overwrite or resume)"
        if resume:
            finished = load(target)
            there = str(finished.attrs.get("fingerprint"))
            if there == checkpoint.mark:
                if checkpoint.is_same_run():  # the process ended between saving and tidying up
                    checkpoint.discard()
                return finished
            finished.close()
            different = difference(there, checkpoint.mark)
            allowed = f"one with the same classes, runs and settings ({different}; overwrite makes it again)"
        if not overwrite:
            raise InputError("save_to", str(target), allowed)
    if checkpoint.exists() and not resume:
        if not overwrite:
            allowed = "free of an unfinished run (resume continues it, overwrite starts again)"
            raise InputError("save_to", str(checkpoint.folder), allowed)
        checkpoint.discard()
    return None
