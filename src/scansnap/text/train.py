"""The one training loop for text: it feeds windows of a stream to a model that updates itself, and keeps the record.

What is measured when, where it is validated, how it is stopped and goes on is here; what an update is, is the model's
own. A run interrupted and resumed is the same, bit for bit, as one that was not: batches are a function of the step,
and a model holds all else.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, real, whole
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.corpus.windows import Windows
from scansnap.interrupt import Interrupt, Stopped
from scansnap.progress import Progress
from scansnap.storage import claimed, writable
from scansnap.text.evaluate import perplexity
from scansnap.text.events import EventWriter, place_for_events
from scansnap.text.model import LanguageModel
from scansnap.text.model_files import (
    Header,
    fingerprint,
    load_checkpoint,
    read_header,
    safetensors_package,
    save_checkpoint,
)

Measure = Callable[[LanguageModel, int], dict[str, Any]]
READ_EVERY = 200  # steps between looks at the losses: each look waits for the device


@dataclass
class Training:
    """What came of it. ``measured`` and ``valid`` are by step; step 0 is the model before its first update."""

    steps: int  # to do in all
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (steps done,), nats, each before its update
    valid: dict[int, float] = field(default_factory=dict)  # perplexity
    measured: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed_step: int | None = None  # the first with a loss that is not a number; training stops there
    seconds: float = 0.0  # this time, measuring and validating included
    tokens: int = 0  # trained on, this time
    saved_step: int | None = None  # of the checkpoint as it lies there; None: nothing of this training does

    @property
    def step(self) -> int:
        """Updates done."""
        return len(self.losses)

    @property
    def complete(self) -> bool:
        return self.step == self.steps and self.failed_step is None


def log_spaced(steps: int, per_decade: int = 8) -> list[int]:
    """0, 1, 2, 3, … ever further apart, ``steps`` the last: where a curve over ln t wants its points."""
    whole("steps", steps)
    whole("per_decade", per_decade, least=1)
    n = max(1, math.ceil(per_decade * math.log10(max(steps, 1)))) + 1
    return sorted({0, steps, *(int(s) for s in np.geomspace(1, max(steps, 1), n).round() if s <= steps)})


def train(
    model: LanguageModel,
    tokens: Any,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    batch: int = 20,
    length: int = 35,
    shuffle: int | None = None,
    valid: Any = None,
    validate_every: int | None = None,
    measure: Measure | None = None,
    snapshots: Sequence[int] | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_seconds: float = 300.0,
    resume: bool = False,
    overwrite: bool = False,
    vocabulary: Vocabulary | None = None,
    progress: Progress | None = None,
    tensorboard: Path | str | None = None,
) -> Training:
    """Train a model on a stream of token ids for a number of steps, or of passes over it.

    shuffle      None reads the windows in order; a seed shuffles them, in each epoch otherwise
    valid        a stream whose perplexity is taken after each epoch, or ``validate_every`` steps, and at the end
    measure      measure(model, step) → numbers and arrays, kept; at the ``snapshots``, log-spaced unless given
    checkpoint   a file, replaced every ``checkpoint_seconds``, on Ctrl-C and at the end; ``resume`` goes on from it,
                 and one that is there already is refused unless ``overwrite``
    tensorboard  a folder for event files of loss, perplexity and measured numbers

    Ctrl-C ends the step under way and returns what there is, with a warning that says how to go on.
    """
    windows = Windows(tokens if isinstance(tokens, Tensor) else np.asarray(tokens), batch, length, model.device)
    low, high = int(windows.columns.min()), int(windows.columns.max())
    if low < 0 or high >= model.vocab_size:
        raise InputError("the stream", f"from {low} to {high}", f"token ids from 0 and below {model.vocab_size}")
    if (steps is None) == (epochs is None):
        raise InputError("steps", steps, "given, or epochs instead")
    total = whole("steps", steps) if steps is not None else whole("epochs", epochs) * len(windows)
    every = len(windows) if validate_every is None else whole("validate_every", validate_every, least=1)
    wanted = log_spaced(total) if snapshots is None else [whole("snapshots", s, most=total) for s in snapshots]
    plan = _Plan(
        steps=total,
        shuffle=shuffle,
        valid=valid,
        validate_at={*range(every, total, every), total} if valid is not None else set(),
        measure=measure,
        measure_at=set(wanted) if measure is not None else set(),
        checkpoint=None if checkpoint is None else _place_for(Path(checkpoint)),
        checkpoint_seconds=real("checkpoint_seconds", checkpoint_seconds, least=0),
        vocabulary=vocabulary,
        progress=progress,
        events=None if tensorboard is None else place_for_events(Path(tensorboard)),
    )
    if plan.checkpoint is None:
        return _Loop(model, windows, plan).run(resume)
    with claimed("checkpoint", plan.checkpoint):
        if plan.checkpoint.exists() and not (resume or overwrite):
            free = "a file that is not there yet, unless you resume or overwrite"
            raise InputError("checkpoint", str(checkpoint), free)
        return _Loop(model, windows, plan).run(resume)


def _place_for(checkpoint: Path) -> Path:
    """Say before the work begins what would go wrong after it."""
    safetensors_package()
    return writable("checkpoint", checkpoint)


@dataclass(frozen=True)
class _Plan:
    """What to do besides updates, and when."""

    steps: int
    shuffle: int | None
    valid: Any
    validate_at: set[int]
    measure: Measure | None
    measure_at: set[int]
    checkpoint: Path | None
    checkpoint_seconds: float
    vocabulary: Vocabulary | None
    progress: Progress | None
    events: Path | None


class _Loop:
    def __init__(self, model: LanguageModel, windows: Windows, plan: _Plan) -> None:
        self.model, self.windows, self.plan = model, windows, plan
        self.done = Training(plan.steps)
        self.unread: list[Tensor] = []  # losses still on the device
        self.order: tuple[int, list[int]] = (-1, [])  # epoch and its window numbers
        self.events: EventWriter | None = None
        self.stream = (
            "" if plan.checkpoint is None else sha256(windows.columns.cpu().numpy().tobytes()).hexdigest()[:16]
        )

    @property
    def step(self) -> int:
        return self.done.step + len(self.unread)

    def run(self, resume: bool) -> Training:
        if resume:
            self._resume()
        if self.plan.events is not None:  # only now: a refused training leaves no files
            self.events = EventWriter(self.plan.events)
        start, saved, shown = time.monotonic(), time.monotonic(), 0.0
        asked = False
        with Interrupt() as interrupt:
            try:
                self._look()
                while self.step < self.done.steps and self.done.failed_step is None and not interrupt.asked:
                    inputs, targets = self._batch(self.step)
                    self.unread.append(self.model.train_step(inputs, targets))
                    self.done.tokens += inputs.numel()
                    self._look()
                    now = time.monotonic()
                    if now - saved >= self.plan.checkpoint_seconds:
                        self._save()
                        saved = time.monotonic()
                    if self.plan.progress is not None and (now - shown > 0.1 or self.step == self.done.steps):
                        shown = now
                        self.plan.progress(self.step, self.done.steps)
            except KeyboardInterrupt:  # from a callback, or a second Ctrl-C: then perhaps amid an update
                if interrupt.asked:
                    raise
                asked = True
            self._read()
            self.done.seconds = time.monotonic() - start
            self._save()
        if self.events is not None:
            self.events.close()
        if asked or interrupt.asked:
            self._say_that_it_stopped()
        return self.done

    def _look(self) -> None:
        """Whatever is due at this step."""
        step, new = self.step, {}
        if len(self.unread) >= READ_EVERY or step in self.plan.validate_at or step in self.plan.measure_at:
            self._read()
        if self.done.failed_step is not None:
            return
        if step in self.plan.measure_at and step not in self.done.measured and self.plan.measure is not None:
            new = {name: _plain(name, value) for name, value in self.plan.measure(self.model, step).items()}
            self.done.measured[step] = new
        if step in self.plan.validate_at and step not in self.done.valid:
            self.done.valid[step] = perplexity(
                self.model, self.plan.valid, length=self.windows.length, batch=self.windows.batch
            )
            new = {**new, "valid_perplexity": self.done.valid[step]}
        if self.events is not None and new:
            self.events.add(step, new)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, at = divmod(step, len(self.windows))
        if self.order[0] != epoch:
            self.order = (epoch, self.windows.order(self.plan.shuffle, epoch))
        return self.windows[self.order[1][at]]

    def _read(self) -> None:
        """Bring the losses over from the device."""
        if not self.unread:
            return
        first = self.done.step + 1
        new = torch.stack(self.unread).double().cpu().numpy()
        self.unread = []
        self.done.losses = np.concatenate([self.done.losses, new])
        bad = np.flatnonzero(~np.isfinite(new))
        if len(bad):
            self.done.failed_step = first + int(bad[0])
        if self.events is not None:
            for i, loss in enumerate(new):
                self.events.add(first + i, {"loss": float(loss)})

    def _data(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "batch": self.windows.batch,
            "length": self.windows.length,
            "shuffle": self.plan.shuffle,
        }

    def _save(self) -> None:
        """Unless the run has failed: the last good state is of more use."""
        self._read()
        if self.plan.checkpoint is None or self.done.failed_step is not None:
            return
        epoch, at = divmod(self.done.step, len(self.windows))
        words = self.plan.vocabulary
        header = Header(
            self.model.describe(), self.done.step, {**self._data(), "epoch": epoch, "window": at}, fingerprint(words)
        )
        record = {"losses": torch.from_numpy(self.done.losses)}
        record |= {f"valid.{step}": torch.tensor(value, dtype=torch.float64) for step, value in self.done.valid.items()}
        for step, found in self.done.measured.items():
            record |= {f"measured.{step}.{name}": torch.tensor(value) for name, value in found.items()}
        save_checkpoint(self.plan.checkpoint, self.model, header, record, words)
        self.done.saved_step = self.done.step

    def _resume(self) -> None:
        if self.plan.checkpoint is None:
            raise InputError("resume", True, "false without a checkpoint")
        header = read_header(self.plan.checkpoint)  # the model stays as it is until all of it fits
        for name, mine in self._data().items():
            if header.data.get(name) != mine:
                raise InputError("checkpoint", str(self.plan.checkpoint), f"one of the same data (its {name} is "
                                 f"{header.data.get(name)!r}, here {mine!r})")  # fmt: skip
        if header.vocabulary != fingerprint(self.plan.vocabulary):
            raise InputError("checkpoint", str(self.plan.checkpoint), "one of the same vocabulary")
        if header.step > self.done.steps:
            raise InputError("steps", self.done.steps, f"at least {header.step}, those already done")
        record = load_checkpoint(self.plan.checkpoint, self.model)[1]
        self.done.saved_step = header.step
        self.done.losses = record.pop("losses").numpy()
        for name, value in record.items():
            kind, at, *rest = name.split(".", 2)
            if kind == "valid":
                self.done.valid[int(at)] = float(value)
            elif kind == "measured":
                found = self.done.measured.setdefault(int(at), {})
                found[rest[0]] = value.item() if value.ndim == 0 else value.numpy()
        self.done.measured = dict(sorted(self.done.measured.items()))
        self.done.valid = dict(sorted(self.done.valid.items()))

    def _say_that_it_stopped(self) -> None:
        if self.done.complete:  # whoever has more to do must hear of it
            warnings.warn("asked to stop in its last steps: the training is complete", Stopped, stacklevel=4)
            return
        how = (f"its state is in {self.plan.checkpoint}; go on with resume" if self.plan.checkpoint is not None
               else "no checkpoint was asked for, so only this result is left")  # fmt: skip
        warnings.warn(f"stopped after {self.done.step} of {self.done.steps} steps; {how}.", Stopped, stacklevel=4)


def _plain(name: str, value: Any) -> Any:
    """A measurement as a number or an array, which a checkpoint can hold."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the measurement {name!r}", value, "a number or an array of numbers")
    return array.item() if array.ndim == 0 else array
