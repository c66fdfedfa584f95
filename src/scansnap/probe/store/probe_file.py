"""Write each measurement to disk at once, so that a training killed at any moment can continue its file.

The file is a Dataset in pieces of a WorkCache (see `scansnap.results.growing`): one piece per measurement, and one
for the samples (float32) of the first measurement, the last ones and those an e-fold ago. A training that goes back to
a checkpoint finds the samples before it.

A resumed training passes its first step. Measurements from that step on belong to the abandoned run; the next write
drops them.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from scansnap.checks import InputError
from scansnap.interrupt import DelayedInterrupt
from scansnap.probe.measurement import Measurement, Samples
from scansnap.probe.schema import PARTS
from scansnap.probe.statistics.sampled import needed_indices
from scansnap.probe.store.measurements import FIRST, LAST, MeasurementLayout, Measurements, Row
from scansnap.results import growing
from scansnap.results.growing import Entry, GrowingDataset, Index, free_name, template_of
from scansnap.results.trajectory import PROBED, versions
from scansnap.storage import check_writable, remove_leftovers, replacing, write_lock
from scansnap.storage.objects import Folder
from scansnap.storage.work_cache import WorkCache

SAMPLES = 16  # of the last measurements; a training may go back by as many
IDENTITY = ("batch", "queries", "corpus", "corpus_hash")  # attributes that identify a file
_FIELD = "out"
_writers: weakref.WeakValueDictionary[Path, MeasurementFile] = weakref.WeakValueDictionary()


def open_measurements(
    out: str | PathLike[str],
    attrs: dict[str, Any],
    tokens: Tensor | None = None,
    words: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Measurements:
    """Measurements in the file at ``out``: a new one, or one of the same batch and corpus, which is continued."""
    target = Path(out)
    if target.suffix != ".zarr":
        raise InputError(_FIELD, str(target), "a path ending in .zarr, or None to keep measurements in memory")
    check_writable(_FIELD, target, folder=True)
    return MeasurementFile(target, attrs, tokens, words, overwrite)


class MeasurementFile(Measurements):
    """Measurements that are written to a file. One process writes to it, and in it the latest probe."""

    def __init__(
        self,
        target: Path,
        attrs: dict[str, Any],
        tokens: Tensor | None,
        words: Sequence[str] | None,
        overwrite: bool,
    ) -> None:
        super().__init__(attrs, tokens, words)
        self.target, self.overwrite, self.has_begun = target, overwrite, False
        self.index: Index | None = None  # of the file that is continued
        self.replaces = False  # whether the next write replaces the whole file
        self.replaced: tuple[int, Row] | None = None  # the earlier measurement of the step where this training begins
        self.valid = 0  # leading rows that are the same on disk and in memory
        self.written: bytes | None = None  # last known content of the index; None: no index
        self.template_layout: tuple[MeasurementLayout, bool] | None = (
            None  # of the template on disk, if this process wrote it
        )
        self.release = self._lock()
        try:
            self._open()
        except BaseException:
            self.release()
            raise

    def _lock(self) -> weakref.finalize:
        path = self.target.resolve()
        earlier = _writers.get(path)
        if earlier is not None:  # a notebook cell that runs again
            earlier.release()
        lock = ExitStack()
        lock.enter_context(write_lock(_FIELD, self.target))
        _writers[path] = self
        return weakref.finalize(self, _release, lock, os.getpid())

    def _open(self) -> None:
        if not os.path.lexists(self.target):
            return
        self.written = _read_index(self.target)
        try:
            store = self._check()
            self.layout, self.positions = _read_layout(store.index)
            rows = [self.layout.widen(row) for row in store.rows()]
        except InputError:
            if not self.overwrite:
                raise
            self.replaces = True
            return
        self.index = store.index
        self.stored_attrs = dict(self.index.attrs)
        self.attrs |= {name: value for name, value in self.stored_attrs.items() if name not in self.attrs}
        self.steps, self.rows = [step for step, _ in self.index.rows], rows
        self.first, self.last = (self._sample(i) for i in (0, len(rows) - 1))

    def _check(self) -> GrowingDataset:
        """The file, if it is intact and this probe can continue it."""
        if not growing.is_growing_dataset(self.target):
            raise InputError.conflict(
                _FIELD, f"{self.target} exists and is no probe's file; pass another path", str(self.target)
            )
        store = GrowingDataset(_FIELD, self.target)
        store.check()
        attrs = store.index.attrs
        if attrs.get("format") != PROBED:
            raise InputError.conflict(
                _FIELD, f"{self.target} exists and has not the format '{PROBED}'; pass another path", str(self.target)
            )
        for name in IDENTITY:
            if attrs.get(name) != self.attrs.get(name):
                message = f"has {name} {attrs.get(name)}, this probe {self.attrs.get(name)}"
                raise InputError.conflict(
                    _FIELD, f"{self.target} {message}; pass overwrite=True to replace it", str(self.target)
                )
        return store

    def _sample(self, row: int) -> Samples:
        """The samples of a measurement on disk; empty if they are no longer stored."""
        if self.index is None or row not in self.index.samples:
            return {}
        return self.layout.by_key(GrowingDataset(_FIELD, self.target).piece(self.index.samples[row]).arrays)

    def begin(self, step: int) -> None:
        """Continue the file at the first step of this training; later measurements are of an abandoned run."""
        if self.has_begun:
            return
        n = next((i for i, measured in enumerate(self.steps) if measured >= step), len(self.steps))
        if self.steps and n == 0 and not self.overwrite:
            message = f"has steps from {self.steps[0]} on, and this training begins at step {step}"
            raise InputError.conflict(
                _FIELD, f"{self.target} {message}; pass overwrite=True to replace it", str(self.target)
            )
        self.has_begun, self.valid = True, n
        if n < len(self.steps) and self.steps[n] == step:
            self.replaced = step, self.rows[n]
        if self.index is None or n == 0:
            self.replaces = self.replaces or self.index is not None
            self.index, self.steps, self.rows, self.layout, self.positions = None, [], [], MeasurementLayout(), None
            self.first, self.last, self.anchors = {}, {}, {}
            return
        self.last = self._sample(n - 1)
        if not self.last:
            message = f"{self.target} stores samples of the first and the last {SAMPLES} measurements, not of step "
            message += f"{self.steps[n - 1]}; moved is unknown at the next measurement"
            warnings.warn(message, stacklevel=4)
        self.steps, self.rows = self.steps[:n], self.rows[:n]
        self.anchors = {i: self._sample(i) for i in needed_indices(self.steps)}

    def add(self, step: int, new: Measurement) -> None:
        """Add a measurement in memory and on disk; after a failure the next one writes it too."""
        self.begin(step)
        at, row = self.replaced or (None, {})
        if step == at and "train_loss" not in new.values:  # a resumed training has no loss yet
            new.values["train_loss"], i = [row["train_loss"]], PARTS.index("train_loss")
            new.values["nonfinite"][0][i] = row["nonfinite"][i]
        super().add(step, new)
        if not self.layout.layers:
            return
        with DelayedInterrupt() as end:  # do not lose a measurement
            try:
                self.is_written = False
                self._write()
                self.is_written = True
            except Exception as error:
                reason = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                message = f"the probe could not write step {step} to {self.target} ({reason.rstrip('.')})"
                warnings.warn(f"{message}; it stays in memory", stacklevel=4)
        if end.requested:
            raise KeyboardInterrupt

    def _write(self) -> None:
        if not self.release.alive:
            raise OSError("another probe of this process writes to it")
        content = _read_index(self.target)
        if content is not None and content != self.written:
            raise OSError("another program has changed it")
        if content is None or self.replaces or self.index is None:  # new, or removed by somebody
            remove_leftovers(self.target.parent)
            self.index, self.valid, self.template_layout = None, 0, None
            with replacing(self.target) as scratch:
                index = self._put(scratch)
        else:
            if self.template_layout is None:  # the first write: a killed process may have left pieces
                self._remove_unlisted(self.index)
            index = self._put(self.target)
            Folder(self.target).remove(self.index.entries().keys() - index.entries().keys())
        self.written = _read_index(self.target)
        self.index, self.replaces, self.valid = index, False, len(self.rows)
        self.template_layout = self.layout, self.positions is None

    def _put(self, folder: Path) -> Index:
        """Write the pieces that are not on disk, then the index, which makes them valid."""
        cache = WorkCache(folder, str(self.attrs.get("batch")), versions(), field=_FIELD)
        n, taken = len(self.rows), {} if self.index is None else self.index.entries()

        def put(stem: str, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> Entry:
            name = free_name(stem, taken)
            return name, cache.put(name, values, arrays)

        rows = () if self.index is None else self.index.rows[: self.valid]
        rows += tuple((self.steps[i], put(f"rows/{i:06d}", {"step": self.steps[i]}, self.rows[i]))
                      for i in range(len(rows), n))  # fmt: skip
        samples = {} if self.index is None else {i: at for i, at in self.index.samples.items() if i < self.valid}
        needed = {0, *range(max(0, n - SAMPLES), n), *needed_indices(self.steps, SAMPLES)}
        for i, sample in (self.anchors | {0: self.first, n - 1: self.last}).items():
            if i in needed and i not in samples:
                samples[i] = put(f"samples/{i:06d}", {}, self.layout.by_index(sample))
        if self.index is not None and self.template_layout == (self.layout, self.positions is None):
            template = self.index.template
        else:
            template = put("template", *template_of(self.dataset(), "step", {FIRST: growing.FIRST, LAST: growing.LAST}))
        positions = None if self.positions is None else self.positions.tolist()
        samples = {i: samples[i] for i in sorted(needed & samples.keys())}
        more = self.layout.to_values() | {"positions": positions}
        index = Index("step", dict(self.attrs), template, rows, samples, more)
        cache.put(growing.INDEX, index.to_values())
        return index

    def _remove_unlisted(self, index: Index) -> None:
        folder = Folder(self.target)
        folder.tidy()
        folder.remove(folder.sizes().keys() - index.entries().keys() - {growing.INDEX})


def _release(lock: ExitStack, process: int) -> None:
    if os.getpid() == process:  # a forked child must not release the lock
        lock.close()


def _read_layout(index: Index) -> tuple[MeasurementLayout, np.ndarray | None]:
    """The layout of rows and samples, and the positions of the sampled queries."""
    try:
        positions = index.more["positions"]
        return MeasurementLayout.of_values(index.more), None if positions is None else np.array(positions)
    except (KeyError, TypeError) as error:
        raise InputError(_FIELD, growing.INDEX, "the index of a probe's file", str(error)) from None


def _read_index(target: Path) -> bytes | None:
    """The current content of the index."""
    try:
        return Folder(target).get(growing.INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
