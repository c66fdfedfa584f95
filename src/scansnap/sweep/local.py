"""Groups on this machine, one after the other: the engine uses all cores, or the GPU, inside a group."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Group
from scansnap.sweep.work import Arrays, Failure, Job, run_group


def execute(sweep: Sweep, job: Job, groups: Iterable[Group], report: Any) -> Generator[tuple[Group, Arrays | Failure]]:
    """Each group with its arrays, or why there are none; ``report(runs)`` says what is done of the group under way."""
    for group in groups:
        classes, size = sweep.class_sets[group.class_set].classes, len(group)
        result: Arrays | Failure
        try:
            result = run_group(job, classes, group.start, group.stop,
                               lambda done, total, size=size: report(size * done / total))  # type: ignore[misc] # fmt: skip
        except Exception as error:
            result = Failure.of(error)
        yield group, result
        del result  # not kept while the next one is made
