"""A sweep from file to store: plan or resume, execute group by group, write, finish."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scansnap.checks import InputError
from scansnap.cluster import Cluster, Failure, import_ray
from scansnap.dynamics.device import pick_device
from scansnap.storage import claimed, writable
from scansnap.sweep.config import Sweep
from scansnap.sweep.places import local, ray
from scansnap.sweep.plan import DEFAULT_MEMORY, Group, Layouts, Plan, look, make_plan, parse_memory
from scansnap.sweep.store import Store, StoreError, stored_plan
from scansnap.sweep.work import Job

Report = Callable[[float, int, int], None]  # runs done now, runs that were there already, runs in all


@dataclass
class Outcome:
    """What came of a sweep."""

    n_runs: int
    n_groups: int
    skipped: int = 0  # runs that were in the store already
    finished: int = 0  # runs done now
    failures: list[tuple[Group, str]] = field(default_factory=list)
    complete: bool = False


@dataclass
class Prepared:
    """A sweep that is ready to start."""

    sweep: Sweep
    plan: Plan
    layouts: Layouts
    store: Store
    resumed: bool
    replaces: bool  # whatever is there
    versions: dict[str, str]  # what a resumed store was begun with

    @property
    def group_bytes(self) -> list[int]:
        """Memory of the largest group, by class set."""
        return [cost.bytes(size) for cost, size in zip(self.layouts.costs, self.plan.sizes, strict=True)]


def prepare(
    sweep: Sweep,
    target: str | Path,
    *,
    memory: str | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Prepared:
    """Everything that can be refused, before anything is written."""
    path = Path(target)
    if path.suffix != ".zarr":
        raise InputError("--out", str(path), "a name ending in .zarr")
    if cluster is not None:
        import_ray()
    found: dict[str, str] = {}
    resumed = resume and os.path.exists(path)  # False, too, for a name that is too long
    _check_free(path, resume or overwrite)
    if not resumed:
        writable("--out", path, folder=True)
    if resumed:
        plan, found = stored_plan(path, sweep)
        if memory is not None and parse_memory(memory) != plan.memory:
            raise InputError("--memory", memory, "left out with --resume: the store's groups stay as they are")
        wanted = device if device == "auto" else _device(device, cluster)
        if wanted not in ("auto", plan.device) or (cluster is not None and _device("auto", cluster) != plan.device):
            raise InputError("the device", _device(device, cluster), f"{plan.device}, on which the store was begun")
        _device(plan.device, cluster)
        layouts = look(sweep, plan.device, plan.memory)
    else:
        place = _device(device, cluster)
        limit = parse_memory(memory or DEFAULT_MEMORY)
        layouts = look(sweep, place, limit)
        plan = make_plan(sweep, layouts, limit, place)
    return Prepared(sweep, plan, layouts, Store(path, sweep, plan, layouts.schemas), resumed, overwrite, found)


def _check_free(path: Path, may_exist: bool) -> None:
    if os.path.exists(path) and not may_exist:
        allowed = "a path that does not exist yet (or say --resume to finish it, --overwrite to start again)"
        raise InputError("--out", str(path), allowed)


def _device(name: str, cluster: Cluster | None) -> str:
    """cpu or cuda; on a cluster the GPUs a group asks for decide, as the driver need not have one."""
    if cluster is None:
        return pick_device(name).type
    if name not in ("auto", "cuda" if cluster.gpus > 0 else "cpu"):
        raise InputError("--device", name, "auto, or fit --gpus-per-group (cuda above 0, cpu at 0)")
    return "cuda" if cluster.gpus > 0 else "cpu"


def run(
    ready: Prepared, *, cluster: Cluster | None = None, report: Report = lambda done, skipped, total: None
) -> Outcome:
    """Do what is missing; a group that fails is left for the next time, Ctrl-C leaves at once."""
    with claimed("--out", ready.store.path):  # for all of it: nobody replaces a store that is being written
        if not ready.resumed:
            _check_free(ready.store.path, ready.replaces)
            ready.store.create()
        elif stored_plan(ready.store.path, ready.sweep)[0] != ready.plan:
            raise InputError("--out", str(ready.store.path), "the store as it was a moment ago")
        return _fill(ready, cluster, report)


def _fill(ready: Prepared, cluster: Cluster | None, report: Report) -> Outcome:
    sweep, plan, store = ready.sweep, ready.plan, ready.store
    outcome = Outcome(len(sweep), len(plan))

    def tell(part: float) -> None:
        report(outcome.finished + part, outcome.skipped, len(sweep))

    missing = store.missing()
    outcome.skipped = len(sweep) - sum(map(len, missing))
    job = Job(sweep.axes, sweep.options, sweep.stored, sweep.measures, plan.device)
    if cluster is not None:
        costs = ready.layouts.costs  # the longest first, so that all workers end at about the same time
        missing = sorted(missing, key=lambda g: -costs[g.class_set].run_seconds * len(g))
        results = ray.execute(cluster, sweep, job, missing, lambda g: costs[g.class_set].bytes(len(g)))
    else:
        results = local.execute(sweep, job, missing, tell)
    try:
        for group, result in results if missing else ():
            if isinstance(result, Failure):
                outcome.failures.append((group, result.reason))
            else:
                store.write(group, result)
                outcome.finished += len(group)
                tell(0)
            del result
    except KeyboardInterrupt:
        store.flush()  # finished groups count
        raise
    except StoreError:
        with suppress(StoreError):  # their marks are small and may still find room
            store.flush()
        raise
    finally:
        results.close()
    outcome.complete = store.finish()
    return outcome
