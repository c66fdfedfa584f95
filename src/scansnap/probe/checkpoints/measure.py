"""Measuring the checkpoints of a folder, one after the other, into one file; stopped at any time it goes on."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import xarray as xr

from scansnap.checks import InputError, check_integer
from scansnap.dynamics.device import pick_device
from scansnap.probe.checkpoints.find import Checkpoint, distinct, find, with_sha
from scansnap.probe.checkpoints.loaders import Loaded, loader_of
from scansnap.probe.checkpoints.text import IDS, check_batch, encoded, read_batch
from scansnap.probe.probe import Probe
from scansnap.progress import Progress


@dataclass(frozen=True)
class Outcome:
    """What was measured, and what not."""

    probe: Probe
    checkpoints: list[Checkpoint]  # all of the folder
    same: list[tuple[Checkpoint, Checkpoint]]  # not measured, and the later one that it is the same as
    before: int  # were in the file already
    notes: list[str]
    seconds: float

    @property
    def data(self) -> xr.Dataset:
        return self.probe.dataset()

    @property
    def said(self) -> list[str]:
        """Sentences for people."""
        return [f"{one.name} is the same as {other.name} (sha {one.sha}): measured once, at step {other.step}"
                for one, other in self.same] + self.notes  # fmt: skip


def measure_folder(
    folder: Path,
    batch: Path,
    *,
    out: Path,
    loader: str = "hf",
    steps: str | None = None,
    queries: int | None = 64,
    corpus: Path | None = None,
    length: int | None = None,
    sequences: int | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
) -> Outcome:
    """Every checkpoint of ``folder`` that is not the same as a later one, in the order of steps.

    batch   a text, cut into ``sequences`` of ``length`` tokens, or token ids (.pt, .npy)
    loader  hf, or module:function with function(path) → model, or (model, tokenizer)
    steps   a regular expression whose group is the step in a name; else the last number in it
    """
    began = time.monotonic()
    if queries is not None:
        check_integer("--queries", queries, least=1)
    check_batch(batch, length, sequences)
    if corpus is not None and not corpus.is_file():
        raise InputError("--corpus", str(corpus), "a text file")
    found, where = find(folder, steps, hugging_face=loader == "hf"), pick_device(device)
    load = loader_of(loader)
    checkpoints = [with_sha(one) for one in found]
    todo, same = distinct(checkpoints)
    notes: list[str] = []
    probe: Probe | None = None
    before = 0
    for i, one in enumerate(todo):
        if i < before:
            continue
        loaded = load(one.path)
        model = loaded.model.to(where).eval()
        if probe is None:
            ids = read_batch(batch, loaded.tokens, length, sequences).to(where)
            given = {"input_ids": ids, "labels": ids} if loaded.says_loss else ids
            known = None if corpus is None else _corpus(corpus, loaded)
            words = loaded.tokens().words if loaded.tokens is not None and batch.suffix not in IDS else None
            with _said(notes):
                probe = Probe(model, given, known, queries=queries, out=out, overwrite=overwrite, words=words)
            before = _done(probe, todo, overwrite)
            probe.measurements.attrs["checkpoints"] = json.dumps([[o.name, o.step, o.sha] for o in checkpoints])
            progress(before, len(todo))
            if before:
                continue
        probe.model = model
        _measure(probe, one, notes)
        progress(i + 1, len(todo))
    assert probe is not None
    return Outcome(probe, checkpoints, same, before, notes, time.monotonic() - began)


def _corpus(path: Path, loaded: Loaded) -> torch.Tensor:
    """Token ids of a text."""
    if loaded.tokens is None:
        raise InputError("--corpus", str(path), "left out, or --loader a function that returns (model, tokenizer)")
    return torch.tensor(encoded("--corpus", path, loaded.tokens().encode))


def _done(probe: Probe, todo: list[Checkpoint], overwrite: bool) -> int:
    """How many of the first are in the file already, with the same weights."""
    kept = probe.measurements
    if overwrite:
        kept.begin(-1)  # nothing of it
        return 0
    weights = {step: sha for _, step, sha in json.loads(kept.found.get("checkpoints", "[]"))}
    n = 0
    for one, step in zip(todo, kept.steps, strict=False):
        if one.step != step or weights.get(step) != one.sha:
            break
        n += 1
    return n


def _measure(probe: Probe, one: Checkpoint, notes: list[str]) -> None:
    said: list[str] = []
    with _said(said):
        probe.measure(one.step)
    if one.step not in probe.measurements.steps:
        raise InputError("FOLDER", str(one.path), f"a model that can be measured ({'; '.join(said)})")
    if not probe.measurements.is_written:
        raise OSError(". ".join(said))
    notes += [words for words in said if words not in notes]


@contextmanager
def _said(sentences: list[str]) -> Iterator[None]:
    """Warnings of the probe as sentences in a list, whatever comes of the block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            sentences += [str(one.message) for one in caught if one.category is UserWarning]
