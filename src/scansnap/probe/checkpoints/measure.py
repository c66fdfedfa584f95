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
from scansnap.probe.checkpoints.find import Checkpoint, Skipped, drop_duplicates, find_checkpoints
from scansnap.probe.checkpoints.hub import HUB, find_revisions
from scansnap.probe.checkpoints.loaders import IDS, LoadedModel, check_batch, encode_file, get_loader, read_batch
from scansnap.probe.probe import Probe
from scansnap.probe.trial import FileSize
from scansnap.progress import Progress


@dataclass(frozen=True)
class FolderMeasurement:
    """The measurements of a folder of checkpoints."""

    probe: Probe
    checkpoints: list[Checkpoint]  # all that have a step and weights
    duplicates: list[tuple[Checkpoint, Checkpoint]]  # a duplicate, and the earlier checkpoint with the same weights
    skipped: Skipped
    n_earlier: int  # checkpoints that the file already had
    notes: list[str]
    seconds: float

    @property
    def data(self) -> xr.Dataset:
        return self.probe.dataset()

    @property
    def messages(self) -> list[str]:
        """Duplicates, warnings and what was skipped, for the user."""
        same = [f"{copy.name} has the weights of {first.name} (sha {first.sha}): measured once, at step {first.step}"
                for copy, first in self.duplicates]  # fmt: skip
        return same + self.notes + [f"{name} was skipped: {reason}" for name, reason in self.skipped]


def measure_folder(
    folder: Path | str,
    batch: Path,
    *,
    out: Path,
    loader: str = "hf",
    steps: str | None = None,
    revisions: str = "all",
    cache: Path | None = None,
    queries: int | None = 64,
    corpus: Path | None = None,
    length: int | None = None,
    sequences: int | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
) -> FolderMeasurement:
    """Measure every checkpoint, in the order of steps; duplicates only once, at the first step.

    Checkpoints that cannot be read are skipped, and listed in the result.

    Parameters
    ----------
    folder : pathlib.Path or str
        Sub-folders of Hugging Face checkpoints, files with state dicts, or ``hf:ORGANISATION/NAME``, a repository of
        the hub whose branches are named by steps. Its revisions are downloaded, measured and removed one at a time.
    batch : pathlib.Path
        A text, cut into ``sequences`` of ``length`` tokens, or token ids (.pt, .npy).
    out : pathlib.Path
        The probe's file, NAME.zarr. A file of the same checkpoints is continued.
    loader : str
        ``hf``, or ``module:function`` with function(path) → model or (model, tokenizer).
    steps : str, optional
        A regular expression whose group is the step in a name. The default is the last number in the name, and for
        revisions the number after ``step``.
    revisions : str
        Of a repository: ``all``, ``log:N`` (N per decade of steps), or names separated by commas.
    cache : pathlib.Path, optional
        Where to keep downloaded revisions. The default is to remove each after it was measured.
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
    load, target = get_loader(loader), pick_device(device)
    if str(folder).startswith(HUB):
        checkpoints, skipped = find_revisions(str(folder).removeprefix(HUB), revisions, steps, cache)
    else:
        checkpoints, skipped = find_checkpoints(Path(folder), steps, hugging_face=loader == "hf")
    todo, duplicates = drop_duplicates(checkpoints)
    notes: list[str] = []
    probe: Probe | None = None
    done: set[tuple[int, str]] = set()  # step and weights of the measurements that the file has already
    n_earlier, first_error = 0, None
    for i, checkpoint in enumerate(todo):
        if (checkpoint.step, checkpoint.sha) in done:
            n_earlier += 1
            progress(i + 1, len(todo))
            continue
        try:
            with checkpoint.open() as path:
                loaded = load(path)
                model = loaded.model.to(target).eval()
                if probe is None:
                    ids = read_batch(batch, loaded.tokens, length, sequences).to(target)
                    inputs = {"input_ids": ids, "labels": ids} if loaded.returns_loss else ids
                    corpus_ids = None if corpus is None else _corpus_ids(corpus, loaded)
                    words = loaded.tokens().words if loaded.tokens is not None and batch.suffix not in IDS else None
                    with _record_warnings(notes):
                        probe = CheckpointProbe(
                            model, inputs, corpus_ids, queries=queries, out=out, overwrite=overwrite, words=words
                        )
                    done = _steps_done(probe, overwrite)
                    probe.measurements.attrs["checkpoints"] = json.dumps([[c.name, c.step, c.sha] for c in checkpoints])
                    progress(i, len(todo))
                    if (checkpoint.step, checkpoint.sha) in done:
                        n_earlier += 1
                        continue
                probe.model = model
                _measure(probe, checkpoint, notes)
        except InputError as error:
            if error.field not in ("FOLDER", "--loader", "batch"):  # batch: this model cannot run it
                raise
            error = error.with_field("--batch") if error.field == "batch" else error
            first_error = first_error or error
            skipped.append((checkpoint.name, str(error)))
            continue
        done.clear()  # a measurement drops those of later steps
        progress(i + 1, len(todo))
    if probe is None or not probe.measurements.steps:
        assert first_error is not None
        raise first_error
    return FolderMeasurement(probe, checkpoints, duplicates, skipped, n_earlier, notes, time.monotonic() - began)


class CheckpointProbe(Probe):
    """A probe without a schedule: the checkpoints bound its file, and not the steps of a training."""

    def _state_size(self, out: str, size: FileSize, max_bytes: int) -> None:
        pass


def _corpus_ids(path: Path, loaded: LoadedModel) -> torch.Tensor:
    """Token ids of a text."""
    if loaded.tokens is None:
        hint = "pass --loader a function that returns (model, tokenizer)"
        raise InputError.conflict("--corpus", f"the model has no tokenizer for {path}; {hint}")
    return torch.tensor(encode_file("--corpus", path, loaded.tokens().encode))


def _steps_done(probe: Probe, overwrite: bool) -> set[tuple[int, str]]:
    """Step and weights of the checkpoints that the file already has."""
    measurements = probe.measurements
    if overwrite:
        measurements.begin(-1)  # drop all
        return set()
    weights = {step: sha for _, step, sha in json.loads(measurements.stored_attrs.get("checkpoints", "[]"))}
    return {(step, weights[step]) for step in measurements.steps if step in weights}


def _measure(probe: Probe, checkpoint: Checkpoint, notes: list[str]) -> None:
    messages: list[str] = []
    with _record_warnings(messages):
        probe.measure(checkpoint.step)
    if checkpoint.step not in probe.measurements.steps:
        raise InputError("FOLDER", checkpoint.name, "a model that can be measured", "; ".join(messages))
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
