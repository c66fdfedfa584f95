"""How the cost grows with runs, steps, batch and support, one at a time; and that it does not grow with T."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import linregress

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.runs import grid

BASE: dict[str, int] = {"runs": 64, "steps": 100, "batch": 128, "support": 20, "context": 128}
AXES: dict[str, tuple[int, ...]] = {
    "runs": (16, 32, 64, 128, 256, 512),
    "steps": (25, 50, 100, 200, 400, 800),
    "batch": (32, 64, 128, 256, 512, 1024),
    "support": (20, 40, 80, 160, 320),
    "context": (16, 128, 1_000, 10_000, 100_000, 1_000_000),
}


@dataclass(frozen=True)
class Line:
    """Seconds along one axis, all else as in BASE."""

    axis: str
    values: np.ndarray
    seconds: np.ndarray

    @property
    def exponent(self) -> float:
        """Slope in the log-log plot over the upper half, where fixed costs no longer show."""
        half = len(self.values) // 2
        return float(linregress(np.log(self.values[half:]), np.log(self.seconds[half:])).slope)


def measure(axis: str, device: str = "cpu", repeats: int = 3) -> Line:
    """Best of ``repeats`` at each value of the axis."""
    seconds = [min(_seconds({**BASE, axis: value}, device) for _ in range(repeats)) for value in AXES[axis]]
    return Line(axis, np.array(AXES[axis]), np.array(seconds))


def _seconds(size: dict[str, int], device: str) -> float:
    half = size["support"] // 2
    # distinct next tokens are few and the outputs only these, so that the support alone is varied
    classes = SequenceClasses.synthetic(n_queries=2, next_per_query=2, common=half, distinct=half)
    seeds = 8  # as many data streams at every number of runs
    runs = grid(eta_z=np.linspace(0.5, 2, size["runs"] // seeds), eta_y=1.0, seed=range(seeds))
    settings: dict[str, Any] = {"steps": size["steps"], "batch_size": size["batch"], "context": size["context"]}
    began = time.perf_counter()
    simulate(classes, runs, momentum=0.9, init="uniform", outputs="next", record=[size["steps"]],
             variables=["entropy"], device=device, **settings)  # fmt: skip
    return time.perf_counter() - began
