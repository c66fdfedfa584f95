"""Measurements that are on disk too, after each of them: killed at any moment and resumed, the file goes on.

::

    probe.zarr/             variables by step, read by xarray at any moment (see scansnap.storage.growing)
      samples/0 … 20        what the sampled queries attended to (float32, as in memory) in the first measurement, in
                            the last ones and in those an e-fold ago: a training that goes back to a checkpoint finds
                            the ones before it
      attention_first, attention_last     the first and the last of these as variables: other names of the same files

A resumed training says by its first step where it is: what was measured at that step or later belongs to the path that
was given up, and is dropped when the next measurement is written.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from scansnap.checks import InputError
from scansnap.interrupt import Interrupt
from scansnap.probe.look import Measurement, Samples
from scansnap.probe.schema import VARIABLES
from scansnap.probe.statistics.movement import still_needed
from scansnap.probe.store.layout import Layout
from scansnap.probe.store.measurements import FIRST, LAST, Measurements
from scansnap.probe.store.slots import chunk, layout_of, names, sample_of, slots_of
from scansnap.results.trajectory import PROBED
from scansnap.storage import claimed, growing, replacing, sweep_up, writable
from scansnap.storage.growing import Growing, rows_in_chunk

KEPT = 16  # samples of the last measurements; a training may go back by as many
SAME = ("batch", "queries", "corpus", "corpus_hash")  # attributes that measurements in one file share
_FIELD = "out"
_GROUP = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'  # so that Zarr knows what samples is
_writers: weakref.WeakValueDictionary[Path, KeptMeasurements] = weakref.WeakValueDictionary()


def kept_in(
    out: str | PathLike[str],
    attrs: dict[str, Any],
    tokens: Tensor | None = None,
    words: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Measurements:
    """Measurements in the file at ``out``, which is made, or gone on with if it is of the same batch and corpus."""
    target = Path(out)
    if target.suffix != ".zarr":
        raise InputError(_FIELD, str(target), "a name ending in .zarr, or None to keep it in memory")
    if find_spec("zarr") is None:
        raise InputError(_FIELD, str(target), "None, since the package zarr is not installed (pip install zarr)")
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
        self.store: Growing | None = None  # what is gone on with, if there is such a thing
        self.anew = False  # the whole is to be written anew
        self.valid = 0  # rows of the store that are also the first in memory
        self.written: bytes | None = None  # zarr.json as we know it; None: there is none
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
        self.written = _root(self.target)
        try:
            self.store = store = self._checked()
        except InputError:
            if not self.overwrite:
                raise
            self.anew = True
            return
        self.found = {name: value for name, value in store.document["attributes"].items() if name != growing.TABLE}
        self.attrs |= {name: value for name, value in self.found.items() if name not in self.attrs}
        self.layout, self.positions = layout_of(store)
        rows = [store.row(i) for i in range(len(store))]
        self.steps = [int(row["step"]) for row in rows]
        self.rows = [self.layout.widened(row) for row in rows]
        self.first, self.last = (sample_of(store, i, self.layout) for i in (0, len(rows) - 1))
        # another version may have had other variables
        self.anew = any(self.layout.empty(name).shape != rows[0].get(name, np.empty(0)).shape for name in VARIABLES)

    def _checked(self) -> Growing:
        """The file, if it is whole and its measurements can be gone on with."""
        if not growing.is_growing(self.target):
            raise InputError(_FIELD, str(self.target), "a path that does not exist yet, or a probe's file")
        growing.check(_FIELD, self.target)
        store = growing.opened(_FIELD, self.target)
        there = store.document["attributes"]
        if there.get("format") != PROBED:
            raise InputError(_FIELD, str(self.target), f"a path that does not exist yet, or of the format '{PROBED}'")
        for name in SAME:
            if there.get(name) != self.attrs.get(name):
                allowed = f"a file with the same {name} ({self.attrs.get(name)}; there it is {there.get(name)})"
                raise InputError(_FIELD, str(self.target), f"{allowed}, or overwrite=True")
        return store

    def begin(self, step: int) -> None:
        """The first step of this training: what the file has from there on was given up."""
        if self.begun:
            return
        n = next((i for i, one in enumerate(self.steps) if one >= step), len(self.steps))
        if self.steps and n == 0 and not self.overwrite:
            allowed = f"a new file, since training begins again at step {step} and that one has steps from "
            raise InputError(_FIELD, str(self.target), f"{allowed}{self.steps[0]} on (or say overwrite=True)")
        self.begun, self.valid = True, n
        if self.store is None or n == 0:
            self.anew = self.anew or self.store is not None
            self.store, self.steps, self.rows, self.layout, self.positions = None, [], [], Layout(), None
            self.first, self.last, self.anchors = {}, {}, {}
            return
        self.last = sample_of(self.store, n - 1, self.layout)
        if not self.last:
            words = f"the attention at step {self.steps[n - 1]} is no longer in {self.target}, which keeps that of the "
            words += f"first and the last {KEPT} measurements: moved will be unknown at the next one"
            warnings.warn(words, stacklevel=4)
        self.steps, self.rows = self.steps[:n], self.rows[:n]
        self.anchors = {i: sample_of(self.store, i, self.layout) for i in still_needed(self.steps)}

    # --- writing -----------------------------------------------------------------------------------------------

    def add(self, step: int, new: Measurement) -> None:
        """Keep one more, and put it on disk; where that fails it stays in memory, and is tried again with the next."""
        self.begin(step)
        super().add(step, new)
        if not self.layout.layers:
            return
        with Interrupt() as end:  # half a row would be lost
            try:
                self.is_written = False
                self._write()
                self.is_written = True
            except Exception as error:
                self.store = None  # to be looked at again
                reason = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                words = f"the probe could not write step {step} to {self.target} ({reason.rstrip('.')})"
                warnings.warn(f"{words}; it stays in memory", stacklevel=4)
        if end.asked:
            raise KeyboardInterrupt

    def _write(self) -> None:
        if not self.release.alive:
            raise OSError("another probe of this process writes to it")
        sweep_up(self.target.parent)
        there = _root(self.target)
        if there is not None and there != self.written:
            raise OSError("another program has changed it")
        if there is None:  # new, or somebody has removed it
            self.store, self.valid = None, 0
        elif self.store is None and not self.anew:  # a write has failed
            self.store = growing.opened(_FIELD, self.target)
        if self.store is None or self.anew or layout_of(self.store)[0] != self.layout:
            self._create()
        else:
            self._append(self.store)
        self.valid = len(self.rows)

    def _append(self, store: Growing) -> None:
        n, slots = len(self.rows), slots_of(store)
        if len(store) > self.valid:  # the path that was given up must no longer count when its place is taken
            store.cut(self.valid)
            slots = {i: slot for i, slot in slots.items() if i < self.valid}
            self._link(store, slots)  # both before and after these count
            self._commit(store, slots)
        for i in range(len(store), n):
            store.add_rows([{**self.rows[i], "step": np.array(self.steps[i])}])
        slots[n - 1] = next(slot for slot in range(len(slots) + 1) if slot not in slots.values())
        self._put_sample(store, slots[n - 1], self.last)
        needed = still_needed(self.steps, KEPT)
        slots = {i: slot for i, slot in slots.items() if i == 0 or i >= n - KEPT or i in needed}
        self._commit(store, slots)
        self._link(store, slots)

    def _create(self) -> None:
        """The whole file anew, in one step."""
        n = len(self.rows)
        samples = {0: self.first, n - 1: self.last}
        if self.store is not None:  # in a new arrangement: layers have come that were not seen before
            needed = still_needed(self.steps, KEPT)
            kept = [
                i for i in slots_of(self.store) if i < min(self.valid, n - 1) and (i >= max(1, n - KEPT) or i in needed)
            ]
            samples |= {i: sample_of(self.store, i, layout_of(self.store)[0]) for i in kept}
        samples = self.anchors | samples
        slots = {i: slot for slot, (i, sample) in enumerate(sorted(samples.items())) if sample}
        data = self.dataset()
        with replacing(self.target) as scratch:
            _write_zarr(data, scratch)
            rows = [{**row, "step": np.array(step)} for step, row in zip(self.steps, self.rows, strict=True)]
            store = Growing.begin(scratch, "step", rows, [chunk(name) for name in (FIRST, LAST) if name in data])
            store.add_file(f"samples/{growing.ROOT}", _GROUP)
            for i, slot in slots.items():
                self._put_sample(store, slot, samples[i])
            self._commit(store, slots)
            self._link(store, slots)
        self.store, self.anew = growing.opened(_FIELD, self.target), False

    def _put_sample(self, store: Growing, slot: int, samples: Samples) -> None:
        (name, other), (block, rest) = names(slot), self.layout.packed(samples)
        store.add_file(name, block.data.cast("B") if block.size else b"")
        if rest.size:
            store.add_file(other, rest.tobytes())

    def _commit(self, store: Growing, slots: dict[int, int]) -> None:
        """What the store has now counts, with the samples in these slots."""
        counting = {name for slot in slots.values() for name in names(slot)} | {f"samples/{growing.ROOT}"}
        for name in [*store.table["files"]]:
            if name.startswith("samples/") and name not in counting:
                del store.table["files"][name]
        layout = {"layers": [asdict(layer) for layer in self.layout.layers], "shapes": self.layout.shapes,
                  "positions": None if self.positions is None else self.positions.tolist(),
                  "samples": list(slots.items())}  # fmt: skip
        store.table["layout"] = layout
        store.commit(self.attrs)
        self.written = store.written

    def _link(self, store: Growing, slots: dict[int, int]) -> None:
        at = {chunk(FIRST): names(slots[0])[0], chunk(LAST): names(slots[max(slots)])[0]}
        store.link({link: at[link] for link in store.table["links"]})


def _end(claim: ExitStack, process: int) -> None:
    if os.getpid() == process:  # a child that ends has no claim to give up
        claim.close()


def _root(target: Path) -> bytes | None:
    """What zarr.json is now."""
    try:
        return (target / growing.ROOT).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_zarr(data: xr.Dataset, folder: Path) -> None:
    """With arrays along step as :class:`Growing` needs them: raw, some rows a file."""
    encoding: dict[str, Any] = {}
    for name, one in data.variables.items():
        if one.dims[:1] == ("step",):
            row = one.shape[1:]
            n = rows_in_chunk(int(one.dtype.itemsize * np.prod(row)))
            encoding[str(name)] = {"chunks": (n, *(max(1, size) for size in row)), "compressors": None}
        elif name in (FIRST, LAST):
            encoding[str(name)] = {"chunks": one.shape, "compressors": None}
    with warnings.catch_warnings():
        # strings in Zarr 3 are not yet in its written standard; both libraries read them
        warnings.filterwarnings("ignore", message=".*Zarr format 3 specification.*")
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        data.drop_encoding().to_zarr(folder, mode="w", zarr_format=3, consolidated=True, encoding=encoding)
