"""Time of a training step of the dial's cells, and with --plan of the whole dial.

    python benchmarks/dial.py                    # named cells on the CPU, and on a GPU where there is one
    python benchmarks/dial.py --cell heads:cumulative:sgd --device cpu
    python benchmarks/dial.py --plan             # every cell of --quick and of the whole dial, on 2 cores (--cores)
    python benchmarks/dial.py --plan --ran DIR   # beside it what the cells in a folder of `scansnap dial` took

All runs of a cell (4 ratios x 10 seeds) at once, against: the same operation by operation, without the compiled kernel
and with every position as a query (*plain*); one run alone, of which a loop takes 40 (*loop*); and the time that no
implementation of these formulas can beat (*limit*): floating-point operations of the matrix products of a step over the
rate of a large product, or the tables with their moments and gradients once through memory, as a copy of as many bytes
does, both measured here, whichever is longer.

The plan adds up, of every cell, steps times the time of a step, readings, and the tuning of its rates, each measured on
a few steps; processor time of one thread.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from scansnap.dial.cells import RECORDS, Cell, fast_arithmetic
from scansnap.dial.data import Task
from scansnap.dial.rate_matching import KERNEL_MATCHED, StudySettings, measure_rates
from scansnap.dial.study import FULL, QUICK, same_runs, select_cells
from scansnap.dial.training import EAGER, CellRuns
from scansnap.dynamics.device import one_thread
from scansnap.kernels.cpu import step
from timing import best_seconds

NAMED = ("yz:single:adamw", "finite:single:adamw", "every-position:single:adamw", "masked:cumulative:adamw",
         "layers:cumulative:adamw", "embedding:leave_one_out:adamw")  # fmt: skip
LEAST = 8  # measurements, however long they take
RATE = 1e-3  # small: what is timed does not depend on it
SIDE_BY_SIDE = 8  # rates that the loss clock tries at once
ROUNDS = {"kernel": 5, "loss": 2.3}  # of tuning, as cells take them in round numbers


def cell_of(name: str) -> Cell:
    *component, mode, optimizer = name.split(":")
    return Cell(":".join(component), mode, optimizer)


def task_of(cell: Cell, setting: StudySettings, device: torch.device) -> Task:
    return Task(cell.flags, cell.data, device, torch.float32, setting.context, shuffled=cell.mode == "control")


def runs_of(cell: Cell, task: Task, n_ratios: int, seeds: int) -> CellRuns:
    eta = {name: torch.full((n_ratios * seeds,), RATE) for name in "yz"}
    return CellRuns(cell.flags, task, cell.optimizer, np.tile(np.arange(seeds), n_ratios), eta, 1000)


@contextmanager
def plain() -> Iterator[None]:
    """Operation by operation, and every position asked."""

    def everywhere(task: Task, *given: object) -> object:
        with patch.object(task, "device", torch.device("meta")):  # not the CPU: then nothing is cut
            return cut(task, *given)  # type: ignore[arg-type]

    cut = Task._drop_idle_queries
    with patch.object(step, "takes", lambda x: False), patch.object(Task, "_drop_idle_queries", everywhere):
        yield


def per_step(runs: CellRuns, seconds: float) -> float:
    runs.advance(EAGER + 2)
    steps = 4 if runs.task.device.type == "cpu" else 128
    return best_seconds(lambda: runs.advance(steps), runs.task.device, LEAST, seconds) / steps


def limit(runs: CellRuns, device: torch.device) -> float:
    """Seconds that a step cannot go below here."""
    (batch,) = runs.task.batches(runs.streams, 0, 1)
    with FlopCounterMode(display=False) as counted, patch.object(step, "takes", lambda x: False):
        runs.move(batch)
    n = 1024 if device.type == "cpu" else 8192
    a = torch.randn(n, n, device=device)
    flops = 2 * n**3 / best_seconds(lambda: a @ a, device, LEAST, 0.5)
    # tables and moments are read and written, gradients read: a copy that moves as many bytes
    moved = runs.descent.all.numel() * (3 + 2 * len(runs.descent.moments)) // 2
    here, there = torch.empty(moved, device=device), torch.ones(moved, device=device)
    return max(counted.get_total_flops() / flops, best_seconds(lambda: here.copy_(there), device, LEAST, 0.5))


def steps_of(cell: Cell, setting: StudySettings, task: Task) -> int:
    return round(setting.end * setting.t0(cell.optimizer, task.n_classes, task.vocab_size))


def named(cells: list[Cell], devices: list[str], seconds: float) -> None:
    n_ratios, seeds = len(FULL.ratios), FULL.seeds
    n = n_ratios * seeds
    print(
        f"{n} runs of a cell, T = {FULL.context}, float32, torch {torch.__version__}, one thread on the CPU; ms a step:"
    )
    print(f"{'device':7} {'cell':28} {'batched':>8} {'plain':>8} {'loop':>8} {'limit':>8} {'runs/s':>7}")
    for name in devices:
        device = torch.device(name)
        for cell in cells:
            task = task_of(cell, FULL, device)
            together = runs_of(cell, task, n_ratios, seeds)
            batched = per_step(together, seconds)
            alone = n * per_step(runs_of(cell, task, 1, 1), seconds)
            least = limit(together, device)
            with plain():
                before = per_step(runs_of(cell, task, n_ratios, seeds), seconds)
            rate = n / (steps_of(cell, FULL, task) * batched)
            times = " ".join(f"{1e3 * each:8.2f}" for each in (batched, before, alone, least))
            print(f"{name:7} {cell.component:15} {cell.mode:6.6} {cell.optimizer:5} {times} {rate:7.3f}", flush=True)


# --- the whole dial -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """Seconds that a cell takes."""

    cell: Cell
    training: float
    reading: float
    tuning: float

    @property
    def seconds(self) -> float:
        return self.training + self.reading + self.tuning


def planned(cell: Cell, setting: StudySettings) -> Planned:
    cpu = torch.device("cpu")
    task = task_of(cell, setting, cpu)
    steps, n = steps_of(cell, setting, task), len(setting.ratios)
    runs = runs_of(cell, task, n, setting.seeds)
    runs.advance(2)
    training = steps * best_seconds(lambda: runs.advance(3), cpu, 3) / 3
    reading = RECORDS * best_seconds(runs.read, cpu, 2)
    known = task_of(replace(cell, mode="single"), setting, cpu) if cell.mode == "control" else task
    window = max(2, round(setting.t0(cell.optimizer, task.n_classes, task.vocab_size)))
    eta = {name: np.full(n, RATE) for name in "yz"}
    seeds = np.arange(np.clip(setting.seeds // 2, 2, 4) if cell.optimizer in KERNEL_MATCHED else 1)
    weigh = window * best_seconds(lambda: measure_rates(cell.flags, known, "sgd", seeds, eta, 2, steps), cpu, 2) / 2
    if cell.optimizer in KERNEL_MATCHED:
        return Planned(cell, training, reading, ROUNDS["kernel"] * weigh)
    tried = runs_of(cell, known, n * SIDE_BY_SIDE, 1)
    tried.advance(2)
    each = best_seconds(lambda: tried.advance(2), cpu, 2) / 2 + best_seconds(tried.losses, cpu, 2) / 2
    return Planned(cell, training, reading, ROUNDS["loss"] * setting.loss_step * each + weigh)


def plan(quick: bool, cores: int, ran: Path | None, every: int) -> None:
    setting, found, seen = QUICK if quick else FULL, [], set()
    for cell in select_cells(None, None, None, quick=quick):
        if same_runs(cell) not in seen:  # the others are the same runs under another name
            seen.add(same_runs(cell))
            found.append(cell)
    times = [planned(cell, setting) for cell in found[::every]]
    total, longest = sum(one.seconds for one in times), max(times, key=lambda one: one.seconds)
    parts = ", ".join(f"{name} {sum(getattr(one, name) for one in times):.0f}"
                      for name in ("training", "reading", "tuning"))  # fmt: skip
    print(f"{'quick' if quick else 'whole'}: {len(times)} of {len(found)} cells, {total:.0f} s of one core "
          f"({parts}); {longest.cell.name} {longest.seconds:.0f}")  # fmt: skip
    wall = max(total / cores, longest.seconds)
    print(f"  on {cores} cores {wall:.0f} s = {wall / 3600:.2f} h", flush=True)
    if ran is None:
        return
    took = {}
    for file in (ran / "cells").glob("*.json"):
        result = json.loads(file.read_text(encoding="utf-8"))["result"]
        if len(result["ratios"]) == len(setting.ratios) and result["cpu_seconds"] > 0:
            took[file.stem] = result["cpu_seconds"]
    both = [(one.seconds, took[one.cell.name]) for one in times if one.cell.name in took]
    if both:
        ours, theirs = map(sum, zip(*both, strict=True))
        print(f"  {len(both)} of them in {ran}: plan {ours:.0f} s, taken {theirs:.0f} s, ratio {theirs / ours:.2f}; "
              f"with the plan for the others {theirs + total - ours:.0f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), action="append")
    parser.add_argument("--cell", action="append", help="component[:choice]:mode:optimizer")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each timing")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--only", choices=("quick", "full"), help="one of the two plans")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="plan every n-th cell only")
    parser.add_argument("--ran", type=Path, help="a folder of scansnap dial to hold the plan against")
    given = parser.parse_args()
    with one_thread(), fast_arithmetic():
        if given.plan:
            for which in ("quick", "full"):
                if given.only in (None, which):
                    plan(which == "quick", given.cores, given.ran, given.every)
            return
        devices = given.device or (["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
        named([cell_of(name) for name in given.cell or NAMED], devices, given.seconds)


if __name__ == "__main__":
    main()
