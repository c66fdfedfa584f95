"""Cells of the ablation study: a component, a mode and an optimiser, from matched rates to numbers by seed.

They run in this process, in several on this machine, or on a Ray cluster.
"""

from __future__ import annotations

import ctypes
import gc
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from scansnap.checks import check_choice
from scansnap.cluster import Cluster, Failure, spread
from scansnap.dial.components import BUILT_IN, MODES, Flags, find_component, flags_of, label
from scansnap.dial.data import POSITIONS, SEQUENCES, Task
from scansnap.dial.observables import OBSERVABLES, Trajectory, gap_curve
from scansnap.dial.rate_matching import MatchedRates, StudySettings, match_rates
from scansnap.dial.sources import parse_source
from scansnap.dial.training import CellRuns, Reading
from scansnap.dynamics.device import one_thread, pick_device
from scansnap.processes import killable_pool, single_threaded_children
from scansnap.progress import Progress

RECORDS = 40
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "sign", "muon")
VOCABULARY = 80  # tokens of most data, about
TASK = "scansnap-cell"  # how a cell is called in Ray's own views
Result = dict[str, Any]


class CellsFailed(RuntimeError):
    """Cells that workers could not finish, with the reasons. All others are done."""


@dataclass(frozen=True)
class Cell:
    """What identifies a cell."""

    component: str
    mode: str
    optimizer: str
    data: str = "syn-medium"

    def __post_init__(self) -> None:
        object.__setattr__(self, "component", label(*find_component(self.component)))
        check_choice("mode", self.mode, MODES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        self.flags  # noqa: B018  refuses impossible combinations

    @property
    def flags(self) -> Flags:
        return parse_source(self.data).changes(flags_of(self.component, self.mode))

    @property
    def name(self) -> str:
        return f"{self.component}-{self.mode}-{self.optimizer}-{parse_source(self.data).file}".replace(":", "_")

    def command(self, quick: bool) -> str:
        """The command that reproduces the cell."""
        words = f"--component {shlex.quote(self.component)} --mode {self.mode} --optimizer {self.optimizer}"
        return f"scansnap dial {words}{parse_source(self.data).options}" + " --quick" * quick


def run_cells(
    cells: list[Cell], settings: StudySettings, device: str, jobs: int, cluster: Cluster | None
) -> Iterator[tuple[Cell, Result]]:
    """Cells as they are done, the longest first where several processes share them, so that they end together.

    Registered components are known to this process alone.
    """
    own = [cell for cell in cells if find_component(cell.component)[0].name not in BUILT_IN]
    shared = sorted((cell for cell in cells if cell not in own), key=lambda cell: -cost(cell, settings))
    if jobs == 1 and cluster is None:
        own, shared = cells, []
    for cell in own:
        yield cell, run_cell(cell, settings, device=device)
    if shared and cluster is None:
        yield from _in_processes(shared, settings, device, jobs)
    elif shared and cluster is not None:
        yield from _on_cluster(cluster, shared, settings, device)


def cost(cell: Cell, settings: StudySettings) -> float:
    """Multiplications of a cell's training, roughly: only their order matters."""
    flags, length = cell.flags, settings.context
    tokens = {"every": POSITIONS, "last": 2 * length}.get(flags.asking, SEQUENCES["counts"])
    d = flags.width or VOCABULARY
    matrices = (4 if flags.separate else 2) + (8 if flags.mlp != "none" else 0)
    per_token = flags.layers * (matrices * d**2 + 2 * d * length) + d * VOCABULARY
    return tokens * per_token * settings.t0(cell.optimizer, 6, VOCABULARY)


def _in_processes(cells: list[Cell], settings: StudySettings, device: str, jobs: int) -> Iterator[tuple[Cell, Result]]:
    """Spawned, not forked: so that each can use the GPU as well."""
    with single_threaded_children(), killable_pool(min(jobs, len(cells))) as pool:
        waiting: dict[Future[Result], Cell] = {
            pool.submit(run_cell, cell, settings, device=device): cell for cell in cells
        }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()


def _on_cluster(
    cluster: Cluster, cells: list[Cell], settings: StudySettings, device: str
) -> Iterator[tuple[Cell, Result]]:
    """Failures on workers are raised when all other cells are done."""
    failed = []
    for cell, result in spread(_run_remotely, (settings, device), cells, cluster, name=TASK):
        if isinstance(result, Failure):
            failed.append(f"{cell.name}: {result.reason}")
        else:
            yield cell, result
    if failed:
        raise CellsFailed(f"{len(failed)} of {len(cells)} cells failed: {'; '.join(failed[:3])}")


def _run_remotely(shared: tuple[StudySettings, str], cell: Cell) -> Result:
    settings, device = shared
    return run_cell(cell, settings, device=device)


def run_cell(
    cell: Cell, settings: StudySettings, *, device: str = "auto", dtype: str = "float32",
    progress: Progress | None = None,
) -> Result:  # fmt: skip
    """Match rates, train and measure: plain numbers, as in the cell's file. Verdicts are those of a table of cells."""
    began, cpu_began = time.perf_counter(), time.process_time()
    with one_thread(), fast_arithmetic(), np.errstate(all="ignore"):  # runs that diverge give any number
        rates, trajectory = train_cell(cell, settings, device=device, dtype=dtype, progress=progress)
        at_reference = trajectory.at_reference
        rows = [observable.of(trajectory if observable.name == "ratio_effect" else at_reference)
                for observable in OBSERVABLES]  # fmt: skip
        curves = {"gap": gap_curve(trajectory), "log_odds": trajectory.log_odds, "loss": trajectory.data.loss.values}
        curves = {name: trajectory.grid(values).mean(1) for name, values in curves.items()}  # (ratios, steps)
    return {
        "component": cell.component, "mode": cell.mode, "optimizer": cell.optimizer, "data": cell.data,
        "observables": rows, "matching": rates.kind, "nominal": {k: v.tolist() for k, v in rates.eta.items()},
        "effective": {k: v.tolist() for k, v in rates.effective.items()}, "tenth_step": rates.loss_step.tolist(),
        "plateau": rates.plateau.tolist(), "t0": trajectory.t0, "ratios": list(settings.ratios),
        "seeds": settings.seeds, "step": trajectory.data.step.values.tolist(),
        **{name: values.tolist() for name, values in curves.items()}, "diverged": trajectory.diverged.sum(1).tolist(),
        "trains": rates.trains.tolist(), "met": rates.met.tolist(),
        "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu_began,
    }  # fmt: skip


@contextmanager
def fast_arithmetic() -> Iterator[None]:
    """Switch off what makes steps of many small tensors slow and changes no result.

    The C library returns large freed blocks to the system at once, and the next step pays for thousands of page
    faults, a tenth of its time. Numbers below 10⁻³⁸, as where attention has left a token, take a hundred times as long
    as others; here they are zero. Objects that exist already, most of them modules, are left out of garbage collection.
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


def train_cell(
    cell: Cell, settings: StudySettings, *, device: str = "auto", dtype: str = "float32",
    progress: Progress | None = None,
) -> tuple[MatchedRates, Trajectory]:  # fmt: skip
    """The runs of a cell, ratio-major, and their matched rates."""
    flags, place, numbers = cell.flags, pick_device(device), getattr(torch, dtype)
    is_control = cell.mode == "control"
    task = Task(flags, cell.data, place, numbers, settings.context, shuffled=is_control)
    t0 = settings.t0(cell.optimizer, task.n_classes, task.vocab_size)
    steps = round(settings.end * t0)
    # a control has the rates of the cell that it controls, matched where there is something to learn
    matched_on = Task(flags, cell.data, place, numbers, settings.context) if is_control else task
    rates = match_rates(flags, matched_on, cell.optimizer, settings, steps)
    finite = replace(rates, eta={name: np.nan_to_num(e, nan=0.0) for name, e in rates.eta.items()})
    seeds = np.tile(np.arange(settings.seeds), len(settings.ratios))
    runs = CellRuns(flags, task, cell.optimizer, seeds, finite.over(settings.seeds, place), steps)
    record = np.unique(np.rint(np.append(np.geomspace(1, steps, RECORDS), [0, min(10 * t0, steps)])).astype(int))
    readings: list[Reading] = []

    def measure(step: int, runs: CellRuns) -> None:
        readings.append(runs.read())
        if progress is not None:
            progress(step, steps)

    runs.advance(steps, measure, frozenset(record.tolist()))
    measure(steps, runs)
    return rates, _trajectory(task, settings, t0, record, readings, rates)


def _trajectory(
    task: Task, settings: StudySettings, t0: float, record: np.ndarray, readings: list[Reading], rates: MatchedRates
) -> Trajectory:
    heads, classes = readings[0].z.shape[1], task.classes

    def stacked(name: str) -> np.ndarray:
        values = np.stack([getattr(reading, name) for reading in readings], axis=2)  # (R, H, step, …)
        return values.reshape(-1, *values.shape[2:])

    loss = np.stack([reading.loss for reading in readings], axis=1)  # (R, step)
    data = xr.Dataset(
        {"attention": (("run", "step", "seq_class", "token"), stacked("attention")),
         "z": (("run", "step", "query", "token"), stacked("z")),
         "loss": (("run", "step"), np.repeat(loss, heads, axis=0))},
        coords={"step": record, "query": classes.queries, "run": np.arange(len(loss) * heads)},
        attrs={"bos": task.bos} if task.bos >= 0 else {},
    )  # fmt: skip
    diverged = ~(loss[:, -1] <= loss[:, 0]).reshape(len(settings.ratios), settings.seeds)  # above, or not a number
    return Trajectory(data, classes, settings.ratios, settings.seeds, heads, t0, diverged, rates.trains, rates.met)
