"""One cell of the dial: a rung, a way and an optimiser, from tuned rates to numbers by seed."""

from __future__ import annotations

import ctypes
import gc
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from scansnap.checks import check_choice
from scansnap.dial.clocks import Clock, Setting, tune
from scansnap.dial.data import Task
from scansnap.dial.observables import OBSERVABLES, Trajectory, comparable
from scansnap.dial.reading import Reading
from scansnap.dial.rungs import WAYS, Flags, find, flags_of, label
from scansnap.dial.sources import named
from scansnap.dial.training import Runs
from scansnap.dynamics.device import one_thread, pick_device
from scansnap.measure.snap import log_odds
from scansnap.progress import Progress

RECORDS = 40
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "sign", "muon")


@dataclass(frozen=True)
class Cell:
    """What makes a cell, and the command that makes it again."""

    rung: str
    way: str
    optimizer: str
    data: str = "syn-medium"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rung", label(*find(self.rung)))
        check_choice("way", self.way, WAYS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        self.flags  # noqa: B018  refused now where it cannot be

    @property
    def flags(self) -> Flags:
        return named(self.data).changes(flags_of(self.rung, self.way))

    @property
    def name(self) -> str:
        return f"{self.rung}-{self.way}-{self.optimizer}-{named(self.data).file}".replace(":", "_")

    def command(self, quick: bool) -> str:
        what = f"--rung {shlex.quote(self.rung)} --way {self.way} --optimizer {self.optimizer}"
        return f"scansnap dial {what}{named(self.data).options}" + " --quick" * quick


def run_cell(
    cell: Cell, setting: Setting, *, device: str = "auto", dtype: str = "float32", progress: Progress | None = None
) -> dict[str, Any]:
    """Tune, train, read; plain numbers, as they are in the cell's file. Verdicts are those of a table of cells."""
    began, worked = time.perf_counter(), time.process_time()
    with one_thread(), fast_arithmetic(), np.errstate(all="ignore"):  # of runs that diverged anything may come
        clock, trajectory = trained(cell, setting, device=device, dtype=dtype, progress=progress)
        here = trajectory.here
        rows = [one.of(trajectory if one.name == "ratio_effect" else here) for one in OBSERVABLES]
        data = trajectory.data
        gap = trajectory.grid(_gap(trajectory)).mean(1)  # (ratios, steps)
        odds = trajectory.grid(log_odds(data, trajectory.classes).mean("seq_class").values).mean(1)
    return {
        "rung": cell.rung, "way": cell.way, "optimizer": cell.optimizer, "data": cell.data, "observables": rows,
        "clock": clock.kind, "nominal": {k: v.tolist() for k, v in clock.eta.items()},
        "effective": {k: v.tolist() for k, v in clock.effective.items()}, "tenth_step": clock.loss_step.tolist(),
        "plateau": clock.plateau.tolist(), "t0": trajectory.t0, "ratios": list(setting.ratios), "seeds": setting.seeds,
        "step": data.step.values.tolist(), "gap": gap.tolist(), "log_odds": odds.tolist(),
        "loss": trajectory.grid(data.loss.values).mean(1).tolist(),
        "diverged": trajectory.diverged.sum(1).tolist(), "trains": clock.trains.tolist(), "met": clock.met.tolist(),
        "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - worked,
    }  # fmt: skip


@contextmanager
def fast_arithmetic() -> Iterator[None]:
    """What makes steps of many small tensors slow and changes no result is off inside the block.

    The C library gives large freed blocks back to the system at once, and the next step pays for having them again:
    thousands of page faults, a tenth of its time. Numbers below 10⁻³⁸, as where attention has left a token, take a
    hundred times as long as others; here they are zero. And what there is already, most of it modules, is no garbage
    that has to be looked through again and again.
    """
    threshold, trim = (-3, 32 << 20), -1  # glibc's M_MMAP_THRESHOLD at its largest, M_TRIM_THRESHOLD
    libc = None
    with suppress(OSError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(*threshold)
        libc.mallopt(trim, 2**31 - 1)
    torch.set_flush_denormal(True)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_flush_denormal(False)
        if libc is not None:
            libc.mallopt(trim, 128 << 10)
            libc.malloc_trim(0)


def trained(
    cell: Cell, setting: Setting, *, device: str = "auto", dtype: str = "float32", progress: Progress | None = None
) -> tuple[Clock, Trajectory]:
    """The runs of a cell, ratio-major, and the clock that set their rates."""
    flags, place, numbers = cell.flags, pick_device(device), getattr(torch, dtype)
    control = cell.way == "control"
    task = Task(flags, cell.data, place, numbers, setting.context, shuffled=control)
    t0 = setting.t0(cell.optimizer, task.n_classes, task.vocab_size)
    steps = round(setting.end * t0)
    # a control is paired with what it controls: the same rates, found where there is something to learn
    known = Task(flags, cell.data, place, numbers, setting.context) if control else task
    clock = tune(flags, known, cell.optimizer, setting, steps)
    rates = replace(clock, eta={name: np.nan_to_num(e, nan=0.0) for name, e in clock.eta.items()})
    seeds = np.tile(np.arange(setting.seeds), len(setting.ratios))
    runs = Runs(flags, task, cell.optimizer, seeds, rates.over(setting.seeds, place), steps)
    record = np.unique(np.rint(np.append(np.geomspace(1, steps, RECORDS), [0, min(10 * t0, steps)])).astype(int))
    readings: list[Reading] = []

    def look(step: int, now: Runs) -> None:
        readings.append(now.read())
        if progress is not None:
            progress(step, steps)

    runs.advance(steps, look, frozenset(record.tolist()))
    look(steps, runs)
    return clock, _trajectory(task, setting, t0, record, readings, clock)


def _trajectory(
    task: Task, setting: Setting, t0: float, record: np.ndarray, readings: list[Reading], clock: Clock
) -> Trajectory:
    heads, classes = readings[0].z.shape[1], task.classes

    def stacked(name: str) -> np.ndarray:
        each = np.stack([getattr(one, name) for one in readings], axis=2)  # (R, H, step, …)
        return each.reshape(-1, *each.shape[2:])

    loss = np.stack([one.loss for one in readings], axis=1)  # (R, step)
    data = xr.Dataset(
        {"attention": (("run", "step", "seq_class", "token"), stacked("attention")),
         "z": (("run", "step", "query", "token"), stacked("z")),
         "loss": (("run", "step"), np.repeat(loss, heads, axis=0))},
        coords={"step": record, "query": classes.queries, "run": np.arange(len(loss) * heads)},
        attrs={"bos": task.bos} if task.bos >= 0 else {},
    )  # fmt: skip
    diverged = ~(loss[:, -1] <= loss[:, 0]).reshape(len(setting.ratios), setting.seeds)  # above, or not a number
    return Trajectory(data, classes, setting.ratios, setting.seeds, heads, t0, diverged, clock.trains, clock.met)


def _gap(of: Trajectory) -> np.ndarray:
    """Mean logit of distinct less that of common tokens, since the start: (run, step)."""
    z, classes = of.data.z.values - of.data.z.values[:, :1], of.classes
    row = {int(m): i for i, m in enumerate(of.data["query"].values)}
    gaps = [z[:, :, row[int(classes.query[n])], classes.distinct(n)].mean(-1)
            - z[:, :, row[int(classes.query[n])], classes.common_of(n)].mean(-1)
            for n in comparable(classes)]  # fmt: skip
    return np.mean(gaps, axis=0) if gaps else np.full(z.shape[:2], np.nan)
