"""The result of a training, and its form in the file of the model: tensors by name."""

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
    """Losses, perplexities and measurements of a training. Step 0 is the model before its first update."""

    steps: int  # of the whole training
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (steps done,), nats, each before its update
    valid: dict[int, float] = field(default_factory=dict)  # perplexity by step
    measured: dict[int, dict[str, Any]] = field(default_factory=dict)  # by step
    failed_step: int | None = None  # the first with a loss that is not finite; the training stops there
    seconds: float = 0.0  # of this run, with measurements, validations and writing
    overhead: float = 0.0  # of them: measurements, validations, writing, and the first updates, which compile kernels
    tokens: int = 0  # trained on in this run, by all processes
    first_tokens: int = 0  # of them: in the first updates
    updates: int = 0  # in this run
    processes: int = 1
    saved_step: int | None = None  # of the checkpoint on disk; None: there is none of this training

    @property
    def step(self) -> int:
        """The number of updates."""
        return len(self.losses)

    @property
    def is_complete(self) -> bool:
        return self.step == self.steps and self.failed_step is None

    @property
    def tokens_per_second(self) -> float:
        """With measurements, writing and the start."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def tokens_per_second_of_updates(self) -> float:
        """Of the updates alone, without the first ones; 0 where there are no others."""
        return (self.tokens - self.first_tokens) / max(self.seconds - self.overhead, 1e-9)

    def tensors(self) -> dict[str, Tensor]:
        """losses, ``valid.STEP`` and ``measured.STEP.NAME``."""
        tensors = {"losses": torch.from_numpy(self.losses)}
        tensors |= {f"valid.{step}": torch.tensor(value, dtype=torch.float64) for step, value in self.valid.items()}
        for step, values in self.measured.items():
            tensors |= {f"measured.{step}.{name}": torch.tensor(value) for name, value in values.items()}
        return tensors

    @classmethod
    def from_tensors(cls, steps: int, step: int, tensors: dict[str, Tensor]) -> TrainingResult:
        """The inverse of `tensors`, saved after ``step`` of ``steps``."""
        valid: dict[int, float] = {}
        measured: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            number, _, quantity = rest.partition(".")
            if kind == "valid":
                valid[int(number)] = float(value)
            elif kind == "measured":
                measured.setdefault(int(number), {})[quantity] = value.item() if value.ndim == 0 else value.numpy()
        losses = tensors["losses"].numpy() if "losses" in tensors else np.zeros(0)
        return cls(steps, losses, dict(sorted(valid.items())), dict(sorted(measured.items())), saved_step=step)


def log_spaced(steps: int, per_decade: int = 8) -> list[int]:
    """0, 1, 2, 3, … with growing distances, up to ``steps``: points of a curve over ln t."""
    check_integer("steps", steps)
    check_integer("per_decade", per_decade, least=1)
    n = max(1, math.ceil(per_decade * math.log10(max(steps, 1)))) + 1
    return sorted({0, steps, *(int(s) for s in np.geomspace(1, max(steps, 1), n).round() if s <= steps)})


def to_plain(name: str, value: Any) -> Any:
    """A measurement as a number or an array, which a checkpoint can hold."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputError(name, value, "a number or an array of numbers", "measure returns it")
    return array.item() if array.ndim == 0 else array
