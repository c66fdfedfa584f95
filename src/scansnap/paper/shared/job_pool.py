"""Many small trainings of a study: several at a time, each in a process, and each cached when it is done.

Models this small leave most of a GPU, and of a machine's cores, idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

from scansnap.interrupt import block_signals_in_children
from scansnap.paper.shared.run_cache import Record
from scansnap.processes import cpu_count, killable_pool, single_threaded_children

AT_ONCE = {"cuda": 6, "cpu": 8}  # trainings, but no more than there are cores
Job = TypeVar("Job")
RunJobs = Callable[[dict[Any, Job]], dict[Any, Record]]


def count_processes(device: str) -> int:
    """The number of trainings that run at the same time."""
    return max(1, min(AT_ONCE[device], cpu_count()))


@contextmanager
def job_pool(
    n: int, work: Callable[..., Record], context: tuple[Any, ...], on_done: Callable[[Job], None]
) -> Iterator[RunJobs[Job]]:
    """A function that does jobs by name, n at a time, in their order; the records are by the same names.

    Parameters
    ----------
    work
        ``work(job, *context)``, a function of a module, which takes a finished record from a cache.
    on_done
        Called with each finished job.
    """
    if n == 1:

        def one_by_one(jobs: dict[Any, Job]) -> dict[Any, Record]:
            records = {}
            for name, job in jobs.items():
                records[name] = work(job, *context)
                on_done(job)
            return records

        yield one_by_one
        return
    with single_threaded_children(), killable_pool(n, _initialize, (work, context)) as pool:

        def together(jobs: dict[Any, Job]) -> dict[Any, Record]:
            with block_signals_in_children():
                pending = {pool.submit(_run_job, job): name for name, job in jobs.items()}
            records = {}
            for finished in as_completed(pending):
                records[pending[finished]] = finished.result()
                on_done(jobs[pending[finished]])
            return {name: records[name] for name in jobs}

        yield together


_shared: dict[str, Any] = {}  # of all jobs of a worker process


def _initialize(work: Callable[..., Record], context: tuple[Any, ...]) -> None:
    _shared.update(work=work, context=context)


def _run_job(job: Any) -> Record:
    record: Record = _shared["work"](job, *_shared["context"])
    return record
