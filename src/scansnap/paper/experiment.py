"""The experiment on Syn-Medium of Figures 6, 11 and 12, declared once: for the figures and the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import xarray as xr

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.runs import Runs, grid


@dataclass(frozen=True)
class Experiment:
    """Sizes × η_Z × η_Y/η_Z × seeds, every run trained alike, by SGD on mini-batch means (Section 8, Appendix G)."""

    n_queries: tuple[int, ...]  # a size of Syn-Medium each
    eta_z: tuple[float, ...]
    ratio: tuple[float, ...]  # η_Y/η_Z
    seeds: int
    steps: int = 100
    momentum: float = 0.9
    init: str = "uniform"

    def runs(self, seeds: int) -> Runs:
        """Of one size, with so many seeds."""
        return grid(eta_z=self.eta_z, ratio=self.ratio, seed=range(seeds))

    def train(self, classes: SequenceClasses, runs: Runs, **options: Any) -> xr.Dataset:
        """One size; the state after the last step. ``options`` are those of simulate that leave the numbers alone."""
        return simulate(classes, runs, steps=self.steps, momentum=self.momentum, init=self.init, record=[self.steps],
                        **options)  # fmt: skip


SYN_MEDIUM = Experiment(
    n_queries=(1, 3, 5, 10), eta_z=(0.5, 1.0, 2.0, 3.0), ratio=(1.0, 2.0, 5.0, 10.0), seeds=10
)  # 640 runs
