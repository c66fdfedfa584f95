"""Optimisers over a leading run dimension, as functions: (table, direction, state) → (table, state).

``d`` is the ascent direction of the log-likelihood (minus the gradient of the loss), so updates are added.
The first dimension of every tensor is the run; rates, momentum and weight decay are one number per run.

Columns of Y may stand for several identical ones (``multiplicity``); what depends on the whole matrix, the norm
in clipping and the orthogonalisation in Muon, weighs them so that the result is that of the full matrix.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from scansnap.checks import InputError, choice, known_keys, real

State = dict[str, Tensor]

NAMES = ("sgd", "nesterov", "adam", "adamw", "sign", "muon")
_BUFFERS = {"sgd": ("velocity",), "nesterov": ("velocity",), "sign": ("velocity",), "muon": ("velocity",),
            "adam": ("mean", "square"), "adamw": ("mean", "square")}  # fmt: skip


@dataclass(frozen=True)
class Optimizer:
    """Which update rule, with the constants shared by all runs.

    name      sgd (plain, or heavy-ball where the run's momentum is above 0), nesterov, adam, adamw, sign
              (of the momentum average), muon (orthogonalised momentum)
    clip      largest L2 norm of the direction of one table of one run, or None
    schedule  constant, cosine, cosine(final fraction), step(every, factor)

    Weight decay (a run field) is added to the direction, except in adamw and muon, where it is decoupled.
    """

    name: str = "sgd"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    clip: float | None = None
    schedule: str = "constant"

    def __post_init__(self) -> None:
        choice("optimizer", self.name, NAMES)
        real("beta1", self.beta1, least=0, below=1)
        real("beta2", self.beta2, least=0, below=1)
        real("eps", self.eps, above=0)
        if self.clip is not None:
            real("clip", self.clip, above=0)
        self._schedule()

    @classmethod
    def of(cls, value: Any) -> Optimizer:
        """From a name, a table of settings, or as it is."""
        if isinstance(value, Optimizer):
            return value
        if isinstance(value, dict):
            known_keys("optimizer", value, asdict(cls()))
            return cls(**value)
        return cls(name=value)

    def _schedule(self) -> tuple[str, tuple[float, ...]]:
        allowed = "constant, cosine, cosine(final fraction) or step(every, factor), for example step(100, 0.5)"
        found = re.fullmatch(r"(constant|cosine|step)(?:\(([^()]*)\))?", str(self.schedule))
        if not found:
            raise InputError("schedule", self.schedule, allowed)
        try:
            numbers = tuple(float(x) for x in found.group(2).split(",")) if found.group(2) else ()
        except ValueError:
            raise InputError("schedule", self.schedule, allowed) from None
        kind = found.group(1)
        good = {
            "constant": numbers == (),
            "cosine": numbers == () or (len(numbers) == 1 and 0 <= numbers[0] <= 1),
            "step": len(numbers) == 2
            and 1 <= numbers[0] < math.inf
            and numbers[0] == int(numbers[0])
            and 0 < numbers[1] < math.inf,
        }[kind]
        if not good:
            raise InputError("schedule", self.schedule, allowed)
        return kind, numbers

    def rate_factor(self, step: int, steps: int) -> float:
        """What the base rate is multiplied by in update number ``step`` (from 0) of ``steps``."""
        kind, numbers = self._schedule()
        if kind == "cosine":
            final = numbers[0] if numbers else 0.0
            return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * step / max(steps, 1)))
        if kind == "step":
            try:
                return numbers[1] ** (step // int(numbers[0]))
            except OverflowError:  # a factor above 1, many times over: the run ends as non-finite
                return math.inf
        return 1.0

    def start(self, table: Tensor) -> State:
        """Empty moment buffers."""
        return {name: torch.zeros_like(table) for name in _BUFFERS[self.name]}

    def update(
        self,
        table: Tensor,  # (R, …, rows, columns)
        d: Tensor,  # same shape, ascent direction
        state: State,
        *,
        step: int | Tensor,
        eta: Tensor,  # (R,)
        momentum: Tensor,  # (R,)
        weight_decay: Tensor,  # (R,)
        multiplicity: Tensor | None = None,  # (columns,)
    ) -> tuple[Tensor, State]:
        """One update; ``step`` counts from 0 (Adam's bias correction needs it)."""
        eta, momentum, weight_decay = (_along(x, table) for x in (eta, momentum, weight_decay))
        if self.clip is not None:
            d = d * _clip_factor(d, self.clip, multiplicity)
        if self.name in ("adamw", "muon"):
            table = table * (1 - eta * weight_decay)
        else:
            d = d - weight_decay * table
        if self.name in ("adam", "adamw"):
            mean = self.beta1 * state["mean"] + (1 - self.beta1) * d
            square = self.beta2 * state["square"] + (1 - self.beta2) * d * d
            debiased = mean / (1 - self.beta1 ** (step + 1))
            spread = (square / (1 - self.beta2 ** (step + 1))).sqrt() + self.eps
            return table + eta * debiased / spread, {"mean": mean, "square": square}
        velocity = momentum * state["velocity"] + d
        if self.name == "nesterov":
            move = d + momentum * velocity
        elif self.name == "sign":
            move = velocity.sign()
        elif self.name == "muon":
            move = orthogonalize(velocity, multiplicity)
        else:
            move = velocity
        return table + eta * move, {"velocity": velocity}


def orthogonalize(matrix: Tensor, multiplicity: Tensor | None = None) -> Tensor:
    """Singular values pushed towards 1 by five Newton–Schulz steps of degree five (Jordan et al., Muon, 2024).

    A column of multiplicity w enters as one column times √w, which has the same Gram matrix as w copies. No
    factor for the matrix's shape is applied: η is the spectral size of the step.
    """
    weight = multiplicity.sqrt() if multiplicity is not None else 1.0
    x = matrix * weight
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # what is only rounding stays small
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x) / weight


def _clip_factor(d: Tensor, clip: float, multiplicity: Tensor | None) -> Tensor:
    squared = d * d if multiplicity is None else d * d * multiplicity
    norm = squared.flatten(1).sum(1).sqrt()
    return _along((clip / norm.clamp_min(clip)), d)


def _along(per_run: Tensor, table: Tensor) -> Tensor:
    return per_run.reshape(-1, *[1] * (table.ndim - 1))
