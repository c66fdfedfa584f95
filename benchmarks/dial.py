"""Runs per second of a cell of the dial: all of its runs at once against a plain loop over them, in one process.

    python benchmarks/dial.py               # the YZ model and the full one, on the CPU, and on a GPU where there is one
    python benchmarks/dial.py --device cpu --seconds 5

Both sides are the same model code on the same data: 4 ratios x 10 seeds together, and one run alone, of which a loop
takes 40. Beside them the time that no implementation of these formulas can beat: floating-point operations of the
matrix products of a step over the rate of a large product, or the tables with their moments and gradients once through
memory, as a copy of as many bytes does, both measured here, whichever is longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from scansnap.dial.cell import Cell, fast_arithmetic
from scansnap.dial.clocks import Setting
from scansnap.dial.data import Task
from scansnap.dial.training import EAGER, Runs
from scansnap.dynamics.device import one_thread

MODELS = {"yz": Cell("yz", "alone", "adamw"), "full": Cell("layers", "cumulative", "adamw")}
SETTING = Setting()
LEAST = 8  # measurements, however long they take
RATE = 1e-3  # small: what is timed does not depend on it


def runs_of(cell: Cell, n_ratios: int, seeds: int, device: torch.device) -> Runs:
    task = Task(cell.flags, cell.data, device, torch.float32, SETTING.context)
    eta = {name: torch.full((n_ratios * seeds,), RATE) for name in "yz"}
    return Runs(cell.flags, task, cell.optimizer, np.tile(np.arange(seeds), n_ratios), eta, 1000)


def fastest(do: Callable[[], object], device: torch.device, seconds: float) -> float:
    """The least time of many, each finished; on the CPU that of the processor, which others at work disturb less."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    best, end, n = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end or (n := n + 1) < LEAST:
        began = clock()
        do()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - began)
    return best


def per_step(runs: Runs, seconds: float) -> float:
    runs.advance(EAGER + 2)
    steps = 4 if runs.task.device.type == "cpu" else 128
    return fastest(lambda: runs.advance(steps), runs.task.device, seconds) / steps


def limit(runs: Runs, device: torch.device) -> float:
    """Seconds that a step cannot go below here."""
    (batch,) = runs.task.batches(runs.streams, 0, 1)
    with FlopCounterMode(display=False) as counted:
        runs.move(batch)
    n = 1024 if device.type == "cpu" else 8192
    a = torch.randn(n, n, device=device)
    flops = 2 * n**3 / fastest(lambda: a @ a, device, 0.5)
    # tables and moments are read and written, gradients read: a copy that moves as many bytes
    moved = runs.descent.all.numel() * (3 + 2 * len(runs.descent.moments)) // 2
    here, there = torch.empty(moved, device=device), torch.ones(moved, device=device)
    return max(counted.get_total_flops() / flops, fastest(lambda: here.copy_(there), device, 0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), action="append")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each timing")
    given = parser.parse_args()
    devices = given.device or (["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
    n_ratios, seeds = len(SETTING.ratios), SETTING.seeds
    n = n_ratios * seeds
    print(f"{n} runs of a cell, T = {SETTING.context}, float32, torch {torch.__version__}, one thread on the CPU")
    print("device  model  batched ms/step  loop ms/step  times  limit ms  runs/s  loop runs/s")
    with one_thread(), fast_arithmetic():
        for name in devices:
            device = torch.device(name)
            for model, cell in MODELS.items():
                together = runs_of(cell, n_ratios, seeds, device)
                steps = round(
                    SETTING.end * SETTING.t0(cell.optimizer, together.task.n_classes, together.task.vocab_size)
                )
                batched = per_step(together, given.seconds)
                alone = n * per_step(runs_of(cell, 1, 1, device), given.seconds)
                least = limit(together, device)
                rates = [n / (steps * each) for each in (batched, alone)]
                print(f"{name:7} {model:6} {1e3 * batched:15.2f} {1e3 * alone:13.2f} {alone / batched:6.1f} "
                      f"{1e3 * least:9.4f} {rates[0]:7.3f} {rates[1]:12.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
