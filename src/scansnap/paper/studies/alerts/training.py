"""One training of the ladder: a plain loop with a probe in it, which measures at its default schedule.

The learning rate is constant after a short warm-up, and gradients are not clipped, so that runs can diverge. The query
and key weights have a learning rate of their own, a multiple of that of all other weights.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.corpus.windows import Windows
from scansnap.paper.shared import language_models
from scansnap.paper.shared.language_models import MOMENTUM, Architecture, Scale, TextSplits
from scansnap.probe.probe import Probe

MODELS = {"GPT-2": Architecture("gpt2", 2), "Llama": Architecture("llama", 2)}
WARM_UP = 20  # steps
MEASURED = ("max_logit", "entropy_rel")  # of each head


@dataclass(frozen=True)
class LadderRun:
    """One training, in plain values."""

    model: str
    optimizer: str  # AdamW or SGD with momentum
    rate: float
    multiplier: float  # the rate of query and key weights over that of the others
    seed: int
    steps: int
    scale: Scale
    vocab_size: int


def run(job: LadderRun, text: TextSplits) -> dict[str, Any]:
    """Train; return the loss and the gradient norm of every step, and the probe's numbers of measured steps.

    loss, grad_norm (n,) at the weights after 0 … n − 1 updates. A training that is no longer finite ends: n is smaller
    than the number of steps, and the probe measures its weights once more when it is next due.
    steps (S,), MEASURED (S, L, H), nonfinite (S,); final, the loss on the validation text, infinite if not finite.
    """
    size = job.scale
    model = language_models.build(MODELS[job.model], size, job.vocab_size, job.seed)
    rows = language_models.rows_of(text.valid, size.length)
    probe = Probe(model, {"input_ids": rows[: size.watched, :-1]})
    losses, norms = train(job, model, Windows(text.train, size.batch, size.length), probe)
    data = probe.dataset()
    numbers = {name: data[name].transpose("step", "layer", "head").values for name in MEASURED}
    nonfinite = (data["nonfinite"] == 1).any("part").values
    return {"loss": losses, "grad_norm": norms, "final": language_models.loss_on(model, rows),
            "steps": data["step"].values, "nonfinite": nonfinite, **numbers}  # fmt: skip


def train(job: LadderRun, model: nn.Module, windows: Windows, probe: Probe) -> tuple[list[float], list[float]]:
    """Loss and gradient norm of each step."""
    parameters = list(model.parameters())
    optimizer: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=job.rate, momentum=MOMENTUM)
    if job.optimizer == "AdamW":
        optimizer = torch.optim.AdamW(parameters, lr=job.rate)
    faster = query_key_weights(model) if job.multiplier != 1 else []
    losses: list[float] = []
    norms: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the probe's, about NaN
        for step, (inputs, targets) in enumerate(language_models.batches(windows, job.seed, job.steps)):
            probe.step(step)
            for group in optimizer.param_groups:
                group["lr"] = job.rate * min(1.0, (step + 1) / WARM_UP)
            optimizer.zero_grad()
            loss = language_models.cross_entropy(model, inputs, targets)
            loss.backward()
            norm = nn.utils.get_total_norm([weight.grad for weight in parameters if weight.grad is not None])
            losses.append(float(loss.detach()))
            norms.append(float(norm))
            before = [weight.clone() for weight in faster]
            optimizer.step()
            with torch.no_grad():
                for weight, old in zip(faster, before, strict=True):
                    weight.copy_(old + job.multiplier * (weight - old))
            if not math.isfinite(losses[-1]):  # all that follows is NaN
                probe.measure(next((s for s in range(step + 1, job.steps) if probe.due(s)), job.steps))
                return losses, norms
        probe.step(job.steps, last=True)
    return losses, norms


def query_key_weights(model: nn.Module) -> list[Tensor]:
    """Views of the query and key weights and biases; GPT-2 has one matrix of queries, keys and values."""
    views = []
    for name, weight in model.named_parameters():
        if ".c_attn." in name:
            views.append(weight.detach()[..., : 2 * weight.shape[-1] // 3])
        elif ".q_proj." in name or ".k_proj." in name:
            views.append(weight.detach())
    return views
