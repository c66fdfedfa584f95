"""What a training has come to, and how that lies in the file of its model: as tensors by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_integer


@dataclass
class TrainingResult:
    """What came of it. ``measured`` and ``valid`` are by step; step 0 is the model before its first update."""

    steps: int  # to do in all
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (steps done,), nats, each before its update
    valid: dict[int, float] = field(default_factory=dict)  # perplexity
    measured: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed_step: int | None = None  # the first with a loss that is not a number; training stops there
    seconds: float = 0.0  # this time, measuring, validating and writing included
    aside: float = 0.0  # of them: for measuring, validating, writing and the first updates, which compile and record
    tokens: int = 0  # trained on, this time, by all processes
    first_tokens: int = 0  # of them: in these first updates
    updates: int = 0  # made this time
    processes: int = 1
    saved_step: int | None = None  # of the checkpoint as it lies there; None: nothing of this training does

    @property
    def step(self) -> int:
        """Updates done."""
        return len(self.losses)

    @property
    def complete(self) -> bool:
        return self.step == self.steps and self.failed_step is None

    @property
    def tokens_per_second(self) -> float:
        """With all that was measured and written on the way, and the start."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def tokens_per_second_of_updates(self) -> float:
        """Of the updates alone, without the first ones; 0 where there were no others."""
        return (self.tokens - self.first_tokens) / max(self.seconds - self.aside, 1e-9)

    def tensors(self) -> dict[str, Tensor]:
        """losses, ``valid.STEP`` and ``measured.STEP.NAME``."""
        found = {"losses": torch.from_numpy(self.losses)}
        found |= {f"valid.{step}": torch.tensor(value, dtype=torch.float64) for step, value in self.valid.items()}
        for step, values in self.measured.items():
            found |= {f"measured.{step}.{name}": torch.tensor(value) for name, value in values.items()}
        return found

    @classmethod
    def from_tensors(cls, steps: int, step: int, tensors: dict[str, Tensor]) -> TrainingResult:
        """Back from :meth:`tensors`, as saved after ``step`` of ``steps``."""
        valid: dict[int, float] = {}
        measured: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            at, _, quantity = rest.partition(".")
            if kind == "valid":
                valid[int(at)] = float(value)
            elif kind == "measured":
                measured.setdefault(int(at), {})[quantity] = value.item() if value.ndim == 0 else value.numpy()
        losses = tensors["losses"].numpy() if "losses" in tensors else np.zeros(0)
        return cls(steps, losses, dict(sorted(valid.items())), dict(sorted(measured.items())), saved_step=step)


def log_spaced(steps: int, per_decade: int = 8) -> list[int]:
    """0, 1, 2, 3, … ever further apart, ``steps`` the last: where a curve over ln t wants its points."""
    check_integer("steps", steps)
    check_integer("per_decade", per_decade, least=1)
    n = max(1, math.ceil(per_decade * math.log10(max(steps, 1)))) + 1
    return sorted({0, steps, *(int(s) for s in np.geomspace(1, max(steps, 1), n).round() if s <= steps)})


def plain(name: str, value: Any) -> Any:
    """A measurement as a number or an array, which a checkpoint can hold."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the measurement {name!r}", value, "a number or an array of numbers")
    return array.item() if array.ndim == 0 else array
