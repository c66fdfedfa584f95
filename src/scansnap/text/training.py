"""The training loop for text: it passes windows of a stream to a model that updates itself, and records the losses.

The loop measures, validates, saves, stops and resumes; an update is the model's own. A resumed run equals an
uninterrupted one bit by bit: batches and rates are functions of the step, and the file has the rest.

With several processes (`scansnap.text.distributed`) each has a part of every batch, and only the first measures,
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
from scansnap.interrupt import DelayedInterrupt, Interrupted
from scansnap.progress import Progress
from scansnap.storage import check_writable, write_lock
from scansnap.storage.versions import decisive_versions, refuse_other_versions
from scansnap.text.distributed import DividedUpdate, PeerLost, World, check_divisible
from scansnap.text.evaluation import perplexity
from scansnap.text.model import LanguageModel
from scansnap.text.model_files import CheckpointHeader, fingerprint, load_checkpoint, read_header, save_checkpoint
from scansnap.text.settings import TrainingSettings
from scansnap.text.tensorboard import EventWriter, check_event_folder
from scansnap.text.training_result import TrainingResult, log_spaced, to_plain
from scansnap.text.transformer.model import Transformer

Measure = Callable[[LanguageModel, int], dict[str, Any]]
READ_EVERY = 200  # steps between two transfers of the losses, each of which waits for the device
WARM_UP = 3  # updates that compile kernels, capture graphs and fill caches; they count as overhead


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
    """Train a model on a stream of token ids.

    Ctrl-C ends the training after the current step and raises `scansnap.Interrupted`, whose ``partial`` is the
    result so far.

    Parameters
    ----------
    model
        The model; training changes it.
    tokens
        A row of token ids.
    settings
        `TrainingSettings`; its fields as keywords count first. ``steps`` or ``epochs`` is required.
    valid
        A row of token ids; its perplexity is computed after each epoch or ``validate_every`` steps, and at the end.
    measure
        ``measure(model, step)`` returns numbers and arrays by name; it is called at the ``snapshots``.
    vocabulary
        Saved with the model, so that the file can be asked about words.
    progress
        Called as ``progress(done, total)`` with the number of steps.
    world
        The processes that each call this with the same arguments, from `scansnap.text.distributed.join`.

    Returns
    -------
    TrainingResult
        ``losses`` by step, ``valid`` and ``measured``.

    Examples
    --------
    >>> import numpy as np, scansnap as ss
    >>> tokens = np.tile(np.arange(6), 100)
    >>> model = ss.text.YZTransformer(ss.text.YZSettings(vocab_size=6, eta_y=20.0, eta_z=1.0))
    >>> result = ss.text.train(model, tokens, steps=20, batch=4, length=8)
    >>> bool(result.losses[-1] < result.losses[0]), result.step
    (True, 20)
    """
    settings = TrainingSettings(**options) if settings is None else replace(settings, **options)
    stream = tokens if isinstance(tokens, Tensor) else np.asarray(tokens)
    windows = Windows(stream, settings.batch * settings.accumulate, settings.length, model.device)
    low, high = windows.bounds()
    if low < 0 or high >= model.vocab_size:
        raise InputError("tokens", f"ids from {low} to {high}", f"ids from 0 to {model.vocab_size - 1}")
    check_divisible(isinstance(model, Transformer), settings.batch, settings.accumulate, world)
    loop = _TrainingLoop(model, windows, settings, valid, measure, vocabulary, progress, world)
    if not loop.is_main:
        return loop.run(settings.resume)
    if settings.tensorboard is not None:  # fail before the work and not after it
        check_event_folder(Path(settings.tensorboard))
    if settings.checkpoint is None:
        return loop.run(resume=False)
    path = check_writable("checkpoint", Path(settings.checkpoint))
    with write_lock("checkpoint", path):
        if path.exists() and not (settings.resume or settings.overwrite):
            message = f"{path} exists; pass resume=True to continue it or overwrite=True to replace it"
            raise InputError.conflict("checkpoint", message, str(path))
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
        self.world, self.is_main = world, world is None or world.is_main
        self.model, self.windows, self.settings = model, windows, settings
        self.valid, self.measure, self.vocabulary, self.progress = valid, measure, vocabulary, progress
        total = settings.steps if settings.steps is not None else (settings.epochs or 0) * len(windows)
        every, snapshots = settings.validate_every or len(windows), settings.snapshots
        if snapshots is not None:
            snapshots = [check_integer("snapshots", step, most=total) for step in snapshots]
        self.validation_steps = {*range(every, total, every), total} if valid is not None else set()
        steps = log_spaced(total) if snapshots is None else snapshots
        self.measure_steps = set(steps) if measure is not None else set()
        self.checkpoint = None if settings.checkpoint is None else Path(settings.checkpoint)
        self.schedule, self.factor = settings.parsed_schedule(total), 1.0
        self.result, self.is_stopped = TrainingResult(total), False
        self.unread: list[Tensor] = []  # losses still on the device
        self.order: tuple[int, list[int]] = (-1, [])  # epoch and its window numbers
        self.events: EventWriter | None = None

    def run(self, resume: bool) -> TrainingResult:
        if resume:
            self._load()
        self.update: Callable[[Tensor, Tensor], Tensor] = self.model.train_step
        if self.world is not None or self.settings.accumulate > 1:
            self.update = DividedUpdate(self.model, self.settings.accumulate, self.world)
        if self.settings.tensorboard is not None and self.is_main:  # after _load: a refused training writes no files
            self.events = EventWriter(Path(self.settings.tensorboard))
        start = time.monotonic()
        with DelayedInterrupt() as interrupt:
            try:
                self._train(interrupt)
            except PeerLost as error:
                raise PeerLost(f"{str(error).rstrip('.')}; {self._where_saved()}.") from error
            self._read_losses()
            if not self.schedule.is_constant:
                self.model.scale_rates(1.0)
            self._save()
            self.result.seconds = time.monotonic() - start
        if self.events is not None:
            self.events.close()
        if self.world is not None:
            self.result.processes = self.world.size
            self.world.wait()  # until the first process has written the file
        if self.is_stopped or interrupt.requested or not (self.result.is_complete or self.result.failed_step):
            raise self._interrupted()
        return self.result

    @property
    def step(self) -> int:
        """Updates done, with those whose losses are still on the device."""
        return self.result.step + len(self.unread)

    def _train(self, interrupt: DelayedInterrupt) -> None:
        """All updates, until the last, a loss that is not finite, or Ctrl-C."""
        saved, shown = time.monotonic(), 0.0
        self._call(interrupt, self._observe)
        while self.step < self.result.steps and not self._stops(interrupt):
            if self.result.updates < WARM_UP:
                with self._overhead():
                    self._advance()
                    self._read_losses()
                self.result.first_tokens = self.result.tokens
            else:
                self._advance()
            self._call(interrupt, self._observe)
            now = time.monotonic()
            if now - saved >= self.settings.checkpoint_seconds:
                self._save()
                saved = time.monotonic()
            if self.progress is not None and (now - shown > 0.1 or self.step == self.result.steps):
                shown = now
                self._call(interrupt, partial(self.progress, self.step, self.result.steps))

    def _call(self, interrupt: DelayedInterrupt, callback: Callable[[], None]) -> None:
        """Call the user's code: its KeyboardInterrupt ends the training as Ctrl-C does."""
        try:
            callback()
        except KeyboardInterrupt:
            if interrupt.requested:  # a second Ctrl-C, perhaps during an update
                raise
            self.is_stopped = True

    def _stops(self, interrupt: DelayedInterrupt) -> bool:
        stops = self.is_stopped or interrupt.requested or self.result.failed_step is not None
        return stops if self.world is None else self.world.any_stopped(stops)

    def _advance(self) -> None:
        """One update."""
        inputs, targets = self._batch(self.step)
        factor = self.schedule.factor(self.step, self.result.steps)
        if factor != self.factor:
            self.model.scale_rates(factor)
            self.factor = factor
        self.unread.append(self.update(inputs, targets))
        self.result.tokens += inputs.numel()
        self.result.updates += 1

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, number = divmod(step, len(self.windows))
        if self.order[0] != epoch:
            self.order = (epoch, self.windows.order(self.settings.shuffle, epoch))
        return self.windows[self.order[1][number]]

    def _observe(self) -> None:
        """Read losses, measure and validate where that is due."""
        step = self.step
        if len(self.unread) >= READ_EVERY or step in self.validation_steps or step in self.measure_steps:
            self._read_losses()
        if self.result.failed_step is not None or not self.is_main:
            return
        with self._overhead():
            self._measure(step)

    def _measure(self, step: int) -> None:
        new: dict[str, Any] = {}
        if step in self.measure_steps and step not in self.result.measured and self.measure is not None:
            new = {name: to_plain(name, value) for name, value in self.measure(self.model, step).items()}
            self.result.measured[step] = new
        if step in self.validation_steps and step not in self.result.valid:
            length, batch = self.windows.length, self.settings.batch
            self.result.valid[step] = perplexity(self.model, self.valid, length=length, batch=batch)
            new = {**new, "valid_perplexity": self.result.valid[step]}
        if self.events is not None and new:
            self.events.add(step, new)

    @contextmanager
    def _overhead(self) -> Iterator[None]:
        """Time the block as overhead. The losses were read before it, so the device is idle."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.result.overhead += time.monotonic() - start

    def _read_losses(self) -> None:
        """Transfer the losses from the device."""
        if not self.unread:
            return
        first = self.result.step + 1
        new = torch.stack(self.unread).double().cpu().numpy()
        self.unread = []
        self.result.losses = np.concatenate([self.result.losses, new])
        bad = np.flatnonzero(~np.isfinite(new))
        if len(bad):
            self.result.failed_step = first + int(bad[0])
        if self.events is not None:
            for i, loss in enumerate(new):
                self.events.add(first + i, {"loss": float(loss)})

    def _save(self) -> None:
        """Write the checkpoint; a failed run keeps its last good one."""
        self._read_losses()
        if self.checkpoint is None or self.result.failed_step is not None or not self.is_main:
            return
        epoch, window = divmod(self.result.step, len(self.windows))
        data = {**self._data, "epoch": epoch, "window": window, "versions": decisive_versions()}
        header = CheckpointHeader(self.model.describe(), self.result.step, data, fingerprint(self.vocabulary))
        with self._overhead():
            save_checkpoint(self.checkpoint, self.model, header, self.result.tensors(), self.vocabulary)
        self.result.saved_step = self.result.step

    def _load(self) -> None:
        assert self.checkpoint is not None
        header = read_header(self.checkpoint)  # the model stays as it is until all checks have passed
        saved = {"schedule": None, **header.data}
        for name, value in self._data.items():
            if saved.get(name) != value:
                expected = f"a checkpoint of the same data (its {name} is {saved.get(name)!r}, not {value!r})"
                raise InputError("checkpoint", str(self.checkpoint), expected)
        if header.vocabulary != fingerprint(self.vocabulary):
            raise InputError("checkpoint", str(self.checkpoint), "a checkpoint of the same vocabulary")
        if header.step > self.result.steps:
            raise InputError("steps", self.result.steps, f"at least {header.step}, the steps of the checkpoint")
        if header.step < self.result.steps:
            refuse_other_versions("checkpoint", self.checkpoint, header.data.get("versions"))
        record = load_checkpoint(self.checkpoint, self.model)[1]
        self.result = TrainingResult.from_tensors(self.result.steps, header.step, record)

    @cached_property
    def _data(self) -> dict[str, Any]:
        """What a resumed run must have in common."""
        schedule = None if self.schedule.is_constant else str(self.schedule.resolve(self.result.steps))
        return {"stream": self.windows.digest(), "batch": self.windows.batch, "length": self.windows.length,
                "shuffle": self.settings.shuffle, "schedule": schedule}  # fmt: skip

    def _where_saved(self) -> str:
        if self.checkpoint is None:
            return "there is no checkpoint"
        return f"the last saved state is in {self.checkpoint}; pass resume=True to continue it"

    def _interrupted(self) -> Interrupted:
        if self.result.is_complete:  # the caller may have more to do
            return Interrupted("interrupted in the last steps; the training is complete", self.result)
        message = f"stopped after {self.result.step} of {self.result.steps} steps; {self._where_saved()}"
        return Interrupted(message, self.result)
