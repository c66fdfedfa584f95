"""Run a sweep from its file to its store: plan or resume, compute the groups, finish."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from scansnap.checks import InputError
from scansnap.checks.memory import format_bytes, parse_memory
from scansnap.cluster import Cluster, import_ray
from scansnap.dynamics.device import pick_device
from scansnap.progress import Progress
from scansnap.storage import write_lock
from scansnap.storage.objects import Folder, Objects, place_of
from scansnap.sweep import backends
from scansnap.sweep.config import Sweep
from scansnap.sweep.plan import DEFAULT_MEMORY, ClassSetCosts, RunGroup, SweepPlan, inspect_class_sets, make_plan
from scansnap.sweep.store import SweepStore, stored_plan
from scansnap.sweep.template import StoreTemplate
from scansnap.sweep.work import SweepJob


@dataclass
class SweepOutcome:
    """Counts of a finished or interrupted sweep."""

    n_runs: int
    n_groups: int
    skipped: int = 0  # runs that were in the store before
    finished: int = 0  # runs of this process
    failures: list[tuple[RunGroup, str]] = field(default_factory=list)
    complete: bool = False


@dataclass
class PreparedSweep:
    """A checked sweep with its plan and store."""

    sweep: Sweep
    plan: SweepPlan
    class_sets: ClassSetCosts
    store: SweepStore
    resumed: bool
    replaces: bool  # an existing store

    @property
    def group_bytes(self) -> list[int]:
        """Memory of the largest group, by class set."""
        return [cost.bytes(size) for cost, size in zip(self.class_sets.costs, self.plan.sizes, strict=True)]


def prepare(
    sweep: Sweep,
    target: str | Path,
    *,
    endpoint: str | None = None,
    memory: str | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> PreparedSweep:
    """Check everything before anything is written."""
    place = place_of(target, "--out", endpoint)
    if not str(place).endswith(".zarr"):
        raise InputError("--out", str(place), "a name ending in .zarr")
    if find_spec("zarr") is None:
        raise InputError.conflict("--out", "Zarr is not installed; pip install scansnap", str(place))
    if cluster is not None:
        import_ray()
    exists = _exists(place)
    resumed = resume and exists
    _check_free(place, exists, resume or overwrite)
    if not resumed:
        place.check_writable("--out")
    if resumed:
        plan = stored_plan(place, sweep)
        if memory is not None and parse_memory(memory) != plan.memory:
            raise InputError("--memory", memory, format_bytes(plan.memory), "--resume keeps the groups of the store")
        wanted = device if device == "auto" else _device(device, cluster)
        if wanted not in ("auto", plan.device) or (cluster is not None and _device("auto", cluster) != plan.device):
            raise InputError("device", _device(device, cluster), f"{plan.device}, as in the store")
        _device(plan.device, cluster)
        class_sets = inspect_class_sets(sweep, plan.device, plan.memory)
    else:
        kind = _device(device, cluster)
        limit = parse_memory(memory or DEFAULT_MEMORY)
        class_sets = inspect_class_sets(sweep, kind, limit)
        plan = make_plan(sweep, class_sets, limit, kind)
    return PreparedSweep(
        sweep, plan, class_sets, SweepStore(place, StoreTemplate(sweep, plan, class_sets.schemas)), resumed, overwrite
    )


def _exists(place: Objects) -> bool:
    try:
        return place.exists()
    except OSError as error:
        raise InputError("--out", str(place), f"a reachable place ({error.strerror or error})") from None


def _check_free(place: Objects, exists: bool, may_exist: bool) -> None:
    if exists and not may_exist:
        message = f"{place} exists; pass --resume to continue it or --overwrite to replace it"
        raise InputError.conflict("--out", message, str(place))


def _device(name: str, cluster: Cluster | None) -> str:
    """cpu or cuda; on a cluster the GPUs a group asks for decide, as the driver need not have one."""
    if cluster is None:
        return pick_device(name).type
    if name not in ("auto", "cuda" if cluster.gpus > 0 else "cpu"):
        raise InputError("--device", name, "auto, or what --gpus-per-group asks for: cuda above 0, cpu at 0")
    return "cuda" if cluster.gpus > 0 else "cpu"


def run(
    ready: PreparedSweep,
    *,
    cluster: Cluster | None = None,
    progress: Progress = lambda done, total: None,
    note: Callable[[str], None] = lambda words: None,
) -> SweepOutcome:
    """Compute the missing groups. A failed group stays missing; Ctrl-C ends at once."""
    store = ready.store
    with ExitStack() as stack:
        if isinstance(store.place, Folder):  # refuses a second process; the results do not depend on it
            stack.enter_context(write_lock("--out", store.place.path))
        if not ready.resumed:
            if cluster is not None:  # refuses before anything is written
                stack.enter_context(cluster.connected(max(ready.group_bytes)))
            _check_free(store.place, _exists(store.place), ready.replaces)
            store.create(replaces=ready.replaces)
        elif stored_plan(store.place, ready.sweep) != ready.plan:
            raise InputError.conflict("--out", f"another process has just replaced {store.place}", str(store.place))
        try:
            return _fill(ready, cluster, progress, note)
        finally:
            store.place.tidy()


def _fill(
    ready: PreparedSweep, cluster: Cluster | None, progress: Progress, note: Callable[[str], None]
) -> SweepOutcome:
    sweep, plan, store = ready.sweep, ready.plan, ready.store
    outcome = SweepOutcome(len(sweep), len(plan))

    def report(part: int) -> None:
        progress(outcome.skipped + outcome.finished + part, len(sweep))

    missing = store.missing() if ready.resumed else plan.groups()
    outcome.skipped = len(sweep) - sum(map(len, missing))
    report(0)
    if store.complete:
        outcome.complete = True
        return outcome
    job = SweepJob(sweep.axes, sweep.options, sweep.stored, sweep.measures, plan.device)
    writer = store.writer()
    if cluster is None:
        results = backends.run_locally(sweep, job, writer, missing, report)
    else:
        costs = ready.class_sets.costs  # the longest first, so that all workers end at about the same time
        missing.sort(key=lambda g: -costs[g.class_set].run_seconds * len(g))
        results = backends.run_on_ray(cluster, job, sweep, writer, missing,
                                      lambda g: costs[g.class_set].bytes(len(g)), note)  # fmt: skip
    with closing(results):
        for group, failure in results if missing else ():
            if failure is not None:
                outcome.failures.append((group, failure.reason))
            else:
                outcome.finished += len(group)
                report(0)
    pieces = list(backends.summarise(writer, cluster, max(ready.group_bytes), note))
    outcome.complete = store.finish(all(pieces))
    return outcome
