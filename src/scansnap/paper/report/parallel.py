"""Compute several targets in parallel: one process per core; targets that share runs share a process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scansnap.dynamics.device import pick_device
from scansnap.interrupt import block_signals_in_children
from scansnap.paper.figure import Effort
from scansnap.paper.report.make import DrawnTarget, draw_target
from scansnap.processes import cpu_count, killable_pool, single_threaded_children
from scansnap.progress import Progress

SHARING = (("fig6", "fig11", "fig12"), ("words", "sparsity"))  # targets that use the same runs
SELF_PARALLEL = ("validity", "deviations", "probe", "lever", "alerts", "dial")  # use all cores themselves
# approximate seconds on one core of long targets, for the order and the time left
LONG = {"words": 180, "layers": 160, "fig10": 100, "fig7": 75, "sparsity": 45, "numbered": 20, "crossover": 10,
        "claims": 10, "timescales": 8}  # fmt: skip
SHORT = 2  # seconds of all other targets
MIN_TARGETS = 5  # starting a process takes seconds, so fewer targets run in this process
REPORT_EVERY = 0.5  # seconds between progress reports


def count_processes(names: Sequence[str], effort: Effort) -> int:
    """The number of processes: one on a GPU or for few targets."""
    if pick_device(effort.device).type != "cpu" or len(names) < MIN_TARGETS:
        return 1
    return max(1, min(cpu_count(), len(group_by_shared_runs(names))))


def group_by_shared_runs(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Groups of targets, one process each; the longest come first, so that all end together."""
    shared = [tuple(name for name in group if name in names) for group in SHARING]
    single = [(name,) for name in names if name not in SELF_PARALLEL and not any(name in group for group in shared)]
    return sorted((group for group in (*shared, *single) if group), key=lambda group: -sum(map(seconds, group)))


def seconds(name: str) -> float:
    return LONG.get(name, SHORT)


def draw_in_parallel(
    names: Sequence[str], effort: Effort, out: Path, n: int, progress: Progress | None = None
) -> Iterator[DrawnTarget]:
    """Targets as they are drawn by n processes; those of a group one after the other."""
    groups = group_by_shared_runs(names)
    total = sum(seconds(name) for group in groups for name in group)
    seconds_done = get_context("spawn").Array("d", len(groups), lock=False)  # by group
    with single_threaded_children(), killable_pool(n, _set_progress, (seconds_done,)) as pool:
        with block_signals_in_children():
            waiting: set[Future[list[DrawnTarget]]] = {
                pool.submit(_draw_group, i, group, replace(effort, shared_runs={}), out)
                for i, group in enumerate(groups)
            }
        while waiting:
            done, waiting = wait(waiting, timeout=REPORT_EVERY, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()
            if progress is not None:
                progress(round(100 * sum(seconds_done) / total), 100)


_seconds_done: Any = None  # of the worker process


def _set_progress(seconds_done: Any) -> None:
    global _seconds_done
    _seconds_done = seconds_done


def _draw_group(index: int, names: tuple[str, ...], effort: Effort, out: Path) -> list[DrawnTarget]:
    targets: list[DrawnTarget] = []
    for name in names:
        before = _seconds_done[index]

        def progress(done: int, total: int, name: str = name, before: float = before) -> None:
            _seconds_done[index] = before + seconds(name) * done / max(total, 1)

        targets.append(draw_target(name, effort, out, progress))
        progress(1, 1)
    return targets
