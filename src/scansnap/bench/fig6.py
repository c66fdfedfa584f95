"""The whole Figure 6 sweep, 640 runs with their sampling, against the plain loop in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from scansnap.bench import plain
from scansnap.classes import SequenceClasses
from scansnap.dynamics.device import pick_device
from scansnap.measure import distinct_entropy
from scansnap.paper.experiment import SYN_MEDIUM
from scansnap.processes import peak_memory
from scansnap.runs import Runs, grid

Report = Callable[[str], None]


@dataclass(frozen=True)
class TimedSize:
    """Timings of one problem size."""

    n_queries: int
    vocab_size: int
    runs: int
    seconds: float  # all runs, sampling included, best of the repeats
    plain_seconds: float  # the plain loop for as many runs, scaled up from the sample
    entropy: float  # mean over the runs the plain loop did too
    plain_entropy: float

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


@dataclass(frozen=True)
class Result:
    """The sweep as a whole."""

    sizes: list[TimedSize]
    device: str
    threads: int
    peak_bytes: int | None  # resident memory of the process so far, or memory allocated on the GPU

    @property
    def seconds(self) -> float:
        return sum(size.seconds for size in self.sizes)

    @property
    def plain_seconds(self) -> float:
        return sum(size.plain_seconds for size in self.sizes)

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


def panel(n_queries: int, runs: Runs, device: str) -> float:
    """One panel of Figure 6; returns the seconds it took."""
    classes = SequenceClasses.syn_medium(n_queries)
    began = time.perf_counter()
    SYN_MEDIUM.train(classes, runs, device=device)
    return time.perf_counter() - began


def measure(device: str = "auto", seeds: int = SYN_MEDIUM.seeds, repeats: int = 3, plain_runs: int = 2,
            report: Report = lambda _: None) -> Result:  # fmt: skip
    """Time every size: the engine on the whole grid, then the plain loop on ``plain_runs`` of its runs."""
    place = pick_device(device)
    runs = SYN_MEDIUM.runs(seeds)
    panel(1, grid(eta_z=1.0, ratio=1.0), device)  # loads libraries, starts threads and the device
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = {}
    for q in SYN_MEDIUM.n_queries:
        seconds[q] = min(panel(q, runs, device) for _ in range(repeats))
        report(f"{len(runs)} runs of Syn-Medium({q}): {seconds[q]:.3f} s")
    cuda = place.type == "cuda"  # the engine's own peak: the plain loop has not run yet
    peak = torch.cuda.max_memory_allocated() if cuda else peak_memory()
    sizes = []
    for q in SYN_MEDIUM.n_queries:
        classes = SequenceClasses.syn_medium(q)
        plain.train(classes, eta_y=1.0, eta_z=1.0, seed=0, steps=2, device=place.type)  # warm-up
        entropies = []
        began = time.perf_counter()
        for seed in range(plain_runs):
            c = plain.train(classes, eta_y=2.0, eta_z=1.0, seed=seed, steps=SYN_MEDIUM.steps, device=place.type)
            entropies.append(float(np.mean(distinct_entropy(c.cpu().numpy(), classes))))
        one = (time.perf_counter() - began) / plain_runs
        report(f"plain loop, Syn-Medium({q}): {one:.2f} s a run")
        same = grid(eta_z=1.0, ratio=2.0, seed=range(plain_runs))
        ours = SYN_MEDIUM.train(classes, same, variables=["entropy"], device=device)
        sizes.append(TimedSize(q, classes.vocab_size, len(runs), seconds[q], one * len(runs),
                          float(ours.entropy.mean()), float(np.mean(entropies))))  # fmt: skip
    name = torch.cuda.get_device_name() if cuda else "CPU"
    return Result(sizes, name, torch.get_num_threads(), peak)
