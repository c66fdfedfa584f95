"""The one training loop for text: it feeds windows of a stream to a model that updates itself, and keeps the record.

What is measured when, where it is validated, how it is stopped and goes on is here; what an update is, is the model's
own. A run interrupted and resumed is the same, bit for bit, as one that was not: batches and rates are functions of the
step, and a model holds all else.

With several processes (:mod:`scansnap.text.distributed`) each has a part of every batch, and the first alone measures,
validates and writes. All have the same weights at all times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_integer
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.corpus.windows import Windows
from scansnap.interrupt import Interrupt, Interrupted
from scansnap.progress import Progress
from scansnap.storage import claimed, writable
from scansnap.storage.versions import decisive_versions, refuse_other_versions
from scansnap.text.distributed import DividedUpdate, PeerLost, World, check_divisible
from scansnap.text.evaluation import perplexity
from scansnap.text.model import LanguageModel
from scansnap.text.model_files import CheckpointHeader, fingerprint, load_checkpoint, read_header, save_checkpoint
from scansnap.text.record import TrainingResult, log_spaced, plain
from scansnap.text.settings import TrainingSettings
from scansnap.text.tensorboard import EventWriter, place_for_events
from scansnap.text.transformer.model import Transformer

Measure = Callable[[LanguageModel, int], dict[str, Any]]
READ_EVERY = 200  # steps between looks at the losses: each look waits for the device
FIRST = 3  # updates that compile, record and fill caches: their time is told apart


def train(
    model: LanguageModel,
    tokens: Any,
    settings: TrainingSettings | None = None,
    *,
    valid: Any = None,
    measure: Measure | None = None,
    vocabulary: Vocabulary | None = None,
    progress: Progress | None = None,
    world: World | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model on a stream of token ids for a number of steps, or of passes over it.

    settings    or its fields as keywords, see :class:`TrainingSettings`; of both, the keywords count
    valid       a stream whose perplexity is taken after each epoch, or ``validate_every`` steps, and at the end
    measure     measure(model, step) → numbers and arrays, kept; at the ``snapshots``
    vocabulary  saved with the model, so that it can be asked about words
    world       of processes that each call this with the same arguments, see :func:`scansnap.text.distributed.join`

    Ctrl-C ends the step under way and raises :class:`scansnap.Interrupted`, whose ``partial`` is the result so far.
    """
    settings = TrainingSettings(**options) if settings is None else replace(settings, **options)
    stream = tokens if isinstance(tokens, Tensor) else np.asarray(tokens)
    windows = Windows(stream, settings.batch * settings.accumulate, settings.length, model.device)
    low, high = windows.bounds()
    if low < 0 or high >= model.vocab_size:
        raise InputError("the stream", f"from {low} to {high}", f"token ids from 0 and below {model.vocab_size}")
    check_divisible(isinstance(model, Transformer), settings.batch, settings.accumulate, world)
    loop = _TrainingLoop(model, windows, settings, valid, measure, vocabulary, progress, world)
    if world is not None and not world.is_main:
        return loop.run(settings.resume)
    if settings.tensorboard is not None:  # say before the work begins what would go wrong after it
        place_for_events(Path(settings.tensorboard))
    if settings.checkpoint is None:
        return loop.run(resume=False)
    path = writable("checkpoint", Path(settings.checkpoint))
    with claimed("checkpoint", path):
        if path.exists() and not (settings.resume or settings.overwrite):
            free = "a file that is not there yet, unless you resume or overwrite"
            raise InputError("checkpoint", str(settings.checkpoint), free)
        return loop.run(settings.resume)


