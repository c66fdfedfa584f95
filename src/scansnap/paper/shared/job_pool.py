"""Many small trainings of a study: several at a time, each in a process, and each cached when it is done.

Models this small leave most of a GPU, and of a machine's cores, idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scansnap.interrupt import block_signals_in_children
from scansnap.paper.figure import Effort
from scansnap.paper.shared.run_cache import Record, cached_run
from scansnap.paper.shared.text_runs import TextSetting
from scansnap.processes import cpu_count, killable_pool, single_threaded_children
from scansnap.progress import Progress

AT_ONCE = {"cuda": 6, "cpu": 8}  # trainings, but no more than there are cores
Run = Callable[[Any, Any], dict[str, Any]]
RunJobs = Callable[[dict[Any, Any]], dict[Any, Record]]


def count_processes(device: str) -> int:
    """The number of trainings that run at the same time."""
    return max(1, min(AT_ONCE[device], cpu_count()))


@contextmanager
def job_pool(
    figure: str, run: Run, text: Any, setting: TextSetting, effort: Effort, total: int, progress: Progress | None
) -> Iterator[RunJobs]:
    """A function that trains jobs by name, several at a time; the records are by the same names, in their order.

    Parameters
    ----------
    figure
        The study, part of the key of cached records.
    run
        ``run(job, text)``, a function of a module, which returns the record of a job. A job is a data class of plain
        values with its number of steps.
    total
        Steps of all jobs, for the progress.
    """
    n, done = count_processes(setting.device), 0
    key = {"figure": figure, "text": setting.key(), "transformers": version("transformers")}
    train = partial(_train, run, text, effort.cache_folder, key)
    with single_threaded_children(), killable_pool(n, _initialize, (train,)) if n > 1 else nullcontext() as pool:

        def run_jobs(jobs: dict[Any, Any]) -> dict[Any, Record]:
            nonlocal done
            records = {}
            for name, record in _as_done(pool, train, jobs):
                records[name] = record
                done += jobs[name].steps
                if progress is not None:
                    progress(done, total)
            return {name: records[name] for name in jobs}

        yield run_jobs


def _train(run: Run, text: Any, folder: Path | None, key: dict[str, Any], job: Any) -> Record:
    return cached_run(folder, {**key, **asdict(job)}, lambda: run(job, text))


def _as_done(
    pool: Executor | None, train: Callable[[Any], Record], jobs: dict[Any, Any]
) -> Iterator[tuple[Any, Record]]:
    """Names and records; without a pool in this process."""
    if pool is None:
        for name, job in jobs.items():
            yield name, train(job)
        return
    with block_signals_in_children():
        pending = {pool.submit(_run_job, job): name for name, job in jobs.items()}
    for finished in as_completed(pending):
        yield pending[finished], finished.result()


_worker: dict[str, Callable[[Any], Record]] = {}  # of a worker process


def _initialize(train: Callable[[Any], Record]) -> None:
    _worker["train"] = train


def _run_job(job: Any) -> Record:
    return _worker["train"](job)
