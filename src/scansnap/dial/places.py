"""Where the cells of a dial are run: in this process, in several on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from scansnap.cluster import Cluster, Failure, spread
from scansnap.dial.cell import Cell, run_cell
from scansnap.dial.clocks import Setting
from scansnap.dial.data import POSITIONS, SEQUENCES
from scansnap.dial.rungs import LADDER, find
from scansnap.processes import ending_at_once, single_threaded_children

VOCABULARY = 80  # tokens of most data, about
TASK = "scansnap-cell"  # how one is called in Ray's own views
Result = dict[str, Any]


class CellsFailed(RuntimeError):
    """Cells that workers could not do, and why; all others are done."""


def made(
    cells: list[Cell], setting: Setting, device: str, jobs: int, cluster: Cluster | None
) -> Iterator[tuple[Cell, Result]]:
    """Cells as they are done, the longest first where several share them, so that they end together.

    Rungs of one's own are known to this process alone.
    """
    own = [cell for cell in cells if find(cell.rung)[0].name not in LADDER]
    rest = sorted((cell for cell in cells if cell not in own), key=lambda cell: -work(cell, setting))
    if jobs == 1 and cluster is None:
        own, rest = cells, []
    for cell in own:
        yield cell, run_cell(cell, setting, device=device)
    if rest:
        yield from (
            _in_processes(rest, setting, device, jobs) if cluster is None else _on(cluster, rest, setting, device)
        )


def work(cell: Cell, setting: Setting) -> float:
    """Multiplications of a cell's training, roughly: only their order matters."""
    flags, length = cell.flags, setting.context
    d, tokens = (
        flags.width or VOCABULARY,
        {"every": POSITIONS, "last": 2 * length}.get(flags.asking, SEQUENCES["counts"]),
    )
    matrices = (4 if flags.separate else 2) + (8 if flags.mlp != "none" else 0)
    each = flags.layers * (matrices * d**2 + 2 * d * length) + d * VOCABULARY
    return tokens * each * setting.t0(cell.optimizer, 6, VOCABULARY)


def _in_processes(cells: list[Cell], setting: Setting, device: str, jobs: int) -> Iterator[tuple[Cell, Result]]:
    """Spawned, not forked: so that each can use the GPU as well."""
    with single_threaded_children(), ending_at_once(min(jobs, len(cells))) as pool:
        waiting: dict[Future[Result], Cell] = {
            pool.submit(run_cell, cell, setting, device=device): cell for cell in cells
        }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for one in done:
                yield waiting.pop(one), one.result()


def _on(cluster: Cluster, cells: list[Cell], setting: Setting, device: str) -> Iterator[tuple[Cell, Result]]:
    """What fails on the workers is told when all others are done."""
    failed = []
    for cell, result in spread(_remote, (setting, device), cells, cluster, name=TASK):
        if isinstance(result, Failure):
            failed.append(f"{cell.name}: {result.reason}")
        else:
            yield cell, result
    if failed:
        raise CellsFailed(f"{len(failed)} of {len(cells)} cells failed: {'; '.join(failed[:3])}")


def _remote(shared: tuple[Setting, str], cell: Cell) -> Result:
    setting, device = shared
    return run_cell(cell, setting, device=device)
