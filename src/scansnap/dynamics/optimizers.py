"""Optimisers over a leading run dimension, as functions: (table, direction, moments) → (table, moments).

A rule is added by :func:`register_optimizer`; everything that trains finds it by its name. ``d`` is the ascent
direction of the log-likelihood (minus the gradient of the loss), so updates are added. The first dimension of every
tensor is the run; rates, momentum and weight decay are one number per run.

Columns of Y may stand for several identical ones (``multiplicity``); what depends on the whole matrix, the norm
in clipping and the orthogonalisation in Muon, weighs them so that the result is that of the full matrix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from scansnap.checks import InputError, known_keys
from scansnap.knobs import Page, check, knob

if TYPE_CHECKING:  # the command line asks for the names of rules, and must not wait for torch
    from torch import Tensor

Moments = dict[str, "Tensor"]
RULES: dict[str, Rule] = {}
_SCHEDULE = "constant, cosine, cosine(final fraction) or step(every, factor), for example step(100, 0.5)"


class Turn(NamedTuple):
    """What a rule may look at beside table, direction and moments; numbers of a run broadcast along its table."""

    step: int | Tensor  # from 0
    eta: Tensor
    momentum: Tensor
    optimizer: Optimizer  # its constants
    multiplicity: Tensor | None  # (columns,) how many equal columns each stands for


@dataclass(frozen=True)
class Rule:
    """An update rule: ``move(table, d, moments, step)`` gives the new table and moments.

    moments    names of the buffers shaped like the table, which begin at zero
    momentum   whether it has a momentum; a run's momentum is refused where it has none
    decoupled  weight decay shrinks the table beside the update instead of entering the direction
    entrywise  each entry moves by its own direction and moments alone, so a part of a table can move without the rest
    """

    move: Callable[[Tensor, Tensor, Moments, Turn], tuple[Tensor, Moments]]
    moments: tuple[str, ...] = ()
    momentum: bool = False
    decoupled: bool = False
    entrywise: bool = True


@dataclass(frozen=True)
class Optimizer:
    """Which update rule, with the constants shared by all runs.

    Momentum and weight decay are fields of a run. Weight decay is added to the direction, except in adamw and muon,
    where it is decoupled.
    """

    name: str = knob(
        "sgd", "The update rule; sgd has heavy-ball momentum, sign and muon are of the momentum average.",
        name="optimizer", choices=RULES, page=Page("Optimiser"))  # fmt: skip
    beta1: float = knob(0.9, "Adam: how much of the mean of directions stays in a step.", least=0, below=1)
    beta2: float = knob(0.999, "Adam: how much of the mean of their squares stays in a step.", least=0, below=1)
    eps: float = knob(1e-8, "Adam: added to the root of the mean square.", above=0)
    clip: float | None = knob(None, "Largest L2 norm of the direction of one table of one run.", above=0)
    schedule: str = knob("constant", "How the rates change from the first to the last step.", form=_SCHEDULE)

    def __post_init__(self) -> None:
        check(self)
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
        found = re.fullmatch(r"(constant|cosine|step)(?:\(([^()]*)\))?", str(self.schedule))
        if not found:
            raise InputError("schedule", self.schedule, _SCHEDULE)
        try:
            numbers = tuple(float(x) for x in found.group(2).split(",")) if found.group(2) else ()
        except ValueError:
            raise InputError("schedule", self.schedule, _SCHEDULE) from None
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
            raise InputError("schedule", self.schedule, _SCHEDULE)
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

    @property
    def rule(self) -> Rule:
        """The update rule of that name."""
        return RULES[self.name]

    def start(self, table: Tensor) -> Moments:
        """Empty moments."""
        import torch

        return {name: torch.zeros_like(table) for name in self.rule.moments}

    def update(
        self,
        table: Tensor,  # (R, …, rows, columns)
        d: Tensor,  # same shape, ascent direction
        moments: Moments,
        *,
        step: int | Tensor,
        eta: Tensor,  # (R,)
        momentum: Tensor,  # (R,)
        weight_decay: Tensor,  # (R,)
        multiplicity: Tensor | None = None,  # (columns,)
    ) -> tuple[Tensor, Moments]:
        """One update; ``step`` counts from 0 (Adam's bias correction needs it)."""
        eta, momentum, weight_decay = (_along(x, table) for x in (eta, momentum, weight_decay))
        if self.clip is not None:
            d = d * _clip_factor(d, self.clip, multiplicity)
        if self.rule.decoupled:
            table = table * (1 - eta * weight_decay)
        else:
            d = d - weight_decay * table
        return self.rule.move(table, d, moments, Turn(step, eta, momentum, self, multiplicity))


def register_optimizer(name: str, rule: Rule) -> None:
    """Make an update rule known by its name to everything that trains."""
    if not isinstance(rule, Rule):
        raise InputError("rule", rule, "a scansnap.Rule: move, and the names of its moments")
    if name in RULES:
        raise InputError("the name of the optimiser", name, "new: not one of " + ", ".join(RULES))
    RULES[name] = rule


def _sgd(table: Tensor, d: Tensor, moments: Moments, at: Turn) -> tuple[Tensor, Moments]:
    velocity = at.momentum * moments["velocity"] + d
    return table + at.eta * velocity, {"velocity": velocity}


def _nesterov(table: Tensor, d: Tensor, moments: Moments, at: Turn) -> tuple[Tensor, Moments]:
    velocity = at.momentum * moments["velocity"] + d
    return table + at.eta * (d + at.momentum * velocity), {"velocity": velocity}


def _sign(table: Tensor, d: Tensor, moments: Moments, at: Turn) -> tuple[Tensor, Moments]:
    velocity = at.momentum * moments["velocity"] + d
    return table + at.eta * velocity.sign(), {"velocity": velocity}


def _muon(table: Tensor, d: Tensor, moments: Moments, at: Turn) -> tuple[Tensor, Moments]:
    velocity = at.momentum * moments["velocity"] + d
    return table + at.eta * orthogonalize(velocity, at.multiplicity), {"velocity": velocity}


def _adam(table: Tensor, d: Tensor, moments: Moments, at: Turn) -> tuple[Tensor, Moments]:
    beta1, beta2 = at.optimizer.beta1, at.optimizer.beta2
    mean = beta1 * moments["mean"] + (1 - beta1) * d
    square = beta2 * moments["square"] + (1 - beta2) * d * d
    debiased = mean / (1 - beta1 ** (at.step + 1))
    spread = (square / (1 - beta2 ** (at.step + 1))).sqrt() + at.optimizer.eps
    return table + at.eta * debiased / spread, {"mean": mean, "square": square}


RULES |= {
    "sgd": Rule(_sgd, ("velocity",), momentum=True),
    "nesterov": Rule(_nesterov, ("velocity",), momentum=True),
    "adam": Rule(_adam, ("mean", "square")),
    "adamw": Rule(_adam, ("mean", "square"), decoupled=True),
    "sign": Rule(_sign, ("velocity",), momentum=True),
    "muon": Rule(_muon, ("velocity",), momentum=True, decoupled=True, entrywise=False),
}


def orthogonalize(matrix: Tensor, multiplicity: Tensor | None = None) -> Tensor:
    """Singular values pushed towards 1 by five Newton–Schulz steps of degree five (Jordan et al., Muon, 2024).

    A column of multiplicity w enters as one column times √w, which has the same Gram matrix as w copies. No
    factor for the matrix's shape is applied: η is the spectral size of the step.
    """
    import torch

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
