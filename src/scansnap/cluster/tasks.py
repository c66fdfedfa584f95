"""Run tasks on a Ray cluster and yield results as they finish; the cluster may start empty and grow.

Tasks are submitted whatever the cluster has now, because an autoscaler reads Ray's queue. Their number is limited, so
that 100,000 tasks take little memory and time of the driver. Shared values are sent once and unpacked once per worker.
Ray restarts a task whose worker or node dies, so a task must give the same result twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

import scansnap
from scansnap.checks import InputError
from scansnap.cluster.connection import Cluster, owns_connection

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")

_IN_FLIGHT = 1024  # tasks that Ray knows of at any time: what an autoscaler can see, and what the driver waits on
_RETRIES = 5  # of a task whose worker died
_SILENCE = 30.0  # seconds without a result after which the driver looks whether any node can do the work
_MEANWHILE = 0.05  # seconds for which results are gathered
_shared: dict[str, Any] = {}  # in a worker: the last things that were shared with it


@dataclass(frozen=True)
class Failure:
    """Why a task gave no result."""

    reason: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        text = " ".join(str(error).split())
        return cls(text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:500])


def spread(
    work: Callable[[Shared, Task], Result],
    shared: Shared,
    tasks: Iterable[Task],
    on: Cluster,
    *,
    memory: Callable[[Task], int] = lambda task: 0,
    name: str = "scansnap",
    note: Callable[[str], None] = lambda words: None,
) -> Generator[tuple[Task, Result | Failure]]:
    """Yield ``work(shared, task)`` for every task, in the order in which they finish; a Failure if it raised.

    work    a function of a module that the workers can import
    memory  bytes that Ray reserves for a task
    name    the name of a task in Ray's dashboard
    note    called with a sentence when no node of the cluster has room for a task
    """
    with on.connected() as ray:
        running: dict[Any, Task] = {}
        context = [ray.put((work, shared, on.cpus, _package_versions()))]  # in a list: it arrives as a reference
        sizes: dict[int, Any] = {}
        remote = ray.remote(_in_worker)
        queue, more, reported = iter(tasks), True, False
        try:
            while more or running:
                while more and len(running) < _IN_FLIGHT:
                    try:
                        task = next(queue)
                    except StopIteration:
                        more = False
                        break
                    size = memory(task)
                    if size not in sizes:
                        sizes[size] = remote.options(name=name, num_cpus=on.cpus, num_gpus=on.gpus, memory=size or None,
                                                     max_retries=_RETRIES, retry_exceptions=False)  # fmt: skip
                    running[sizes[size].remote(context, task)] = task
                if not running:
                    break
                ready = ray.wait(list(running), num_returns=1, timeout=_SILENCE, fetch_local=False)[0]
                if not ready:
                    reported = reported or _report_stall(ray, on, max(map(memory, running.values())), note)
                    continue
                reported = False
                if len(running) > 1:  # and all others that come meanwhile: few looks at many, where tasks are small
                    ready = ray.wait(list(running), num_returns=len(running), timeout=_MEANWHILE, fetch_local=False)[0]
                for ref, result in zip(ready, _results(ray, ready), strict=True):
                    yield running.pop(ref), result
                del ready, ref, result  # lets Ray free them
        finally:
            # Tasks end with a connection of our own. On a connection that stays they are cancelled; Ray aborts the
            # process if it cancels a task that is just ending, so this is not done where it is not needed.
            for ref in () if owns_connection() else running:
                ray.cancel(ref, force=True)


def _results(ray: Any, refs: list[Any]) -> list[Any]:
    """All results at once; one by one if the worker of a task died too often."""
    try:
        return list(ray.get(refs))
    except ray.exceptions.RayError as error:
        return [Failure.of(error)] if len(refs) == 1 else [result for ref in refs for result in _results(ray, [ref])]


def _in_worker(context: list[Any], task: Any) -> Any:
    """Run a task on as many threads as it has CPUs; an exception becomes a Failure."""
    import ray
    import torch

    key = context[0].hex()
    if key not in _shared:
        _shared.clear()
        _shared[key] = ray.get(context[0])
    work, shared, cpus, versions = _shared[key]
    if (here := _package_versions()) != versions:
        return Failure(f"this node has {here}, the driver {versions}")
    torch.set_num_threads(cpus)
    try:
        return work(shared, task)
    except Exception as error:
        return Failure.of(error)


def _report_stall(ray: Any, on: Cluster, memory: int, note: Callable[[str], None]) -> bool:
    """Report that no node has room for a task, if that is so."""
    wanted = {"CPU": on.cpus, "GPU": on.gpus, "memory": memory}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= n for name, n in wanted.items()) for node in nodes):
        return False
    words = ", ".join(f"{n:g} {name}" for name, n in wanted.items() if n)
    note(f"no node of the cluster has {words}, which a task needs: it waits for one")
    return True


@cache
def _package_versions() -> dict[str, str]:
    """Versions that must be the same on all nodes."""
    return {"scansnap": scansnap.__version__, **{name: metadata.version(name) for name in ("torch", "numpy")}}
