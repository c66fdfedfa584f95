"""Groups on a Ray cluster: each task is one batched group."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from scansnap.classes import SequenceClasses
from scansnap.cluster import Cluster, Failure, spread
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Group
from scansnap.sweep.work import Arrays, Job, run_group

TASK = "scansnap-group"  # how a task is called in Ray's own views


def execute(
    cluster: Cluster, sweep: Sweep, job: Job, groups: Iterable[Group], memory: Callable[[Group], int]
) -> Generator[tuple[Group, Arrays | Failure]]:
    """Each group with its arrays, or why there are none, in the order in which they are finished."""
    shared = (job, tuple(one.classes for one in sweep.class_sets))
    yield from spread(_work, shared, groups, cluster, memory=memory, name=TASK)


def _work(shared: tuple[Job, tuple[SequenceClasses, ...]], group: Group) -> Arrays:
    job, classes = shared
    return run_group(job, classes[group.class_set], group.start, group.stop)
