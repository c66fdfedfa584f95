"""Very many SGD runs, timed: the grid of Figure 6 with as many seeds as it takes, a batch of runs at a time.

Beside the time stand what the products alone take at the full rate of float32 and the tables at that of shared memory,
and the plain loop scaled up from a sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from scansnap.bench import plain
from scansnap.checks import whole
from scansnap.classes import SequenceClasses
from scansnap.dynamics.device import pick_device
from scansnap.dynamics.settings import Settings
from scansnap.kernels.cuda import compiler
from scansnap.measure import distinct_entropy
from scansnap.paper.experiment import SYN_MEDIUM
from scansnap.processes import peak_memory
from scansnap.progress import Progress
from scansnap.runs import Runs, grid

BATCH = 40_960  # runs that are made in one call on a GPU; a core takes some seconds for a hundredth of them
_FMA_LANES, _SHARED_BYTES = 128, 128  # of a multiprocessor: fused multiply-adds and bytes of shared memory in a cycle


@dataclass(frozen=True)
class Result:
    """One size of Syn-Medium."""

    n_queries: int
    vocab_size: int
    runs: int
    seconds: float  # drawing, training and entropies
    entropy: float  # mean over all runs
    device: str
    peak_bytes: int | None  # allocated on the GPU, or resident memory of the process
    flop: float  # of a run: the products F Y and Fᵀ E, which are nearly all of it
    table_bytes: float  # of a run: its tables read and written once where they must be
    flop_limit: float | None  # seconds for all runs if float32 units did nothing but these; known for GPUs
    memory_limit: float | None
    plain_seconds: float  # of the plain loop for as many runs, scaled up
    plain_runs: int
    plain_entropy: float  # of its runs, at η_Z = 1, ratio 2
    same_entropy: float  # ours, of as many runs at these rates

    @property
    def runs_per_second(self) -> float:
        return self.runs / self.seconds

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


def measure(n_runs: int, device: str = "auto", n_queries: int = 10, plain_runs: int = 1,
            progress: Progress | None = None) -> Result:  # fmt: skip
    """Time ``n_runs`` runs of Syn-Medium(n_queries), the last step of each looked at."""
    whole("runs", n_runs, least=1)
    place = pick_device(device)
    cuda = place.type == "cuda"
    classes = SequenceClasses.syn_medium(n_queries)
    batch = BATCH if cuda else BATCH // 128
    SYN_MEDIUM.train(classes, _runs(0, 16), variables=["entropy"], device=device)  # compiles, starts the device
    if cuda:
        torch.cuda.reset_peak_memory_stats()

    def train(first: int) -> float:
        """The sum of a batch's mean entropies."""
        runs = _runs(first, min(batch, n_runs - first))
        data = SYN_MEDIUM.train(classes, runs, variables=["entropy"], device=device)
        return float(data.entropy.values.mean() * len(runs))

    entropies, began = [], time.perf_counter()
    for entropy in _in_order(train, range(0, n_runs, batch), at_once=3 if cuda else 1):
        entropies.append(entropy)
        if progress is not None:
            progress(min(len(entropies) * batch, n_runs), n_runs)
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if cuda else peak_memory()

    plain.train(classes, eta_y=1.0, eta_z=1.0, seed=0, steps=2, device=place.type)  # warm-up
    began, theirs = time.perf_counter(), []
    for seed in range(plain_runs):
        c = plain.train(classes, eta_y=2.0, eta_z=1.0, seed=seed, steps=SYN_MEDIUM.steps, device=place.type)
        theirs.append(float(np.mean(distinct_entropy(c.cpu().numpy(), classes))))
    plain_seconds = (time.perf_counter() - began) / plain_runs * n_runs
    same = grid(eta_z=1.0, ratio=2.0, seed=range(plain_runs))
    ours = float(SYN_MEDIUM.train(classes, same, variables=["entropy"], device=device).entropy.mean())
    flop, table_bytes = work(classes)
    flop_limit, memory_limit = _limits(n_runs * flop, n_runs * table_bytes) if cuda else (None, None)
    name = torch.cuda.get_device_name() if cuda else "CPU"
    return Result(
        n_queries, classes.vocab_size, n_runs, seconds, sum(entropies) / n_runs, name, peak, flop, table_bytes,
        flop_limit, memory_limit, plain_seconds, plain_runs, float(np.mean(theirs)), ours,
    )  # fmt: skip


def _in_order(train: Callable[[int], float], firsts: range, at_once: int) -> Iterator[float]:
    """Batches one after the other; on a GPU others are prepared and looked at while it works on one.

    Each thread has a stream of its own: on a common one whoever brings data waits for all that others have asked for.
    """
    if at_once == 1:
        yield from map(train, firsts)
        return
    with ThreadPoolExecutor(at_once, initializer=lambda: torch.cuda.set_stream(torch.cuda.Stream())) as pool:
        yield from pool.map(train, firsts)


def work(classes: SequenceClasses) -> tuple[float, float]:
    """Operations and bytes of tables of one run.

    A sample is |support| × M multiply-adds for its logits and as many for its gradient. In a step the rows of Y are
    read for every class's logits, and rows, velocities and their new values pass once.
    """
    steps, batch = SYN_MEDIUM.steps, Settings().batch_size
    assert batch is not None
    support = np.array([len(classes.support(n)[0]) for n in range(classes.n_classes)])
    rows = len(np.unique(np.concatenate([classes.support(n)[0] for n in range(classes.n_classes)])))
    m = classes.vocab_size
    flop = 4.0 * steps * batch * float(classes.p_class @ support) * m
    return flop, 4.0 * steps * m * float(support.sum() + 4 * rows)


def _runs(first: int, n: int) -> Runs:
    """Numbers first … first + n − 1 of the endless list: all pairs of rates for one seed after the other."""
    eta_z, ratio = (axis.ravel() for axis in np.meshgrid(SYN_MEDIUM.eta_z, SYN_MEDIUM.ratio, indexing="ij"))
    pair = np.arange(first, first + n) % len(eta_z)
    seed = np.arange(first, first + n) // len(eta_z)
    return Runs.of({"eta_z": eta_z[pair], "ratio": ratio[pair], "seed": seed})


def _limits(flop: float, table_bytes: float) -> tuple[float, float]:
    """Seconds at every multiprocessor's full rate of float32 arithmetic, and of its shared memory."""
    cycles = compiler.clock_hz() * torch.cuda.get_device_properties().multi_processor_count
    return flop / (2 * _FMA_LANES * cycles), table_bytes / (_SHARED_BYTES * cycles)