class _TrainingLoop:
    """A training under way."""

    def __init__(
        self,
        model: LanguageModel,
        windows: Windows,
        settings: TrainingSettings,
        valid: Any,
        measure: Measure | None,
        vocabulary: Vocabulary | None,
        progress: Progress | None,
        world: World | None,
    ) -> None:
        self.world, self.first = world, world is None or world.is_main
        self.model, self.windows, self.settings = model, windows, settings
        self.valid, self.measure, self.vocabulary, self.progress = valid, measure, vocabulary, progress
        total = settings.steps if settings.steps is not None else (settings.epochs or 0) * len(windows)
        every = settings.validate_every or len(windows)
        given = settings.snapshots
        snapshots = log_spaced(total) if given is None else [check_integer("snapshots", s, most=total) for s in given]
        self.validate_at = {*range(every, total, every), total} if valid is not None else set()
        self.measure_at = set(snapshots) if measure is not None else set()
        self.checkpoint = None if settings.checkpoint is None else Path(settings.checkpoint)
        self.schedule, self.factor = settings.parsed_schedule(total), 1.0
        self.done, self.asked = TrainingResult(total), False
        self.unread: list[Tensor] = []  # losses still on the device
        self.order: tuple[int, list[int]] = (-1, [])  # epoch and its window numbers
        self.events: EventWriter | None = None

    def run(self, resume: bool) -> TrainingResult:
        if resume:
            self._load()
        self.step_on: Callable[[Tensor, Tensor], Tensor] = self.model.train_step
        if self.world is not None or self.settings.accumulate > 1:
            self.step_on = DividedUpdate(self.model, self.settings.accumulate, self.world)
        if self.settings.tensorboard is not None and self.first:  # only now: a refused training leaves no files
            self.events = EventWriter(Path(self.settings.tensorboard))
        start = time.monotonic()
        with Interrupt() as interrupt:
            try:
                self._update(interrupt)
            except PeerLost as error:
                raise PeerLost(f"{str(error).rstrip('.')}; {self._where_saved()}.") from error
            self._read()
            if not self.schedule.is_constant:
                self.model.scale_rates(1.0)
            self._save()
            self.done.seconds = time.monotonic() - start
        if self.events is not None:
            self.events.close()
        if self.world is not None:
            self.done.processes = self.world.size
            self.world.wait()  # for the file
        if self.asked or interrupt.asked or not (self.done.complete or self.done.failed_step):
            raise self._interrupted()
        return self.done

    @property
    def step(self) -> int:
        """Updates done, with those whose losses were not looked at yet."""
        return self.done.step + len(self.unread)

    def _update(self, interrupt: Interrupt) -> None:
        """Update after update, until the last, a loss that is no number, or Ctrl-C."""
        saved, shown = time.monotonic(), 0.0
        self._call(interrupt, self._look)
        while self.step < self.done.steps and not self._stops(interrupt):
            if self.done.updates < FIRST:
                with self._aside():
                    self._advance()
                    self._read()
                self.done.first_tokens = self.done.tokens
            else:
                self._advance()
            self._call(interrupt, self._look)
            now = time.monotonic()
            if now - saved >= self.settings.checkpoint_seconds:
                self._save()
                saved = time.monotonic()
            if self.progress is not None and (now - shown > 0.1 or self.step == self.done.steps):
                shown = now
                self._call(interrupt, partial(self.progress, self.step, self.done.steps))

    def _call(self, interrupt: Interrupt, callback: Callable[[], None]) -> None:
        """What may be somebody else's: a KeyboardInterrupt of theirs ends the training as Ctrl-C does."""
        try:
            callback()
        except KeyboardInterrupt:
            if interrupt.asked:  # a second Ctrl-C, then perhaps amid an update
                raise
            self.asked = True

    def _stops(self, interrupt: Interrupt) -> bool:
        now = self.asked or interrupt.asked or self.done.failed_step is not None
        return now if self.world is None else self.world.any_stopped(now)

    def _advance(self) -> None:
        """One update."""
        inputs, targets = self._batch(self.step)
        factor = self.schedule.factor(self.step, self.done.steps)
        if factor != self.factor:
            self.model.scale_rates(factor)
            self.factor = factor
        self.unread.append(self.step_on(inputs, targets))
        self.done.tokens += inputs.numel()
        self.done.updates += 1

    def _where_saved(self) -> str:
        if self.checkpoint is None:
            return "no checkpoint was asked for"
        return f"the last saved state is in {self.checkpoint}; continue it with resume"

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, at = divmod(step, len(self.windows))
        if self.order[0] != epoch:
            self.order = (epoch, self.windows.order(self.settings.shuffle, epoch))
        return self.windows[self.order[1][at]]

    def _look(self) -> None:
        """Whatever is due at this step."""
        step = self.step
        if len(self.unread) >= READ_EVERY or step in self.validate_at or step in self.measure_at:
            self._read()
        if self.done.failed_step is not None or not self.first:
            return
        with self._aside():
            self._measure(step)

    def _measure(self, step: int) -> None:
        new: dict[str, Any] = {}
        if step in self.measure_at and step not in self.done.measured and self.measure is not None:
            new = {name: plain(name, value) for name, value in self.measure(self.model, step).items()}
            self.done.measured[step] = new
        if step in self.validate_at and step not in self.done.valid:
            length, batch = self.windows.length, self.settings.batch
            self.done.valid[step] = perplexity(self.model, self.valid, length=length, batch=batch)
            new = {**new, "valid_perplexity": self.done.valid[step]}
        if self.events is not None and new:
            self.events.add(step, new)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """The time of what is not an update. The losses were read before it, so the device has done its part."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.done.aside += time.monotonic() - start

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

    def _save(self) -> None:
        """Unless the run has failed: the last good state is of more use."""
        self._read()
        if self.checkpoint is None or self.done.failed_step is not None or not self.first:
            return
        epoch, at = divmod(self.done.step, len(self.windows))
        data = {**self._data, "epoch": epoch, "window": at, "versions": decisive_versions()}
        header = CheckpointHeader(self.model.describe(), self.done.step, data, fingerprint(self.vocabulary))
        with self._aside():
            save_checkpoint(self.checkpoint, self.model, header, self.done.tensors(), self.vocabulary)
        self.done.saved_step = self.done.step

    def _load(self) -> None:
        assert self.checkpoint is not None
        header = read_header(self.checkpoint)  # the model stays as it is until all of it fits
        theirs = {"schedule": None, **header.data}
        for name, mine in self._data.items():
            if theirs.get(name) != mine:
                raise InputError("checkpoint", str(self.checkpoint), f"one of the same data (its {name} is "
                                 f"{theirs.get(name)!r}, here {mine!r})")  # fmt: skip
        if header.vocabulary != fingerprint(self.vocabulary):
            raise InputError("checkpoint", str(self.checkpoint), "one of the same vocabulary")
        if header.step > self.done.steps:
            raise InputError("steps", self.done.steps, f"at least {header.step}, those already done")
        if header.step < self.done.steps:
            refuse_other_versions("checkpoint", self.checkpoint, header.data.get("versions"))
        record = load_checkpoint(self.checkpoint, self.model)[1]
        self.done = TrainingResult.from_tensors(self.done.steps, header.step, record)

    @cached_property
    def _data(self) -> dict[str, Any]:
        """What a continuation must have in common."""
        stream = self.windows.digest()
        batch, length, shuffle = self.windows.batch, self.windows.length, self.settings.shuffle
        schedule = None if self.schedule.is_constant else str(self.schedule.resolve(self.done.steps))
        return {"stream": stream, "batch": batch, "length": length, "shuffle": shuffle, "schedule": schedule}

    def _interrupted(self) -> Interrupted:
        if self.done.complete:  # the caller may have more to do
            return Interrupted("interrupted in the last steps; the training is complete", self.done)
        how = (f"its state is in {self.checkpoint}; go on with resume" if self.checkpoint is not None
               else "no checkpoint was asked for, so only this result is left")  # fmt: skip
        return Interrupted(f"stopped after {self.done.step} of {self.done.steps} steps; {how}", self.done)
