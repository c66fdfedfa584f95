"""One training from scratch: a plain loop as anybody would write it, with a probe in it.

After a short warm-up the learning rate stays: a rate that decays would freeze attention by itself.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.corpus.windows import Windows
from scansnap.paper.studies.probe.measured import Measured
from scansnap.paper.studies.probe.models import build
from scansnap.text.training import log_spaced

WARM_UP = 20  # one in so many of the steps
CLIP = 1.0  # the largest norm of a gradient
MOMENTUM = 0.9
PER_DECADE = 10  # measurements; a speed over one e-fold then has four


@dataclass(frozen=True)
class Scale:
    """How large models, text and runs are on one kind of device."""

    width: int
    heads: int
    length: int  # odd, so that no other softmax of a model is as wide as its attention
    batch: int
    watched: int  # sequences of validation text that the probe looks at


@dataclass(frozen=True)
class Job:
    """One training, told in plain values."""

    model: str
    optimizer: str  # AdamW or SGD
    eta: float
    seed: int
    steps: int
    scale: Scale
    vocab_size: int
    device: str
    watch: bool  # else only the loss on the third split is taken, for the choice of the rate

    def key(self) -> dict[str, Any]:
        """All that its record depends on, besides the text."""
        return asdict(self)


@dataclass(frozen=True)
class Streams:
    """The text, as token ids."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def run(job: Job, text: Streams) -> dict[str, Any]:
    """Train; what the probe saw, or the loss on text that no figure looks at."""
    size = job.scale
    with precise(job.device, "high"):
        model = build(job.model, vocab_size=job.vocab_size, width=size.width, heads=size.heads, length=size.length,
                      seed=job.seed).to(job.device)  # fmt: skip
        optimizer = optimizer_of(job, model)
        windows = Windows(text.train, size.batch, size.length, job.device)
        if not job.watch:
            for _ in updates(job, model, optimizer, windows):
                pass
            return {"loss": loss_on(model, rows_of(text.test, size.length, job.device))}
        rows = rows_of(text.valid, size.length, job.device)
        due = log_spaced(job.steps, PER_DECADE)
        renaming = zlib.crc32(f"{job.model} {job.optimizer} {job.seed}".encode())
        ids = rows[: size.watched, :-1]
        seen = Measured(model, ids, text.train, due, vocab_size=job.vocab_size, renaming=renaming)
        for step in updates(job, model, optimizer, windows):
            if step not in due:
                continue
            loss = loss_on(model, rows)
            if not math.isfinite(loss):
                return seen.record(failed=True)
            with precise(job.device, "highest"):
                seen.look(step, loss)
        return seen.record()


def optimizer_of(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """With torch's defaults: betas 0.9 and 0.999, a weight decay of 0.01 with AdamW and none with SGD."""
    if job.optimizer == "AdamW":
        return torch.optim.AdamW(model.parameters(), lr=job.eta)
    return torch.optim.SGD(model.parameters(), lr=job.eta, momentum=MOMENTUM)


def updates(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, windows: Windows) -> Iterator[int]:
    """Number of updates done, from 0; windows are shuffled by the seed, anew in each epoch."""
    yield 0
    per_epoch = max(1, len(windows) - 1)  # without the last, which may be short
    warm = max(1, job.steps // WARM_UP)
    order: list[int] = []
    for step in range(job.steps):
        if step % per_epoch == 0:
            order = [i for i in windows.order(job.seed, step // per_epoch) if i < per_epoch]
        for group in optimizer.param_groups:
            group["lr"] = job.eta * min(1.0, (step + 1) / warm)
        inputs, targets = windows[order[step % per_epoch]]
        optimizer.zero_grad()
        cross_entropy(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield step + 1


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over all positions, nats."""
    logits = model(input_ids=inputs).logits
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def loss_on(model: nn.Module, rows: Tensor) -> float:
    """Mean loss on rows (n, T + 1); infinite where it is no number."""
    parts = [len(some) * cross_entropy(model, some[:, :-1], some[:, 1:]) for some in rows.split(16)]
    loss = float(torch.stack(parts).double().sum()) / len(rows)
    return loss if math.isfinite(loss) else math.inf


def rows_of(stream: np.ndarray, length: int, device: str) -> Tensor:
    """The stream cut into rows (n, T + 1), each of which begins where the one before it ends."""
    n = max(1, (len(stream) - 1) // length)
    at = np.arange(n)[:, None] * length + np.arange(min(length, len(stream) - 1) + 1)
    return torch.from_numpy(np.asarray(stream)[at]).long().to(device)


@contextmanager
def precise(device: str, how: str) -> Iterator[None]:
    """Matrix products in TF32 where that is faster (high), or in all of float32 (highest)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(how if device == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
