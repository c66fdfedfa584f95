"""Groups on a Ray cluster: each task is one batched group, which its worker makes and writes.

The driver plans and counts; all that comes back of a group are a checksum and a count. Every
machine must therefore reach the store: in a folder that all of them share, or in a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from scansnap.classes import SequenceClasses
from scansnap.cluster import Cluster, Failure, spread
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Group
from scansnap.sweep.store import Piece, StoreError, Summed, Writer, Written
from scansnap.sweep.work import Job, run_group

TASK = "scansnap-group"  # how a task is called in Ray's own views
Note = Callable[[str], None]


def execute(
    cluster: Cluster, sweep: Sweep, job: Job, writer: Writer, groups: Sequence[Group], memory: Callable[[Group], int],
    note: Note,
) -> Generator[tuple[Group, Written | Failure]]:  # fmt: skip
    """As the local one, in the order in which groups are finished."""
    shared = (job, tuple(one.classes for one in sweep.class_sets), writer)
    with cluster.connected(max(map(memory, groups), default=0)):
        for group, result in spread(_group, shared, groups, cluster, memory=memory, name=TASK, note=note):
            yield group, _raised(result)


def summaries(cluster: Cluster, writer: Writer, memory: int, note: Note) -> Generator[Summed]:
    """The root's summary, each piece by one worker."""
    todo = writer.pieces()
    if len(todo) == 1:  # not worth the way
        yield writer.summarise(todo[0])
        return
    results = spread(_piece, writer, todo, cluster, memory=lambda piece: memory, name="scansnap-summary", note=note)
    for piece, result in results:
        found = _raised(result)
        if isinstance(found, Failure):
            raise StoreError(f"{piece} could not be made ({found.reason})")
        yield found


def _raised(result: Any) -> Any:
    """A store that takes no more ends the sweep, whoever met it."""
    if isinstance(result, StoreError):
        raise result
    return result


def _group(shared: tuple[Job, tuple[SequenceClasses, ...], Writer], group: Group) -> Written | StoreError:
    job, classes, writer = shared
    arrays = run_group(job, classes[group.class_set], group.start, group.stop)
    try:
        return writer.write(group, arrays)
    except StoreError as error:
        return StoreError(str(error))


def _piece(writer: Writer, piece: Piece) -> Summed | StoreError:
    try:
        return writer.summarise(piece)
    except StoreError as error:
        return StoreError(str(error))
