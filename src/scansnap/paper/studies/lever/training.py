"""One training of GPT-2 or Llama in which one role has its own learning rate, and what is measured of it.

Models, loss and windows are those of the probe study, and its probe measures entropy. Constant rate after a short
warm-up, gradients clipped to norm 1, no weight decay: decay times a larger rate would be another lever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scansnap.corpus.windows import Windows
from scansnap.paper.shared import language_models
from scansnap.paper.shared.language_models import CLIP, WARM_UP, Architecture, Scale, TextSplits
from scansnap.paper.studies.lever.arms import (
    ADAM_SHARE,
    GPT2,
    LLAMA,
    LOGIT_CONTROL,
    MUON_NOT_QK,
    QK_NORM,
    RULES,
    Arm,
    group_ratios,
)
from scansnap.probe.capture.sources import from_sdpa
from scansnap.probe.probe import Probe
from scansnap.rates.groups import param_groups
from scansnap.rates.optimizer import RuleOptimizer
from scansnap.rates.ratio import ratio_schedule

KEY_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # keys of each query
CURVES = ("loss", "entropy", "support", "largest_logit")
MODELS = {GPT2: Architecture("gpt2", 2), LLAMA: Architecture("llama", 2), QK_NORM: Architecture("qwen3", 2)}


@dataclass(frozen=True)
class LeverScale(Scale):
    """With the number of measurements; the watched sequences are those of the dropped keys, too."""

    measurements: int


@dataclass(frozen=True)
class LeverRun:
    """One training, in plain values."""

    arm: Arm
    ratio: float
    eta: float
    seed: int
    steps: int
    scale: LeverScale
    vocab_size: int
    watch: bool  # else only the loss on the third split is taken, for the choice of the rate


def run(job: LeverRun, text: TextSplits) -> dict[str, Any]:
    """Train; return loss and attention at some steps, or the last loss on text that no figure uses."""
    size = job.scale
    model = build(job)
    windows = Windows(text.train, size.batch, size.length)
    if not job.watch:
        for _ in updates(job, model, windows):
            pass
        return {"loss": loss_on(model, language_models.rows_of(text.test, size.length), job)}
    due = steps_measured(job.steps, size.measurements)
    rows = language_models.rows_of(text.valid, size.length)
    watched = rows[: size.watched]
    probe = Probe(model, {"input_ids": watched[:, :-1]}, every=due)
    curves: dict[str, list[Any]] = {name: [] for name in (*CURVES, "kept")}
    for step in updates(job, model, windows):
        if step in due:
            curves["loss"].append(loss_on(model, rows, job))
            probe.step(step)
            with KeepKeys(None) as full:
                whole = loss_on(model, watched, job)
            curves["largest_logit"].append(full.largest)
            curves["kept"].append([lost - whole for lost in kept_losses(model, watched, job)])
    data = probe.dataset()
    for name in ("entropy", "support"):
        curves[name] = data[name].mean(("layer", "head")).values.tolist()
    finite = [len(values) == len(due) for values in curves.values()]
    if not all(finite):
        raise RuntimeError("a measurement failed")
    return {"steps": due, **curves}


def steps_measured(steps: int, n: int) -> list[int]:
    """The start, and about n steps from an early one on, evenly in the logarithm."""
    return [0, *np.unique(np.geomspace(max(1, steps // 16), steps, n).round().astype(int)).tolist()]


def build(job: LeverRun) -> nn.Module:
    """The model of the arm with new weights."""
    return language_models.build(MODELS[job.arm.model], job.scale, job.vocab_size, job.seed)


def updates(job: LeverRun, model: nn.Module, windows: Windows) -> Iterator[int]:
    """Number of updates done, from 0."""
    groups = param_groups(model, lr=job.eta, **group_ratios(job.arm, job.ratio))
    before_step = prepare_recipe(job, groups)
    optimizer = RuleOptimizer(groups, rule=RULES[job.arm.optimizer], adam_share=ADAM_SHARE)
    warm = max(1, job.steps // WARM_UP)
    schedule = ratio_schedule(optimizer, job.steps, f"warmup({warm}) constant")
    yield 0
    for step, (inputs, targets) in enumerate(language_models.batches(windows, job.seed, job.steps)):
        if job.arm.control == "shuffled":
            targets = shuffled(targets, job.seed * job.steps + step)
        optimizer.zero_grad()
        language_models.cross_entropy(model, inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        before_step(optimizer)
        if job.arm.control == "norm":
            step_with_norm(optimizer, job.ratio)
        else:
            optimizer.step()
        schedule.step()
        yield step + 1


def prepare_recipe(job: LeverRun, groups: list[dict[str, Any]]) -> Callable[[RuleOptimizer], None]:
    """Change the groups as the recipe says, and return what to do before each step."""
    if job.arm.recipe == MUON_NOT_QK:
        for group in groups:
            if group["role"] == "qk":
                group.update(rule="adamw", lr=ADAM_SHARE * group["lr"])
    if job.arm.recipe != LOGIT_CONTROL:
        return lambda optimizer: None
    (of_qk,) = [group for group in groups if group["role"] == "qk"]
    parameters = dict(zip(of_qk["names"], of_qk["params"], strict=True))
    partner = {name: parameters[name[:-3] + {"[q]": "[k]", "[k]": "[q]"}[name[-3:]]] for name in parameters}
    start = {name: float(p.detach().norm()) for name, p in partner.items()}
    groups.remove(of_qk)
    groups += [{**of_qk, "params": [p], "names": [name]} for name, p in parameters.items()]

    def slow_down(optimizer: RuleOptimizer) -> None:
        """The schedule sets the rate again after each step."""
        for group in optimizer.param_groups:
            name = group["names"][0]
            if name.endswith(("weight[q]", "weight[k]")):
                group["lr"] *= start[name] / float(partner[name].detach().norm())

    return slow_down


def shuffled(targets: Tensor, seed: int) -> Tensor:
    """Next tokens of other positions of the batch: only their frequencies can be learned."""
    order = torch.randperm(targets.numel(), generator=torch.Generator().manual_seed(seed))
    return targets.flatten()[order].view_as(targets)


@torch.no_grad()
def step_with_norm(optimizer: RuleOptimizer, ratio: float) -> None:
    """A step whose total length is what it would be if query and key weights had the rate of all others."""
    before = [[p.detach().clone() for p in group["params"]] for group in optimizer.param_groups]
    optimizer.step()
    real = wanted = 0.0
    for group, old in zip(optimizer.param_groups, before, strict=True):
        square = sum(float((p.detach() - b).square().sum()) for p, b in zip(group["params"], old, strict=True))
        real, wanted = real + square, wanted + square / (ratio**2 if group["role"] == "qk" else 1)
    share = math.sqrt(wanted / real) if real else 1.0
    for group, old in zip(optimizer.param_groups, before, strict=True):
        for p, b in zip(group["params"], old, strict=True):
            p.data.copy_(torch.lerp(b, p.data, share))


def loss_on(model: nn.Module, rows: Tensor, job: LeverRun) -> float:
    """Mean loss on rows (n, T + 1), with shuffled next tokens if the arm has them."""
    return language_models.loss_on(model, rows, shuffled(rows[:, 1:], 0) if job.arm.control == "shuffled" else None)


def kept_losses(model: nn.Module, rows: Tensor, job: LeverRun) -> list[float]:
    """The loss when each query attends to its k largest keys only, for each k, without retraining."""
    losses = []
    for k in KEY_COUNTS:
        with KeepKeys(k):
            losses.append(loss_on(model, rows, job))
    return losses


class KeepKeys(TorchFunctionMode):
    """Inside the block attention is restricted to the k largest keys of each query, and renormalised.

    With None it is unchanged, and ``largest`` is the largest attention logit in size.
    """

    def __init__(self, k: int | None) -> None:
        super().__init__()
        self.k, self.largest = k, 0.0

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        captured = from_sdpa(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            n_queries, n_keys = captured.shape[2:]
            rows = captured.rows(torch.arange(n_queries))
            if self.k is None:
                products = captured.products
                assert products is not None
                k = products.k.repeat_interleave(products.q.shape[1] // products.k.shape[1], 1)
                logits = (products.scale * products.q @ k.mT).abs()
                self.largest = max(self.largest, float(logits.masked_fill(~rows.visible, 0.0).max()))
                return func(*args, **kwargs)
            value = kwargs["value"] if "value" in kwargs else args[2]
            value = value.repeat_interleave(rows.p.shape[1] // value.shape[1], 1)
            top = rows.p.topk(min(self.k, n_keys), -1)
            p = torch.zeros_like(rows.p).scatter_(-1, top.indices, top.values)
            return (p / p.sum(-1, keepdim=True)).to(value.dtype) @ value
