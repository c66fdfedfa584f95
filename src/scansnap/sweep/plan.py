"""Divide a sweep into groups: slices of the runs of one class set, as large as memory allows.

A group is simulated at once; it is one task of a cluster and one chunk of the store. The sweep file, the memory limit
and the kind of device determine the plan, so every machine has the same chunks. The plan is part of the store.

Memory of a group is estimated from the engine's sizes. Per run: the tables Y (L × J) and Z (H × Q × M) with their
optimiser buffers, three times (before some steps, after them, and joined); records, twice; and measures. Per seed:
initial values in double precision while they are drawn, and mini-batches. In addition the engine's temporaries, which
are bounded. On a GPU the sum counts device and host. Libraries take another 0.5 GB per process.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from scansnap.checks import InputError
from scansnap.checks.memory import format_bytes
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import TableLayout, make_layout
from scansnap.sweep.config import ClassSet, Sweep
from scansnap.sweep.schema import Schema, make_schema

_STRETCH_FLOATS, _STRETCH_STEPS = 32 << 20, 4096  # as dynamics/loop.py bounds what it samples ahead
_TEMPORARIES = {"cpu": 64 << 20, "cuda": 4 << 30}  # as engines/hand_written.py bounds its own, with some threads
_DRAWING = 12  # doubles alive for each initial value while it is drawn
_BATCH_BYTES = 12  # for each number of a mini-batch: sampled, converted, and its class as int64
_FLOATS_PER_SECOND = 2e10  # on two cores; only ratios of it matter
_OVERHEAD_COLUMNS = 64  # what a sample costs beside its products, in columns of Y


@dataclass(frozen=True)
class Cost:
    """Memory and time of groups of one class set, as functions of the number of runs."""

    fixed_bytes: int
    run_bytes: int
    temporary_bytes: int  # of a run in the engine …
    most_temporary: int  # … which takes no more runs at once than fit here
    seed_bytes: int  # initial values
    step_bytes: int  # one mini-batch of one seed
    steps: int  # in the longest stretch …
    stretch_bytes: int  # … which holds so much at most, or one step
    runs_per_seed: int
    run_seconds: float  # a rough guess, the same on every machine, so that plans are

    def n_seeds(self, n_runs: int) -> int:
        """Most seeds that this many neighbouring runs can have."""
        return min(n_runs, (n_runs - 1) // self.runs_per_seed + 2) if n_runs else 0

    def bytes(self, n_runs: int) -> int:
        """Memory of a group of so many runs."""
        seeds = self.n_seeds(n_runs)
        step = seeds * self.step_bytes
        stretch = min(step * self.steps, max(step, self.stretch_bytes))
        temporary = min(n_runs * self.temporary_bytes, max(self.temporary_bytes, self.most_temporary))
        return self.fixed_bytes + n_runs * self.run_bytes + seeds * self.seed_bytes + stretch + temporary

    def most_runs(self, limit: int, seconds: float) -> int:
        """The largest group within the memory and the time; 0 if a single run is too large for the memory."""
        most = max(1, int(seconds / max(self.run_seconds, 1e-12)))
        low, high = 0, most + 1  # bytes(low) fits, bytes(high) is not tried or does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.bytes(middle) <= limit else (low, middle)
        return low


def group_cost(sweep: Sweep, class_set: ClassSet, schema: Schema | None, device: str) -> Cost:
    """Cost of the runs of one class set; without a schema, all but what is recorded."""
    settings, axes = sweep.settings, sweep.axes
    layout = make_layout(class_set.classes, settings.model, decays=axes.decays)
    item = np.dtype(settings.dtype).itemsize
    y = len(layout.rows) * len(layout.columns)
    z = settings.model.heads * len(layout.queries) * layout.vocab_size
    buffers = [len(optimizer.rule.moments) for optimizer in settings.optimizers.values()]
    tables = (y * (1 + buffers[0]) + z * (1 + buffers[1])) * item
    records = 0
    if schema is not None:
        attention = next((v.run_bytes for v in schema.variables if v.name == "attention"), 0)
        measured = schema.recorded_bytes if sweep.measures else attention  # temporaries of that size
        records = 2 * schema.recorded_bytes + measured + schema.run_bytes
    samples = settings.batch_size or len(layout.slots)
    most_samples = max(samples, len(layout.slots))  # records are computed for all classes at once
    per_sample = len(layout.rows) * 2 + len(layout.columns) * 4 + layout.slots.shape[1] * 8  # as engine.py counts
    floats = Batches(layout, settings, np.zeros(1, dtype=np.int64), torch.device("cpu")).floats_per_step
    return Cost(
        fixed_bytes=_index_bytes(layout),
        run_bytes=3 * tables + records,
        temporary_bytes=most_samples * per_sample * item,
        most_temporary=_TEMPORARIES[device] * most_samples // samples,
        seed_bytes=0 if settings.model.init == "zero" else max(y, z) * 8 * _DRAWING,
        step_bytes=floats * _BATCH_BYTES,
        steps=min(settings.steps, _STRETCH_STEPS),
        stretch_bytes=_STRETCH_FLOATS * _BATCH_BYTES,
        runs_per_seed=len(axes) // axes.n_seeds,
        run_seconds=_run_seconds(layout, sweep),
    )


def _run_seconds(layout: TableLayout, sweep: Sweep) -> float:
    samples = sweep.settings.batch_size or len(layout.slots)
    columns = len(layout.columns) + _OVERHEAD_COLUMNS
    per_step = samples * layout.slots.shape[1] * columns * 2 / _FLOATS_PER_SECOND
    return per_step * (sweep.settings.steps + len(sweep.settings.record))


def _index_bytes(layout: TableLayout) -> int:
    """The layout's tables, on the host and on the device."""
    return 4 * sum(a.nbytes for a in (layout.slots, layout.slot_p, layout.slot_query, layout.slot_row))


