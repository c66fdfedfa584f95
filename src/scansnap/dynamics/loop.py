"""The training loop, the only one: many runs at once, recorded at chosen steps, stoppable and resumable."""

from __future__ import annotations

import time
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from scansnap.checks import InputError
from scansnap.dynamics.checkpoint import Records, RunCheckpoint
from scansnap.dynamics.engines.trainers import Trainer
from scansnap.dynamics.fingerprint import run_fingerprint
from scansnap.dynamics.state import State
from scansnap.dynamics.state_view import RecordFn, StateView, Until, call_record_fn, describe_function
from scansnap.interrupt import DelayedInterrupt
from scansnap.progress import Progress
from scansnap.results.trajectory import assemble, write

Piece = tuple[list[int], Records]  # steps, and what was recorded at them

_STRETCH_SECONDS = 0.3  # time between two checks of progress, Ctrl-C and checkpoints
_STRETCH_FLOATS = 32 << 20  # and how much data it samples ahead at most


class Loop:
    """One simulation under way: the current state and what was recorded so far."""

    def __init__(
        self, trainer: Trainer, variables: tuple[str, ...], record_fn: RecordFn | None, until: Until | None
    ) -> None:
        self.trainer, self.settings, self.device = trainer, trainer.settings, trainer.device
        self.variables, self.record_fn, self.until = variables, record_fn, until
        self._state: State | None = None
        self.records: list[Piece] = []  # in order; each added at once, as Ctrl-C may come between
        self.stopped = ""  # why it ended before the last step
        self.dims = {name: trainer.dims[name] for name in variables}
        if record_fn is not None:  # called before the work, so that its mistakes are reported at once
            self.dims |= call_record_fn(record_fn, StateView(trainer, self.state))[1]
        if until is not None:
            self._should_stop(StateView(trainer, self.state))
        parts = trainer.fingerprint_parts()
        parts |= {name: describe_function(f) for name, f in (("record_fn", record_fn), ("until", until)) if f}
        self.fingerprint = run_fingerprint(parts, trainer.runs, trainer.settings, engine=trainer.engine_used,
                                           device=trainer.device.type)  # fmt: skip

    @property
    def state(self) -> State:
        """The current state; the first is created on access, since runs that are done at once need none."""
        if self._state is None:
            self._state = self.trainer.start()
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    def resume(self, checkpoint: RunCheckpoint) -> None:
        saved = checkpoint.load()
        arrays = {name: torch.from_numpy(array.copy()).to(self.device) for name, array in saved.arrays.items()}
        self.state = State.from_arrays(saved.values["step"], arrays)
        steps = [step for values, _ in saved.records for step in values["steps"]]
        self.records = [(steps, _joined([records for _, records in saved.records]))] if steps else []

    @property
    def complete(self) -> bool:
        """Whether the last step is done, or ``until`` was true."""
        return self.state.step >= self.settings.steps or self.stopped.startswith("event")

    def run(
        self,
        interrupt: DelayedInterrupt,
        progress: Progress | None,
        checkpoint: RunCheckpoint | None = None,
        checkpoint_seconds: float = 0.0,
    ) -> None:
        """Train to the last step, or until interrupted; the state changes by whole stretches only."""
        total, saved = self.settings.steps, time.monotonic()
        if self._run_at_once():
            if progress is not None:
                progress(total, total)
            return
        length = self._bounded(_STRETCH_SECONDS / self.trainer.seconds_per_step)
        try:
            self._record()
            while not self.complete and not interrupt.requested:
                began = time.monotonic()
                stop = min(self.state.step + length, self._next_recorded(self.state.step), total)
                n_done = stop - self.state.step
                self.state = self.trainer.advance(self.state, stop)
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
            interrupt.requested = True
        if not self.complete:
            if checkpoint is not None:
                self._checkpoint(checkpoint)
            self._record(always=True)

    def _run_at_once(self) -> bool:
        """All steps in one call, where nothing is needed in between and it takes a moment."""
        if self._state is not None or self.record_fn is not None or self.until is not None:
            return False
        records = self.trainer.run_at_once(self.variables)
        if records is None:
            return False
        healthy = torch.full((len(self.trainer.runs),), -1, dtype=torch.int64)
        self._state = State(self.settings.steps, {}, {}, healthy)
        self.records = [(list(self.settings.record), records)]
        return True

    def save(self, data: xr.Dataset, target: Path, checkpoint: RunCheckpoint, overwrite: bool) -> None:
        """Write the result and delete the checkpoint; on failure (a full disk) the checkpoint is updated instead."""
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
        if step > last and (always or self._next_recorded(step - 1) == step):
            view = StateView(self.trainer, self.state)
            records = view.make(self.variables)
            if self.record_fn is not None:
                own, dims = call_record_fn(self.record_fn, view)
                if dims != {name: self.dims[name] for name in self.dims if name not in self.variables}:
                    raise InputError("what record_fn returns", list(own), "the same names and dims at every step")
                records |= own
            self.records.append(([step], {name: array[:, None] for name, array in records.items()}))
            if self.until is not None and not always and self._should_stop(view):
                self.stopped = f"event: {getattr(self.until, '__name__', 'until')}"

    def _should_stop(self, view: StateView) -> bool:
        answer = self.until(view) if self.until is not None else False
        if not isinstance(answer, bool | np.bool_):
            raise InputError("what until returns", answer, "true or false")
        return bool(answer)

    def _next_recorded(self, step: int) -> int:
        """The first step to record after ``step``, or one past the end."""
        place = bisect_right(self.settings.record, step)
        return self.settings.record[place] if place < len(self.settings.record) else self.settings.steps + 1

    def _checkpoint(self, checkpoint: RunCheckpoint) -> None:
        saved = checkpoint.appended[-1]["steps"][-1] if checkpoint.appended else -1
        new = [(steps, records) for steps, records in self.records if steps[-1] > saved]
        if new:
            checkpoint.append({"steps": _steps(new)}, _joined([records for _, records in new]))
        state = {name: tensor.cpu().numpy() for name, tensor in self.state.arrays().items()}
        checkpoint.save({"step": self.state.step}, state)

    def _next_length(self, n_done: int, seconds: float) -> int:
        return self._bounded(min(n_done * 4, n_done * _STRETCH_SECONDS / max(seconds, 1e-6)))

    def _bounded(self, length: float) -> int:
        return int(max(1, min(length, _STRETCH_FLOATS // self.trainer.floats_per_step, 4096)))

    def dataset(self) -> xr.Dataset:
        failed = self.state.failed_step.cpu().numpy()
        described = {**self.settings.to_dict(), "device": str(self.device), "engine": self.trainer.engine_used}
        stopped = self.stopped or ("complete" if self.complete else "interrupted")
        if stopped == "complete" and (failed >= 0).all():
            stopped = "non-finite"
        records = _joined([records for _, records in self.records])
        labelled = self.trainer.coordinates({dim for name in records for dim in self.dims[name]})
        data = assemble(
            self.trainer.runs, described, _steps(self.records), records, self.dims, failed, stopped, labelled
        )
        self.trainer.add_attributes(data)
        data.attrs["fingerprint"] = self.fingerprint
        return data


def _steps(pieces: list[Piece]) -> list[int]:
    return [step for steps, _ in pieces for step in steps]


def _joined(pieces: list[Records]) -> Records:
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]} if pieces else {}
