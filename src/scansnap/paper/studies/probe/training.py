"""One training of GPT-2 or Llama from scratch: a plain loop with two probes in it.

After a short warm-up the learning rate is constant: a decaying rate would freeze attention by itself.

The second probe is a control. Its corpus is the training text with a shuffled vocabulary, so each word has the
distinctness of another word. A head that leaves common for distinct words does not scan by that measure, unless the
permutation happens to favour what it attends to; each training has its own permutation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scansnap.corpus.windows import Windows
from scansnap.paper.shared import language_models
from scansnap.paper.shared.language_models import CLIP, MOMENTUM, WARM_UP, Architecture, Scale, TextSplits
from scansnap.probe.findings.scan import scan_findings
from scansnap.probe.probe import Probe
from scansnap.text.training import log_spaced

PER_DECADE = 10  # measurements; a speed over one e-fold then has four


@dataclass(frozen=True)
class TrainingRun:
    """One training, in plain values."""

    model: str
    optimizer: str  # AdamW or SGD
    eta: float
    seed: int
    steps: int
    scale: Scale
    vocab_size: int
    device: str
    watch: bool  # else only the loss on the third split is taken, for the choice of the rate


def run(job: TrainingRun, text: TextSplits) -> dict[str, Any]:
    """Train; return the probe's measurements, or the loss on text that no figure uses."""
    size = job.scale
    with precise(job.device, "high"):
        model = language_models.build(MODELS[job.model], size, job.vocab_size, job.seed).to(job.device)
        optimizer = optimizer_of(job, model)
        windows = Windows(text.train, size.batch, size.length, job.device)
        if not job.watch:
            for _ in updates(job, model, optimizer, windows):
                pass
            return {"loss": language_models.loss_on(model, language_models.rows_of(text.test, size.length, job.device))}
        rows = language_models.rows_of(text.valid, size.length, job.device)
        due = log_spaced(job.steps, PER_DECADE)
        renaming = zlib.crc32(f"{job.model} {job.optimizer} {job.seed}".encode())
        ids = rows[: size.watched, :-1]
        probes = TrainingProbes(model, ids, text.train, due, vocab_size=job.vocab_size, renaming=renaming)
        for step in updates(job, model, optimizer, windows):
            if step not in due:
                continue
            loss = language_models.loss_on(model, rows)
            if not math.isfinite(loss):
                return probes.record(failed=True)
            with precise(job.device, "highest"):
                probes.measure(step, loss)
        return probes.record()


def optimizer_of(job: TrainingRun, model: nn.Module) -> torch.optim.Optimizer:
    """With torch's defaults: betas 0.9 and 0.999, a weight decay of 0.01 with AdamW and none with SGD."""
    if job.optimizer == "AdamW":
        return torch.optim.AdamW(model.parameters(), lr=job.eta)
    return torch.optim.SGD(model.parameters(), lr=job.eta, momentum=MOMENTUM)


def updates(job: TrainingRun, model: nn.Module, optimizer: torch.optim.Optimizer, windows: Windows) -> Iterator[int]:
    """Number of updates done, from 0."""
    yield 0
    warm = max(1, job.steps // WARM_UP)
    for step, (inputs, targets) in enumerate(language_models.batches(windows, job.seed, job.steps)):
        for group in optimizer.param_groups:
            group["lr"] = job.eta * min(1.0, (step + 1) / warm)
        optimizer.zero_grad()
        language_models.cross_entropy(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield step + 1


@contextmanager
def precise(device: str, how: str) -> Iterator[None]:
    """Matrix products in TF32 where that is faster (high), or in all of float32 (highest)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(how if device == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


MODELS = {
    "GPT-2, 2 layers": Architecture("gpt2", 2),
    "GPT-2, 6 layers": Architecture("gpt2", 6),
    "Llama, 4 layers": Architecture("llama", 4),
}
DEEP = "GPT-2, 6 layers"  # the model in which order by depth is tested


SMALLEST = 0.01  # scan index that counts; the probe asks users for more
IN_THE_END = ("scan_index", "scan_low", "scan_high", "scan_chance")
OF_HEADS = ("scans", "snaps", "t_snap", "t_snap_ln", "t_fastest_ln", "frozenness", "frozenness_ln")
WORDS = ("verdict", "t_snap_ln_reason")
CURVES = ("scan_index", "moved_from_start", "rank_corr", "sink_share")


class TrainingProbes:
    """The probes of one training, and the losses on the validation text."""

    def __init__(
        self, model: nn.Module, ids: Tensor, train: np.ndarray, steps: Sequence[int], *, vocab_size: int, renaming: int
    ) -> None:
        names = np.random.default_rng(renaming).permutation(vocab_size)
        self.probe = Probe(model, {"input_ids": ids}, corpus=train, every=steps)
        ends = (steps[0], steps[-1])  # a scan is the change from the first to the last
        self.control = Probe(model, {"input_ids": ids}, corpus=names[train], every=ends)
        self.losses: list[float] = []

    def measure(self, step: int, loss: float) -> None:
        """Record the loss; let the probes measure where they are due."""
        self.losses.append(loss)
        self.probe.step(step, loss)
        self.control.step(step, loss)

    def record(self, failed: bool = False) -> dict[str, Any]:
        """By step S, layer L and head H: measurements, and what :mod:`scansnap.probe.findings` derives from them.

        steps, loss (S,); CURVES (S, L, H), rank_corr also by what it is against; the rest (L, H), the scan index of the
        control and whether it scans among it. NaN where training failed, and the verdict is ``failed``.
        """
        data, control = (probe.dataset() for probe in (self.probe, self.control))
        data, control = (dataset.assign(scans=scan_findings(dataset, SMALLEST).scans) for dataset in (data, control))
        if not failed and data.sizes["step"] < len(self.losses):
            raise RuntimeError("a measurement failed")  # the probe has warned, and let training go on
        last, heads = data.isel(step=-1), ("layer", "head")
        record = {f"{name}_curve": data[name].transpose("step", *heads, ...).values for name in CURVES}
        record |= {name: last[name].transpose(*heads).values for name in (*IN_THE_END, *OF_HEADS)}
        record |= {"control": control["scan_index"].isel(step=-1).transpose(*heads).values,
                  "control_scans": control["scans"].transpose(*heads).values}  # fmt: skip
        words = {name: data[name].transpose(*heads).values.astype(np.str_) for name in WORDS}
        if failed:
            record = {name: np.full(values.shape, np.nan) for name, values in record.items()}
            words = {name: np.full(values.shape, "failed") for name, values in words.items()}
        return {"steps": data["step"].values, "loss": self.losses, **record, **words}
