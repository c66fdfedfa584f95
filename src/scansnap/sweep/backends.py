"""Compute the groups of a sweep, on this machine one after the other or on a Ray cluster.

Each Ray task is one batched group, which its worker computes and writes. So every machine must reach the store: a
shared folder or a bucket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from scansnap.classes import SequenceClasses
from scansnap.cluster import Cluster, Failure, spread
from scansnap.dynamics.simulate import simulate
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import ClassSetCosts, RunGroup, SweepPlan
from scansnap.sweep.store import RegionWriter, StoreError, SummaryPiece, summary_pieces
from scansnap.sweep.work import SweepJob, run_group

TASK = "scansnap-group"  # name of a task in Ray's dashboard
Note = Callable[[str], None]
_PROBE_SECONDS = 0.3


def run_locally(
    sweep: Sweep, job: SweepJob, writer: RegionWriter, groups: Iterable[RunGroup], report: Callable[[int], None]
) -> Generator[tuple[RunGroup, Failure | None]]:
    """Compute and write each group; yield it with the reason if it failed. StoreError if the store cannot be written.

    The engine uses all cores, or the GPU, within a group. ``report(runs)`` is called with the finished share.
    """
    for group in groups:
        classes, size = sweep.class_sets[group.class_set].classes, len(group)
        failure = None
        try:
            arrays = run_group(job, classes, group.start, group.stop,
                               lambda done, total, size=size: report(size * done // total))  # type: ignore[misc] # fmt: skip
            writer.write(group, arrays)
            del arrays  # free their memory before the next group
        except StoreError:
            raise
        except Exception as error:
            failure = Failure.of(error)
        yield group, failure


def run_on_ray(
    cluster: Cluster, job: SweepJob, sweep: Sweep, writer: RegionWriter, groups: Sequence[RunGroup],
    memory: Callable[[RunGroup], int], note: Note,
) -> Generator[tuple[RunGroup, Failure | None]]:  # fmt: skip
    """As `run_locally`, in the order in which groups finish."""
    shared = (job, tuple(class_set.classes for class_set in sweep.class_sets), writer)
    with cluster.connected(max(map(memory, groups), default=0)):
        for group, result in spread(_group, shared, groups, cluster, memory=memory, name=TASK, note=note):
            yield group, _raised(result)


def summarise(writer: RegionWriter, cluster: Cluster | None, memory: int, note: Note) -> Iterator[bool]:
    """Write the root's summary in pieces; yield whether all runs of a piece are done."""
    pieces = summary_pieces(writer.plan)
    if cluster is None or len(pieces) == 1:
        yield from map(writer.summarise, pieces)
        return
    results = spread(_piece, writer, pieces, cluster, memory=lambda piece: memory, name="scansnap-summary", note=note)
    for piece, result in results:
        complete = _raised(result)
        if isinstance(complete, Failure):
            raise StoreError(f"{piece} could not be computed ({complete.reason})")
        yield complete


def _raised(result: Any) -> Any:
    """Raise the StoreError of a worker."""
    if isinstance(result, StoreError):
        raise result
    return result


def _group(shared: tuple[SweepJob, tuple[SequenceClasses, ...], RegionWriter], group: RunGroup) -> StoreError | None:
    job, classes, writer = shared
    arrays = run_group(job, classes[group.class_set], group.start, group.stop)
    try:
        writer.write(group, arrays)
    except StoreError as error:
        return StoreError(str(error))
    return None


def _piece(writer: RegionWriter, piece: SummaryPiece) -> bool | StoreError:
    try:
        return writer.summarise(piece)
    except StoreError as error:
        return StoreError(str(error))


def estimate_seconds(sweep: Sweep, plan: SweepPlan, class_sets: ClassSetCosts) -> float:
    """Estimated seconds of the whole sweep on this machine, without recording and writing.

    A few steps of each class set's first group (at most 64 runs) are timed.
    """
    total = 0.0
    for class_set, schema, size in zip(sweep.class_sets, class_sets.schemas, plan.sizes, strict=True):
        runs = sweep.axes.take(0, min(size, 64))
        steps, seconds, options = 1, 0.0, sweep.options | {"variables": ["loss"]}

        def timed(n: int, runs: Any = runs, class_set: Any = class_set, options: Any = options) -> float:
            began = time.perf_counter()
            simulate(class_set.classes, runs, **(options | {"steps": n, "record": [n]}), device=plan.device)
            return time.perf_counter() - began

        fixed = min(timed(0), timed(0))
        while steps < sweep.settings.steps and seconds < _PROBE_SECONDS:
            steps = min(steps * 4, sweep.settings.steps)
            seconds = max(timed(steps) - fixed, 0.0)
        per_run = seconds / steps * sweep.settings.steps / len(runs) + schema.measuring_seconds
        total += plan.n_runs * per_run + fixed * -(-plan.n_runs // size)
    return total
