"""How the rates of a training change from update to update: a factor of those that the model was given.

    constant    1
    cosine      floor + (1 − floor)(1 + cos πt)/2       t from 0 to 1 over the schedule's steps after the warm-up
    linear      floor + (1 − floor)(1 − t)
    step        max(floor, by^⌊n/every⌋)                n updates after the warm-up

Before that the factor rises along a line, (s + 1)/warmup for update s < warmup. It is a function of the update's number
alone, so a training that was interrupted goes on with the same rates. Loads no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from scansnap.checks import InputError


@dataclass(frozen=True)
class Schedule:
    """A schedule with its numbers; ``steps`` is when it has come down to ``floor``."""

    name: str
    steps: int
    warmup: int = 0
    floor: float = 0.0
    every: int | None = None
    by: float = 0.5

    def __post_init__(self) -> None:
        if self.name == "step" and self.every is None:
            raise InputError("decay_every", None, "given with the schedule step")
        if self.name != "step" and self.every is not None:
            raise InputError("decay_every", self.every, f"left out with the schedule {self.name}")
        if self.name in ("cosine", "linear") and 0 < self.steps <= self.warmup:
            raise InputError("warmup", self.warmup, f"below the {self.steps} steps of the schedule")

    @property
    def still(self) -> bool:
        """Whether all rates stay what they are."""
        return self.name == "constant" and not self.warmup

    def factor(self, step: int) -> float:
        """Of the update after ``step`` others."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return SCHEDULES[self.name](self, step - self.warmup)

    def to_dict(self) -> dict[str, Any]:
        """What a continuation must have in common: the numbers that this schedule depends on."""
        if self.name == "constant":
            return {"name": self.name, "warmup": self.warmup}
        without = ("every", "by") if self.name != "step" else ("steps",)
        return {name: value for name, value in asdict(self).items() if name not in without}

    def part(self, n: int) -> float:
        """t, after n updates without those of the warm-up."""
        return min(1.0, n / max(1, self.steps - self.warmup))

    def between(self, share: float) -> float:
        return self.floor + (1 - self.floor) * share


SCHEDULES: dict[str, Callable[[Schedule, int], float]] = {
    "constant": lambda of, n: 1.0,
    "cosine": lambda of, n: of.between((1 + math.cos(math.pi * of.part(n))) / 2),
    "linear": lambda of, n: of.between(1 - of.part(n)),
    "step": lambda of, n: max(of.floor, of.by ** (n // (of.every or 1))),
}
