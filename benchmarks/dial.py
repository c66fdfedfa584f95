"""Runs per second of a cell of the dial: all of its runs at once against a plain loop over them, in one process.

    python benchmarks/dial.py               # the YZ model and the full one, on the CPU, and on a GPU where there is one
    python benchmarks/dial.py --device cpu --seconds 5

Both sides are the same model code on the same data: 4 ratios x 10 seeds together, and one run alone, of which a loop
takes 40. Beside them the time that no implementation of these formulas can beat: floating-point operations of the
matrix products of a step over the rate of a large product, or the tables with their moments and gradients once through
memory over the rate of a large copy, both measured here, whichever is longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from scansnap.dial.cell import Cell
from scansnap.dial.clocks import Setting
from scansnap.dial.data import Task
from scansnap.dial.training import EAGER, Runs
from scansnap.dynamics.device import one_thread

MODELS = {"yz": Cell("yz", "alone", "adamw"), "full": Cell("layers", "cumulative", "adamw")}
SETTING = Setting()
RATE = 1e-3  # small: what is timed does not depend on it


def runs_of(cell: Cell, n_ratios: int, seeds: int, device: torch.device) -> Runs:
    task = Task(cell.flags, cell.data, device, torch.float32, SETTING.context)
    eta = {name: torch.full((n_ratios * seeds,), RATE) for name in "yz"}
    return Runs(cell.flags, task, cell.optimizer, np.tile(np.arange(seeds), n_ratios), eta, 1000)


def fastest(do: Callable[[], object], device: torch.device, seconds: float) -> float:
    """The least time of many, each finished."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        began = time.perf_counter()
        do()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


def per_step(runs: Runs, seconds: float) -> float:
    runs.advance(EAGER + 2)
    steps = 8 if runs.task.device.type == "cpu" else 128
    return fastest(lambda: runs.advance(steps), runs.task.device, seconds) / steps


def limit(runs: Runs, device: torch.device) -> float:
    """Seconds that a step cannot go below here."""
    (batch,) = runs.task.batches(runs.streams, 0, 1)
    with FlopCounterMode(display=False) as counted:
        runs.move(batch)
    n, size = (1024, 2**24) if device.type == "cpu" else (8192, 2**28)
    a, b, c = torch.randn(n, n, device=device), torch.empty(size, device=device), torch.ones(size, device=device)
    flops = 2 * n**3 / fastest(lambda: a @ a, device, 0.5)
    rate = 8 * size / fastest(lambda: b.copy_(c), device, 0.5)  # 4 bytes read and 4 written
    tables = runs.descent.all.numel() * 4
    once = tables * (3 + 4 * len(runs.descent.moments) // 2)  # table and moments read and written, gradient read
    return max(counted.get_total_flops() / flops, once / rate)


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
    with one_thread():
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
                      f"{1e3 * least:9.2f} {rates[0]:7.3f} {rates[1]:12.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
