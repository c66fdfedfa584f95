"""Measurements that are on disk after each of them, so that a training killed at any moment continues its file.

The file is a Dataset in pieces (see :mod:`scansnap.results.pieces`): one for each measurement, and one for what the
sampled queries attended to (float32, as in memory) in the first measurement, in the last ones and in those an e-fold
ago: a training that goes back to a checkpoint finds the ones before it.

A resumed training says by its first step where it is: what was measured at that step or later belongs to the path that
was given up, and is dropped when the next measurement is written.
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
from scansnap.probe.look import Measurement, Samples
from scansnap.probe.statistics.movement import still_needed
from scansnap.probe.store.layout import Layout
from scansnap.probe.store.measurements import FIRST, LAST, Measurements
from scansnap.results import pieces
from scansnap.results.pieces import Entry, Index, Store, free_name, template_of
from scansnap.results.trajectory import PROBED, versions
from scansnap.storage import claimed, replacing, sweep_up, writable
from scansnap.storage.objects import Folder
from scansnap.storage.work_cache import WorkCache

KEPT = 16  # samples of the last measurements; a training may go back by as many
SAME = ("batch", "queries", "corpus", "corpus_hash")  # attributes that measurements in one file share
_FIELD = "out"
_writers: weakref.WeakValueDictionary[Path, KeptMeasurements] = weakref.WeakValueDictionary()


def kept_in(
    out: str | PathLike[str],
    attrs: dict[str, Any],
    tokens: Tensor | None = None,
    words: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Measurements:
    """Measurements in the file at ``out``: a new one, or one of the same batch and corpus, which is continued."""
    target = Path(out)
    if target.suffix != ".zarr":
        raise InputError(_FIELD, str(target), "a name ending in .zarr, or None to keep it in memory")
    writable(_FIELD, target, folder=True)
    return KeptMeasurements(target, attrs, tokens, words, overwrite)


class KeptMeasurements(Measurements):
    """Those of one file. Only one process writes to it; in one process the latest probe does."""

    def __init__(
        self,
        target: Path,
        attrs: dict[str, Any],
        tokens: Tensor | None,
        words: Sequence[str] | None,
        overwrite: bool,
    ) -> None:
        super().__init__(attrs, tokens, words)
        self.target, self.overwrite, self.begun = target, overwrite, False
        self.index: Index | None = None  # what is on disk and is continued
        self.replaces = False  # what is on disk is replaced as a whole
        self.valid = 0  # rows on disk that are also the first in memory
        self.written: bytes | None = None  # content of the index as we know it; None: there is none
        self.arranged: tuple[Layout, bool] | None = None  # what this process wrote the template for
        self.release = self._claimed()
        try:
            self._open()
        except BaseException:
            self.release()
            raise

    # --- what is there already ---------------------------------------------------------------------------------

    def _claimed(self) -> weakref.finalize:
        place = self.target.resolve()
        before = _writers.get(place)
        if before is not None:  # a notebook's cell that is run again
            before.release()
        claim = ExitStack()
        claim.enter_context(claimed(_FIELD, self.target))
        _writers[place] = self
        return weakref.finalize(self, _end, claim, os.getpid())

    def _open(self) -> None:
        if not os.path.lexists(self.target):
            return
        self.written = _content_of_index(self.target)
        try:
            store = self._checked()
            self.layout, self.positions = _arrangement(store.index)
            rows = [self.layout.widened(row) for row in store.rows()]
        except InputError:
            if not self.overwrite:
                raise
            self.replaces = True
            return
        self.index = store.index
        self.found = dict(self.index.attrs)
        self.attrs |= {name: value for name, value in self.found.items() if name not in self.attrs}
        self.steps, self.rows = [step for step, _ in self.index.rows], rows
        self.first, self.last = (self._sample(i) for i in (0, len(rows) - 1))

    def _checked(self) -> Store:
        """The file, if it is sound and its measurements can be continued."""
        if not pieces.is_in_pieces(self.target):
            raise InputError(_FIELD, str(self.target), "a path that does not exist yet, or a probe's file")
        store = Store(_FIELD, self.target)
        store.check()
        there = store.index.attrs
        if there.get("format") != PROBED:
            raise InputError(_FIELD, str(self.target), f"a path that does not exist yet, or of the format '{PROBED}'")
        for name in SAME:
            if there.get(name) != self.attrs.get(name):
                allowed = f"a file with the same {name} ({self.attrs.get(name)}; there it is {there.get(name)})"
                raise InputError(_FIELD, str(self.target), f"{allowed}, or overwrite=True")
        return store

    def _sample(self, row: int) -> Samples:
        """What the sampled queries attended to in a measurement on disk; empty where that is no longer there."""
        if self.index is None or row not in self.index.samples:
            return {}
        return self.layout.by_name(Store(_FIELD, self.target).piece(self.index.samples[row]).arrays)

    def begin(self, step: int) -> None:
        """The first step of this training: what the file has from there on was given up."""
        if self.begun:
            return
        n = next((i for i, one in enumerate(self.steps) if one >= step), len(self.steps))
        if self.steps and n == 0 and not self.overwrite:
            allowed = f"a new file, since training begins again at step {step} and that one has steps from "
            raise InputError(_FIELD, str(self.target), f"{allowed}{self.steps[0]} on (or say overwrite=True)")
        self.begun, self.valid = True, n
        if self.index is None or n == 0:
            self.replaces = self.replaces or self.index is not None
            self.index, self.steps, self.rows, self.layout, self.positions = None, [], [], Layout(), None
            self.first, self.last, self.anchors = {}, {}, {}
            return
        self.last = self._sample(n - 1)
        if not self.last:
            words = f"the attention at step {self.steps[n - 1]} is no longer in {self.target}, which keeps that of the "
            words += f"first and the last {KEPT} measurements: moved will be unknown at the next one"
            warnings.warn(words, stacklevel=4)
        self.steps, self.rows = self.steps[:n], self.rows[:n]
        self.anchors = {i: self._sample(i) for i in still_needed(self.steps)}

    # --- writing -----------------------------------------------------------------------------------------------

    def add(self, step: int, new: Measurement) -> None:
        """Add a measurement, in memory and on disk; where the disk fails it is tried again with the next."""
        self.begin(step)
        super().add(step, new)
        if not self.layout.layers:
            return
        with DelayedInterrupt() as end:  # a measurement would be lost
            try:
                self.is_written = False
                self._write()
                self.is_written = True
            except Exception as error:
                reason = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                words = f"the probe could not write step {step} to {self.target} ({reason.rstrip('.')})"
                warnings.warn(f"{words}; it stays in memory", stacklevel=4)
        if end.requested:
            raise KeyboardInterrupt

    def _write(self) -> None:
        if not self.release.alive:
            raise OSError("another probe of this process writes to it")
        there = _content_of_index(self.target)
        if there is not None and there != self.written:
            raise OSError("another program has changed it")
        if there is None or self.replaces or self.index is None:  # new, or somebody has removed it
            sweep_up(self.target.parent)
            self.index, self.valid, self.arranged = None, 0, None
            with replacing(self.target) as scratch:
                index = self._put(scratch)
        else:
            if self.arranged is None:  # the first of this process: a killed one may have left pieces
                self._remove_unlisted(self.index)
            index = self._put(self.target)
            Folder(self.target).remove(self.index.entries().keys() - index.entries().keys())
        self.written = _content_of_index(self.target)
        self.index, self.replaces, self.valid = index, False, len(self.rows)
        self.arranged = self.layout, self.positions is None

    def _put(self, folder: Path) -> Index:
        """The pieces that are not on disk yet, and last the index: from then on they count."""
        cache = WorkCache(folder, str(self.attrs.get("batch")), versions(), field=_FIELD)
        n, taken = len(self.rows), {} if self.index is None else self.index.entries()

        def put(stem: str, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> Entry:
            name = free_name(stem, taken)
            return name, cache.put(name, values, arrays)

        rows = () if self.index is None else self.index.rows[: self.valid]
        rows += tuple((self.steps[i], put(f"rows/{i:06d}", {"step": self.steps[i]}, self.rows[i]))
                      for i in range(len(rows), n))  # fmt: skip
        samples = {} if self.index is None else {i: at for i, at in self.index.samples.items() if i < self.valid}
        needed = {0, *range(max(0, n - KEPT), n), *still_needed(self.steps, KEPT)}
        for i, sample in (self.anchors | {0: self.first, n - 1: self.last}).items():
            if i in needed and i not in samples:
                samples[i] = put(f"samples/{i:06d}", {}, self.layout.by_number(sample))
        if self.index is not None and self.arranged == (self.layout, self.positions is None):
            template = self.index.template
        else:
            template = put("template", *template_of(self.dataset(), "step", {FIRST: pieces.FIRST, LAST: pieces.LAST}))
        positions = None if self.positions is None else self.positions.tolist()
        samples = {i: samples[i] for i in sorted(needed & samples.keys())}
        more = self.layout.to_values() | {"positions": positions}
        index = Index("step", dict(self.attrs), template, rows, samples, more)
        cache.put(pieces.INDEX, index.to_values())
        return index

    def _remove_unlisted(self, index: Index) -> None:
        place = Folder(self.target)
        place.tidy()
        place.remove(place.sizes().keys() - index.entries().keys() - {pieces.INDEX})


def _end(claim: ExitStack, process: int) -> None:
    if os.getpid() == process:  # a child that ends has no claim to give up
        claim.close()


def _arrangement(index: Index) -> tuple[Layout, np.ndarray | None]:
    """How the rows and samples are arranged, and the positions of the sampled queries."""
    try:
        positions = index.more["positions"]
        return Layout.of_values(index.more), None if positions is None else np.array(positions)
    except (KeyError, TypeError) as error:
        raise InputError(_FIELD, pieces.INDEX, f"the index of a probe's file ({error})") from None


def _content_of_index(target: Path) -> bytes | None:
    """The index as it is now."""
    try:
        return Folder(target).get(pieces.INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