DEFAULT_MEMORY = "4GB"
# On two cores, by a rough guess that is the same everywhere: little is lost with a group, and there are enough of them
# for all workers. A GPU is some six times faster.
GROUP_SECONDS = {"cpu": 2.5, "cuda": 15.0}


@dataclass(frozen=True)
class RunGroup:
    """Runs start … stop − 1 of one class set; ``chunk`` counts the groups of that set."""

    class_set: int
    chunk: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"runs {self.start} to {self.stop - 1} of class set {self.class_set}"


@dataclass(frozen=True)
class SweepPlan:
    """The size of the groups of each class set; only the last group of a set may be smaller."""

    memory: int  # most bytes of a group
    device: str
    n_runs: int  # of each class set
    sizes: tuple[int, ...]  # runs in a group, by class set

    def __len__(self) -> int:
        return sum(-(-self.n_runs // size) for size in self.sizes)

    def groups(self, class_set: int | None = None) -> list[RunGroup]:
        """The groups of a class set, or of all of them in their order."""
        sets = range(len(self.sizes)) if class_set is None else [class_set]
        return [RunGroup(s, chunk, start, min(start + self.sizes[s], self.n_runs))
                for s in sets for chunk, start in enumerate(range(0, self.n_runs, self.sizes[s]))]  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SweepPlan:
        table: dict[str, Any] = json.loads(text)
        return cls(**(table | {"sizes": tuple(table["sizes"])}))


@dataclass(frozen=True)
class ClassSetCosts:
    """Schema and cost of every class set."""

    schemas: tuple[Schema, ...]
    costs: tuple[Cost, ...]


def inspect_class_sets(sweep: Sweep, device: str, memory: int) -> ClassSetCosts:
    """Schema and cost of every class set; refuses what the measures refuse, and a run too large for the memory."""
    for s, class_set in enumerate(sweep.class_sets):
        _check_room(group_cost(sweep, class_set, None, device), s, memory)
    schemas = tuple(make_schema(sweep, class_set) for class_set in sweep.class_sets)
    costs = tuple(group_cost(sweep, each, schema, device)
                  for each, schema in zip(sweep.class_sets, schemas, strict=True))  # fmt: skip
    return ClassSetCosts(schemas, costs)


def make_plan(sweep: Sweep, class_sets: ClassSetCosts, memory: int, device: str) -> SweepPlan:
    """The largest groups within ``memory`` bytes, evened out so that a set's groups are nearly alike."""
    n_runs, sizes = len(sweep.axes), []
    for s, cost in enumerate(class_sets.costs):
        _check_room(cost, s, memory)
        most = min(cost.most_runs(memory, GROUP_SECONDS[device]), n_runs, sweep.most_runs or n_runs)
        n_groups = -(-n_runs // most)
        sizes.append(-(-n_runs // n_groups))
    return SweepPlan(memory, device, n_runs, tuple(sizes))


def _check_room(cost: Cost, s: int, memory: int) -> None:
    if cost.bytes(1) > memory:
        expected = f"at least {format_bytes(cost.bytes(1))}, for one run of class set {s}"
        raise InputError("--memory", format_bytes(memory), expected, "or record less")
