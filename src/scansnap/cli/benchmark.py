"""The batched engine and a plain loop, timed on Syn-Medium in the same process: the numbers of ``scansnap bench``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch

from scansnap.checks import check_integer
from scansnap.classes import SequenceClasses
from scansnap.dynamics.device import pick_device
from scansnap.dynamics.settings import Settings
from scansnap.kernels.cuda import compiler
from scansnap.measure import distinct_entropy
from scansnap.paper.shared.medium_runs import SYN_MEDIUM
from scansnap.processes import peak_memory
from scansnap.progress import Progress
from scansnap.runs import Runs, grid

BATCH = {"cpu": 320, "cuda": 40_960}  # runs trained in one call
PAIRS = len(SYN_MEDIUM.eta_z) * len(SYN_MEDIUM.ratio)  # of rates
_FMA_LANES, _SHARED_BYTES = 128, 128  # of a multiprocessor: fused multiply-adds and bytes of shared memory in a cycle


@dataclass(frozen=True)
class SizeTiming:
    """Timings of one size of Syn-Medium."""

    n_queries: int
    vocab_size: int
    runs: int
    seconds: float  # all runs, sampling included; the best of the repeats
    mean_entropy: float  # of all runs
    flop: float  # of a run: the products F Y and Fᵀ E, which are nearly all of it
    table_bytes: float  # of a run: its tables, read and written as often as necessary
    plain_runs: int = 0
    plain_seconds: float = 0.0  # of the plain loop for all runs, scaled up from ``plain_runs``
    entropy: float = 0.0  # mean at η_Z = 1, ratio 2, as many runs as the plain loop
    plain_entropy: float = 0.0  # of the plain loop at the same rates; its data differ

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


@dataclass(frozen=True)
class BenchResult:
    """Timings of all sizes."""

    sizes: list[SizeTiming]
    device: str
    threads: int
    peak_bytes: int | None  # allocated on the GPU, or resident memory of the process, before the plain loop
    flop_limit: float | None = None  # seconds of the float32 units for the products alone; known for GPUs
    memory_limit: float | None = None  # seconds of shared memory for the tables alone

    @property
    def runs(self) -> int:
        return sum(size.runs for size in self.sizes)

    @property
    def seconds(self) -> float:
        return sum(size.seconds for size in self.sizes)

    @property
    def plain_seconds(self) -> float:
        return sum(size.plain_seconds for size in self.sizes)

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds

    @property
    def runs_per_second(self) -> float:
        return self.runs / self.seconds


def measure(n_runs: int, n_queries: Sequence[int] = SYN_MEDIUM.n_queries, device: str = "auto", *, repeats: int = 1,
            plain_runs: int = 1, progress: Progress | None = None) -> BenchResult:  # fmt: skip
    """Time ``n_runs`` runs of each size, then the plain loop on ``plain_runs`` of them."""
    check_integer("runs", n_runs, least=1)
    kind = pick_device(device).type
    cuda = kind == "cuda"
    sizes = {q: SequenceClasses.syn_medium(q) for q in n_queries}
    for classes in sizes.values():  # compiles kernels, starts threads and the device
        train(classes, 0, PAIRS, device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    total, done, timings = len(sizes) * repeats * n_runs, 0, []

    def report(new: int) -> None:
        nonlocal done
        done += new
        if progress is not None:
            progress(done, total)

    for q, classes in sizes.items():
        seconds, entropy = min(_train_all(classes, n_runs, device, kind, report) for _ in range(repeats))
        timings.append(SizeTiming(q, classes.vocab_size, n_runs, seconds, entropy, *work(classes)))
    peak = torch.cuda.max_memory_allocated() if cuda else peak_memory()
    timings = [_beside_plain_loop(timing, sizes[timing.n_queries], device, kind, plain_runs) for timing in timings]
    name = torch.cuda.get_device_name() if cuda else "CPU"
    return BenchResult(timings, name, torch.get_num_threads(), peak, *(_limits(timings) if cuda else ()))


def train(classes: SequenceClasses, first: int, last: int, device: str) -> float:
    """Train the runs first … last − 1 of :func:`numbered_runs`; returns the sum of their entropies."""
    data = SYN_MEDIUM.train(classes, numbered_runs(first, last), variables=["entropy"], device=device)
    return float(data.entropy.values.mean() * (last - first))


def numbered_runs(first: int, last: int) -> Runs:
    """Runs of an endless list: all pairs of rates for seed 0, then for seed 1, and so on."""
    eta_z, ratio = (axis.ravel() for axis in np.meshgrid(SYN_MEDIUM.eta_z, SYN_MEDIUM.ratio, indexing="ij"))
    seed, pair = np.divmod(np.arange(first, last), PAIRS)
    return Runs.of({"eta_z": eta_z[pair], "ratio": ratio[pair], "seed": seed})


def _train_all(classes: SequenceClasses, n_runs: int, device: str, kind: str, report: Callable[[int], None]
               ) -> tuple[float, float]:  # fmt: skip
    """Seconds of all runs, in batches, and their mean entropy.

    On a GPU three threads prepare and read batches while it works on one. Each thread has its own stream: on a common
    stream, copying one batch would wait for the work of all.
    """
    began, total = time.perf_counter(), 0.0
    parts = [(first, min(first + BATCH[kind], n_runs)) for first in range(0, n_runs, BATCH[kind])]
    if kind == "cuda" and len(parts) > 1:
        with ThreadPoolExecutor(3, initializer=lambda: torch.cuda.set_stream(torch.cuda.Stream())) as pool:
            for part, entropy in zip(
                parts, pool.map(lambda part: train(classes, part[0], part[1], device), parts), strict=True
            ):
                total += entropy
                report(part[1] - part[0])
    else:
        for first, last in parts:
            total += train(classes, first, last, device)
            report(last - first)
    return time.perf_counter() - began, total / n_runs


def _beside_plain_loop(timing: SizeTiming, classes: SequenceClasses, device: str, kind: str, runs: int) -> SizeTiming:
    """The timing with that of the plain loop, and the entropies at which both end."""
    plain_loop(classes, eta_y=1.0, eta_z=1.0, seed=0, steps=2, device=kind)  # warm-up
    began, entropies = time.perf_counter(), []
    for seed in range(runs):
        c = plain_loop(classes, eta_y=2.0, eta_z=1.0, seed=seed, steps=SYN_MEDIUM.steps, device=kind)
        entropies.append(float(np.mean(distinct_entropy(c.cpu().numpy(), classes))))
    seconds = (time.perf_counter() - began) / runs * timing.runs
    same_rates = grid(eta_z=1.0, ratio=2.0, seed=range(runs))
    entropy = float(SYN_MEDIUM.train(classes, same_rates, variables=["entropy"], device=device).entropy.mean())
    return replace(timing, plain_runs=runs, plain_seconds=seconds, entropy=entropy,
                   plain_entropy=float(np.mean(entropies)))  # fmt: skip


def plain_loop(classes: SequenceClasses, *, eta_y: float, eta_z: float, seed: int, steps: int, batch_size: int = 128,
               context: int = 128, momentum: float = 0.9, device: str = "cpu") -> torch.Tensor:  # fmt: skip
    """Attention of the classes, (K, M), after training as a reader of the paper would write it first.

    One run at a time, one-hot sequences, autograd and torch.optim; shares no code with the engine.
    """
    generator = torch.Generator(device).manual_seed(seed)
    m = classes.vocab_size
    p_context = torch.tensor(classes.p_context, dtype=torch.float32, device=device)
    p_class = torch.tensor(classes.p_class, device=device)
    query = torch.tensor(classes.query, device=device)
    next_token = torch.tensor(classes.next_token, device=device)

    def table() -> torch.Tensor:
        values = (torch.rand(m, m, generator=generator, device=device) * 2 - 1) / m**0.5
        return values.requires_grad_()

    y, z = table(), table()
    optimizer = torch.optim.SGD([{"params": [y], "lr": eta_y}, {"params": [z], "lr": eta_z}], momentum=momentum)
    for _ in range(steps):
        n = torch.multinomial(p_class, batch_size, replacement=True, generator=generator)
        tokens = torch.multinomial(p_context[n], context - 1, replacement=True, generator=generator)
        x = torch.nn.functional.one_hot(tokens, m).float()  # (B, T - 1, M)
        attention = torch.softmax((x @ z[query[n]][:, :, None])[..., 0], dim=-1)  # (B, T - 1)
        c = (attention[:, None] @ x)[:, 0]  # (B, M)
        f = c / torch.linalg.vector_norm(c, dim=-1, keepdim=True)
        loss = torch.nn.functional.cross_entropy(f @ y, next_token[n])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        weight = p_context * torch.exp(z[query])
        return weight / weight.sum(-1, keepdim=True)


def work(classes: SequenceClasses) -> tuple[float, float]:
    """Operations and bytes of tables of one run.

    A sample is |support| × M multiply-adds for its logits and as many for its gradient. In a step the rows of Y are
    read for every class's logits, and rows, velocities and their new values pass once.
    """
    steps, batch = SYN_MEDIUM.steps, Settings().batch_size
    assert batch is not None
    supports = [classes.support(n)[0] for n in range(classes.n_classes)]
    lengths, rows, m = (
        np.array([len(s) for s in supports]),
        len(np.unique(np.concatenate(supports))),
        classes.vocab_size,
    )
    flop = 4.0 * steps * batch * float(classes.p_class @ lengths) * m
    return flop, 4.0 * steps * m * float(lengths.sum() + 4 * rows)


def _limits(timings: list[SizeTiming]) -> tuple[float, float]:
    """Seconds at every multiprocessor's full rate of float32 arithmetic, and of its shared memory."""
    cycles = compiler.clock_hz() * torch.cuda.get_device_properties().multi_processor_count
    flop, table_bytes = (sum(getattr(t, name) * t.runs for t in timings) for name in ("flop", "table_bytes"))
    return flop / (2 * _FMA_LANES * cycles), table_bytes / (_SHARED_BYTES * cycles)
