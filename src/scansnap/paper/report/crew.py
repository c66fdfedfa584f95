"""Several targets at a time: one process for each core, and what shares its runs in one of them."""

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
from scansnap.paper.report.make import DrawnTarget, drawn
from scansnap.processes import cpu_count, killable_pool, single_threaded_children
from scansnap.progress import Progress

SHARING = (("fig6", "fig11", "fig12"), ("words", "sparsity"))  # targets that look at the same runs
OWN_CREW = ("validity", "deviations", "probe", "dial")  # keep all cores busy by themselves
# seconds on one core, roughly, of what takes more than a few: for the order, and for the time left
LONG = {"words": 180, "layers": 160, "fig10": 100, "fig7": 75, "sparsity": 45, "claims": 10, "clocks": 8}
SHORT = 2  # of all others
PAYS = 5  # a process takes seconds to begin: for fewer targets than this there is nothing to gain
TOLD = 0.5  # seconds between two looks at how far they are


def processes_for(names: Sequence[str], effort: Effort) -> int:
    """How many processes: one on a GPU, which is one for all, and where there is little to do."""
    if pick_device(effort.device).type != "cpu" or len(names) < PAYS:
        return 1
    return max(1, min(cpu_count(), len(families(names))))


def families(names: Sequence[str]) -> list[tuple[str, ...]]:
    """What one process does in one go, the longest first, so that all end together."""
    together = [tuple(name for name in some if name in names) for some in SHARING]
    alone = [(name,) for name in names if name not in OWN_CREW and not any(name in some for some in together)]
    return sorted((some for some in (*together, *alone) if some), key=lambda some: -sum(map(seconds, some)))


def seconds(name: str) -> float:
    return LONG.get(name, SHORT)


def at_once(
    names: Sequence[str], effort: Effort, out: Path, n: int, progress: Progress | None = None
) -> Iterator[DrawnTarget]:
    """Targets as they are drawn, those of a family one after the other, by n processes."""
    work = families(names)
    of = sum(seconds(name) for some in work for name in some)
    far = get_context("spawn").Array("d", len(work), lock=False)  # seconds done in each family
    with single_threaded_children(), killable_pool(n, _begin, (far,)) as pool:
        with block_signals_in_children():
            waiting: set[Future[list[DrawnTarget]]] = {
                pool.submit(_family, i, some, replace(effort, shared_runs={}), out) for i, some in enumerate(work)
            }
        while waiting:
            done, waiting = wait(waiting, timeout=TOLD, return_when=FIRST_COMPLETED)
            for one in done:
                yield from one.result()
            if progress is not None:
                progress(round(100 * sum(far) / of), 100)


_far: Any = None  # of this process


def _begin(far: Any) -> None:
    global _far
    _far = far


def _family(place: int, names: tuple[str, ...], effort: Effort, out: Path) -> list[DrawnTarget]:
    found: list[DrawnTarget] = []
    for name in names:
        before = _far[place]

        def told(done: int, total: int, name: str = name, before: float = before) -> None:
            _far[place] = before + seconds(name) * done / max(total, 1)

        found.append(drawn(name, effort, out, told))
        told(1, 1)
    return found
