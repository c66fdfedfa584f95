"""Measure the checkpoints of a folder, in the order of steps, into one file; an interrupted call can be repeated."""

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
from scansnap.probe.checkpoints.find import CheckpointFile, drop_duplicates, find_checkpoints, hash_weights
from scansnap.probe.checkpoints.loaders import IDS, LoadedModel, check_batch, encode_file, get_loader, read_batch
from scansnap.probe.probe import Probe
from scansnap.progress import Progress


@dataclass(frozen=True)
class FolderMeasurement:
    """The measurements of a folder of checkpoints."""

    probe: Probe
    checkpoints: list[CheckpointFile]  # all of the folder
    duplicates: list[
        tuple[CheckpointFile, CheckpointFile]
    ]  # a duplicate, and the later checkpoint with the same weights
    n_earlier: int  # checkpoints that the file already had
    notes: list[str]
    seconds: float

    @property
    def data(self) -> xr.Dataset:
        return self.probe.dataset()

    @property
    def messages(self) -> list[str]:
        """Duplicates and warnings, for the user."""
        return [f"{duplicate.name} is the same as {later.name} (sha {later.sha}): measured once, at step {later.step}"
                for duplicate, later in self.duplicates] + self.notes  # fmt: skip


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
) -> FolderMeasurement:
    """Measure every checkpoint of a folder, in the order of steps; duplicates only once, at the last step.

    Parameters
    ----------
    folder : pathlib.Path
        Sub-folders of Hugging Face checkpoints, or files with state dicts.
    batch : pathlib.Path
        A text, cut into ``sequences`` of ``length`` tokens, or token ids (.pt, .npy).
    out : pathlib.Path
        The probe's file, NAME.zarr. A file of the same checkpoints is continued.
    loader : str
        ``hf``, or ``module:function`` with function(path) → model or (model, tokenizer).
    steps : str, optional
        A regular expression whose group is the step in a name. The default is the last number in the name.
    queries, corpus, overwrite
        As in `scansnap.Probe`; the corpus is a text file.
    device : str
        ``auto``, ``cpu``, ``cuda``, …
    progress : callable, optional
        Called with (done, total) checkpoints.

    Returns
    -------
    FolderMeasurement
        ``data`` is the Dataset of `scansnap.Probe.dataset`, ``messages`` are duplicates and warnings.

    Examples
    --------
    >>> from pathlib import Path
    >>> from scansnap.probe.checkpoints import measure_folder
    >>> result = measure_folder(Path("checkpoints"), Path("text.txt"), out=Path("probe.zarr"))  # doctest: +SKIP
    >>> result.data.entropy_rel.mean("head")  # doctest: +SKIP
    """
    began = time.monotonic()
    if queries is not None:
        check_integer("--queries", queries, least=1)
    check_batch(batch, length, sequences)
    if corpus is not None and not corpus.is_file():
        raise InputError("--corpus", str(corpus), "a text file")
    paths, target = find_checkpoints(folder, steps, hugging_face=loader == "hf"), pick_device(device)
    load = get_loader(loader)
    checkpoints = [hash_weights(checkpoint) for checkpoint in paths]
    todo, duplicates = drop_duplicates(checkpoints)
    notes: list[str] = []
    probe: Probe | None = None
    n_earlier = 0
    for i, checkpoint in enumerate(todo):
        if i < n_earlier:
            continue
        loaded = load(checkpoint.path)
        model = loaded.model.to(target).eval()
        if probe is None:
            ids = read_batch(batch, loaded.tokens, length, sequences).to(target)
            inputs = {"input_ids": ids, "labels": ids} if loaded.returns_loss else ids
            corpus_ids = None if corpus is None else _corpus_ids(corpus, loaded)
            words = loaded.tokens().words if loaded.tokens is not None and batch.suffix not in IDS else None
            with _record_warnings(notes):
                probe = Probe(model, inputs, corpus_ids, queries=queries, out=out, overwrite=overwrite, words=words)
            n_earlier = _count_done(probe, todo, overwrite)
            probe.measurements.attrs["checkpoints"] = json.dumps([[c.name, c.step, c.sha] for c in checkpoints])
            progress(n_earlier, len(todo))
            if n_earlier:
                continue
        probe.model = model
        _measure(probe, checkpoint, notes)
        progress(i + 1, len(todo))
    assert probe is not None
    return FolderMeasurement(probe, checkpoints, duplicates, n_earlier, notes, time.monotonic() - began)


def _corpus_ids(path: Path, loaded: LoadedModel) -> torch.Tensor:
    """Token ids of a text."""
    if loaded.tokens is None:
        hint = "pass --loader a function that returns (model, tokenizer)"
        raise InputError.conflict("--corpus", f"the model has no tokenizer for {path}; {hint}")
    return torch.tensor(encode_file("--corpus", path, loaded.tokens().encode))


def _count_done(probe: Probe, todo: list[CheckpointFile], overwrite: bool) -> int:
    """How many leading checkpoints the file already has, with the same weights."""
    measurements = probe.measurements
    if overwrite:
        measurements.begin(-1)  # drop all
        return 0
    weights = {step: sha for _, step, sha in json.loads(measurements.stored_attrs.get("checkpoints", "[]"))}
    n = 0
    for checkpoint, step in zip(todo, measurements.steps, strict=False):
        if checkpoint.step != step or weights.get(step) != checkpoint.sha:
            break
        n += 1
    return n


def _measure(probe: Probe, checkpoint: CheckpointFile, notes: list[str]) -> None:
    messages: list[str] = []
    with _record_warnings(messages):
        probe.measure(checkpoint.step)
    if checkpoint.step not in probe.measurements.steps:
        raise InputError("FOLDER", str(checkpoint.path), "a model that can be measured", "; ".join(messages))
    if not probe.measurements.is_written:
        raise OSError(". ".join(messages))
    notes += [message for message in messages if message not in notes]


@contextmanager
def _record_warnings(messages: list[str]) -> Iterator[None]:
    """Append the probe's warnings in the block to a list, even if it raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            messages += [str(warning.message) for warning in caught if warning.category is UserWarning]
