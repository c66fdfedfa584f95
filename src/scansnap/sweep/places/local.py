"""Groups on this machine, one after the other: the engine uses all cores, or the GPU, inside a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

from scansnap.cluster import Failure
from scansnap.dynamics.simulate import simulate
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import Group, Layouts, Plan
from scansnap.sweep.store import StoreError, Summed, Writer, Written
from scansnap.sweep.work import Job, run_group

_PROBE_SECONDS = 0.3


def execute(
    sweep: Sweep, job: Job, writer: Writer, groups: Iterable[Group], report: Callable[[int], None]
) -> Generator[tuple[Group, Written | Failure]]:
    """Make and write each group: what vouches for it in the store, or why there is none.

    ``report(runs)`` says what is done of the group under way. A store that takes no more ends it.
    """
    for group in groups:
        classes, size = sweep.class_sets[group.class_set].classes, len(group)
        result: Written | Failure
        try:
            arrays = run_group(job, classes, group.start, group.stop,
                               lambda done, total, size=size: report(size * done // total))  # type: ignore[misc] # fmt: skip
            result = writer.write(group, arrays)
            del arrays  # not kept while the next ones are made
        except StoreError:
            raise
        except Exception as error:
            result = Failure.of(error)
        yield group, result


def summaries(writer: Writer) -> Generator[Summed]:
    """The root's summary, piece by piece."""
    yield from map(writer.summarise, writer.pieces())


def probe(sweep: Sweep, plan: Plan, layouts: Layouts) -> float:
    """Seconds the whole sweep may take here, from a short measured piece of each class set's first group.

    Steps are timed on all runs of the group (at most 64) until there is something to time; measures that go run by
    run as the schema took them. Recording and writing are not in it.
    """
    total = 0.0
    for one, found, size in zip(sweep.class_sets, layouts.schemas, plan.sizes, strict=True):
        runs = sweep.axes.take(0, min(size, 64))
        steps, seconds, options = 1, 0.0, sweep.options | {"variables": ["loss"]}

        def timed(n: int, runs: Any = runs, one: Any = one, options: Any = options) -> float:
            began = time.perf_counter()
            simulate(one.classes, runs, **(options | {"steps": n, "record": [n]}), device=plan.device)
            return time.perf_counter() - began

        fixed = min(timed(0), timed(0))
        while steps < sweep.settings.steps and seconds < _PROBE_SECONDS:
            steps = min(steps * 4, sweep.settings.steps)
            seconds = max(timed(steps) - fixed, 0.0)
        per_run = seconds / steps * sweep.settings.steps / len(runs) + found.measuring_seconds
        total += plan.n_runs * per_run + fixed * -(-plan.n_runs // size)
    return total
