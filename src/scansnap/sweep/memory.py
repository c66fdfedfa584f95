"""How much memory a group of runs takes, and roughly how long, from the sizes the engine itself works with.

Per run: the tables Y (L × J) and Z (H × Q × M) with their optimiser buffers, three times over (the state before a
stretch of steps, the pieces after it, and these joined); what is recorded, twice (as it comes and joined), and what
the measures make of it. Per seed: initial values in double precision while they are drawn, and the mini-batches of
a stretch. Beside these the temporaries, which the engine bounds itself. On a GPU the sum counts what is there and
on the host. Libraries are not counted: they take some 0.5 GB in every process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import Layout, make_layout
from scansnap.sweep.config import ClassSet, Sweep
from scansnap.sweep.schema import Schema

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


def cost(sweep: Sweep, one: ClassSet, found: Schema | None, device: str) -> Cost:
    """Cost of the runs of one class set; without a schema, all but what is recorded."""
    settings, axes = sweep.settings, sweep.axes
    layout = make_layout(one.classes, settings.model, decays=axes.decays)
    item = np.dtype(settings.dtype).itemsize
    y = len(layout.rows) * len(layout.columns)
    z = settings.model.heads * len(layout.queries) * layout.vocab_size
    buffers = [len(one.rule.moments) for one in settings.optimizers.values()]
    tables = (y * (1 + buffers[0]) + z * (1 + buffers[1])) * item
    records = 0
    if found is not None:
        attention = next((v.run_bytes for v in found.variables if v.name == "attention"), 0)
        looked_at = found.recorded_bytes if sweep.measures else attention  # temporaries of that size
        records = 2 * found.recorded_bytes + looked_at + found.run_bytes
    samples = settings.batch_size or len(layout.slots)
    most_samples = max(samples, len(layout.slots))  # what is recorded is seen for all classes at once
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


def _run_seconds(layout: Layout, sweep: Sweep) -> float:
    samples = sweep.settings.batch_size or len(layout.slots)
    columns = len(layout.columns) + _OVERHEAD_COLUMNS
    per_step = samples * layout.slots.shape[1] * columns * 2 / _FLOATS_PER_SECOND
    return per_step * (sweep.settings.steps + len(sweep.settings.record))


def _index_bytes(layout: Layout) -> int:
    """The layout's tables, on the host and on the device."""
    return 4 * sum(a.nbytes for a in (layout.slots, layout.slot_p, layout.slot_query, layout.slot_row))
