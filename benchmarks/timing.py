"""What the benchmarks share: clocks, the best of several rounds, and text drawn by Zipf's law."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Batch = tuple[Tensor, Tensor]
Step = Callable[[Tensor, Tensor], Any]
WARM_UP = 3  # steps that compile and record


@dataclass(frozen=True)
class Timed(Generic[T]):
    """One call: seconds of the clock, seconds of the processor (all threads), and the result."""

    wall: float
    processor: float
    result: T


def timed(work: Callable[..., T], *args: Any, **options: Any) -> Timed[T]:
    wall, processor = time.perf_counter(), time.process_time()
    result = work(*args, **options)
    return Timed(time.perf_counter() - wall, time.process_time() - processor, result)


def clock(device: torch.device | str, processor: bool | None = None) -> float:
    """Seconds now: of the processor on a CPU with one thread (other processes have no part in it), else of the clock.

    Waits for the work on a GPU.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    one_thread = torch.get_num_threads() == 1 if processor is None else processor
    return time.process_time() if one_thread else time.perf_counter()


def best_seconds(work: Callable[[], object], device: torch.device | str, rounds: int = 5, seconds: float = 0.0,
                 processor: bool | None = None) -> float:  # fmt: skip
    """The least time of at least ``rounds`` calls that take ``seconds`` together."""
    best, end, n = float("inf"), time.perf_counter() + seconds, 0
    while n < rounds or time.perf_counter() < end:
        start = clock(device, processor)
        work()
        best, n = min(best, clock(device, processor) - start), n + 1
    return best


def in_turn(works: Mapping[str, Callable[[], object]], rounds: int, device: torch.device | str, warm_up: int = 1,
            processor: bool | None = None) -> dict[str, list[float]]:  # fmt: skip
    """Seconds of each call by round; the calls take turns, so that a busy moment of the machine falls on all."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for i in range(warm_up + rounds):
        for name, work in works.items():
            start = clock(device, processor)
            work()
            if i >= warm_up:
                seconds[name].append(clock(device, processor) - start)
    return seconds


def tokens_per_second(
    step: Step, batches: list[Batch], seconds: float, agree: Callable[[int], int] = lambda n: n
) -> float:
    """The best of five stretches of steps that take ``seconds`` together; ``agree`` sets the steps of a stretch."""
    device = batches[0][0].device

    def stretch(n: int) -> None:
        for i in range(n):
            step(*batches[i % len(batches)])

    stretch(WARM_UP)
    n = agree(max(1, int(seconds / 5 / max(best_seconds(lambda: stretch(2), device, 1) / 2, 1e-6))))
    return batches[0][0].numel() * n / best_seconds(lambda: stretch(n), device)


def zipf_tokens(vocab_size: int, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
    """Tokens drawn with probability ∝ 1/rank, which repeats the frequent ones as text does."""
    edges = (1 / torch.arange(1, vocab_size + 1, dtype=torch.float64, device=device)).cumsum(0)
    generator = torch.Generator(device).manual_seed(0)
    u = torch.rand(shape, dtype=torch.float64, device=device, generator=generator) * edges[-1]
    return torch.searchsorted(edges, u).clamp_max(vocab_size - 1)
