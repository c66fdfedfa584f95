"""The compiled CPU kernels on the sizes of Figure 6, by instruction set, against the torch code they stand for.

Processor time of one core, the best of several rounds in turn, so that it can be read on a busy machine. The limit is
that of the products alone, 4 · samples · slots · columns floating-point operations a step, at the speed at which torch
multiplies large matrices here.

Below it dropout masks, 585,000 entries as in a step of the one-layer transformer on text.

python benchmarks/kernels.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.trainers import YZTrainer
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.kernels.cpu import library
from scansnap.paper.shared.medium_runs import SYN_MEDIUM
from scansnap.runs import grid
from scansnap.sampling.counts import sample_classes, sample_counts
from scansnap.text.transformer.draws import masks
from timing import best_seconds, in_turn, timed

CPU = torch.device("cpu")
SEEDS, RATES = 2, (0.5, 1.0, 2.0, 3.0)
SHARE = SEEDS * len(RATES) / len(SYN_MEDIUM.runs(SYN_MEDIUM.seeds))  # of the runs of a size
LEVELS = ("default", "avx2", "avx512")


def builds() -> list[str]:
    """The instruction sets that the kernels are built for and this processor has."""
    best = torch.backends.cpu.get_cpu_capability().lower()
    names = LEVELS[: LEVELS.index(best) + 1] if best in LEVELS else LEVELS[:1]
    return [name for name in names if library.find("fused", name) and library.find("sampling", name)]


@contextmanager
def build(name: str) -> Iterator[None]:
    """This build in the place of the one that is chosen by itself."""
    chosen: Any = library.load
    setattr(library, "load", lambda kernel: ctypes.CDLL(str(library.find(kernel, name))))  # noqa: B010
    try:
        yield
    finally:
        setattr(library, "load", chosen)  # noqa: B010


def matrix_speed(n: int = 1500) -> float:
    """Floating-point operations a second of one core in a large product."""
    a = torch.randn(n, n)
    return 2 * n**3 / best_seconds(lambda: a @ a, "cpu")


def size(n_queries: int, rounds: int) -> tuple[dict[str, float], dict[str, float], float]:
    """Seconds of all 160 runs, and of the data of all 10 seeds, by way; and operations of the products."""
    classes = SequenceClasses.syn_medium(n_queries)
    runs = grid(eta_z=RATES, ratio=2.0, seed=range(SEEDS), momentum=SYN_MEDIUM.momentum)
    plan = Settings(steps=SYN_MEDIUM.steps, record=(SYN_MEDIUM.steps,), model=ModelConfig(init=SYN_MEDIUM.init))
    trained = {name: YZTrainer(classes, runs, plan, CPU, name) for name in ("fused", "general")}
    one, state = trained["fused"], trained["fused"].start()
    stretch = one.batches.take(0, plan.steps)
    places = one.batches.seeds, torch.arange(plan.steps)
    table, batch = one.engine.layout.table, plan.batch_size
    assert batch is not None

    def torch_counts() -> None:
        cls = sample_classes(table, *places, batch)
        sample_counts(table, cls, *places, int(plan.context) - 1)

    steps: dict[str, float] = {}
    draws = {"torch": best_seconds(torch_counts, "cpu", 2)}
    for _ in range(rounds):
        for name in builds():
            with build(name):
                steps[name] = min(steps.get(name, 9e9), timed(lambda: one.engine.advance(state, stretch)).processor)
                draws[name] = min(draws.get(name, 9e9), timed(lambda: one.batches.take(0, plan.steps)).processor)
    short = one.batches.take(0, 5)
    plain = trained["general"].engine
    steps["torch"] = best_seconds(lambda: plain.advance(state, short), "cpu", 2) * plan.steps / 5
    slots, columns = one.engine.layout.slots.shape[1], len(one.engine.layout.columns)
    work = 4.0 * batch * slots * columns * plan.steps * 160
    return ({name: t / SHARE for name, t in steps.items()},
            {name: t * SYN_MEDIUM.seeds / SEEDS for name, t in draws.items()}, work)  # fmt: skip


def dropout(rounds: int) -> dict[str, float]:
    """Nanoseconds for each entry of a mask, by way."""
    out, generator = torch.empty(585_000), torch.Generator()
    works = {"torch": lambda: out.bernoulli_(0.8, generator=generator).mul_(1 / 0.8)}
    for name in builds():

        def built(name: str = name) -> torch.Tensor:
            with build(name):
                return masks(out, 0.8, generator)

        works[name] = built
    return {name: min(times) * 1e9 / len(out) for name, times in in_turn(works, 10 * rounds, "cpu").items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    speed, ways = matrix_speed(), ("torch", *builds())
    print(f"processor seconds of one core; a large product runs at {speed / 1e9:.0f} GFLOP/s")
    print("Syn-Medium | steps of 160 runs: " + ", ".join(ways) + " | limit | sampling for 10 seeds: " + ", ".join(ways))
    totals = {way: [0.0, 0.0] for way in (*ways, "limit")}
    for q in SYN_MEDIUM.n_queries:
        step, draw, work = size(q, arguments.rounds)
        for way in ways:
            totals[way][0] += step[way]
            totals[way][1] += draw[way]
        totals["limit"][0] += work / speed
        print(f"{q} | {', '.join(f'{step[way]:.3f}' for way in ways)} | {work / speed:.3f} | "
              f"{', '.join(f'{draw[way]:.3f}' for way in ways)}")  # fmt: skip
    print(f"all | {', '.join(f'{totals[way][0]:.3f}' for way in ways)} | {totals['limit'][0]:.3f} | "
          f"{', '.join(f'{totals[way][1]:.3f}' for way in ways)}")  # fmt: skip
    print("dropout masks, ns an entry: " + ", ".join(f"{way} {t:.2f}" for way, t in dropout(arguments.rounds).items()))
