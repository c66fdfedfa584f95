"""Everything a live run is made of, and how large it may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.layout import Layout
from scansnap.dynamics.settings import Settings
from scansnap.explorer.protocol import LIMITS
from scansnap.runs import Runs

AHEAD_FLOATS = 1 << 20  # numbers of mini-batches sampled ahead at most …
_AHEAD = 1 << 18  # … and tokens, where they are drawn one by one
_TOKEN_BYTES = 200  # that drawing a token takes for a moment: words of the random stream and places in a table
_FRAME_OVERHEAD = 160  # bytes of an array beside its numbers
_OVERHEAD = 6 << 20  # what libraries keep of the first calls of a run's kind


class ClassesError(InputError):
    """A mistake in the classes, and the control it is shown at: a preset's setting, or the classes as a whole."""

    def __init__(self, error: InputError, control: str) -> None:
        super().__init__(error.field, error.value, error.allowed)
        self.control = control


@dataclass(frozen=True)
class Blueprint:
    """Everything a run is made of."""

    setup: dict[str, Any]  # every key filled in, as JSON
    classes: SequenceClasses
    runs: Runs  # one
    settings: Settings
    layout: Layout
    note: str = ""  # what of a file the page does not show

    @property
    def frame_floats(self) -> int:
        """Numbers in one frame: loss, three per class, attention, z."""
        _, tokens = query_tokens(self.layout)
        k = len(self.layout.slots)
        return 1 + 3 * k + int(self.layout.n_slots.sum()) + sum(len(row) for row in tokens)

    @property
    def memory(self) -> int:
        """Bytes a run needs, films included; an estimate from above."""
        return self.memory_for(self.settings.steps)

    def memory_for(self, steps: int) -> int:
        """The same with another last step: a film has no more frames than there are steps."""
        floats, y = self.frame_floats, len(self.layout.rows) * len(self.layout.columns)
        film = 2 * _film_bytes(floats, steps + 1)  # it may be on its way out as well
        film += _film_bytes(floats + y, scheduled_frames(steps)) if 64 * y <= LIMITS["film_bytes"] else 0
        ahead = max(_AHEAD, self.step_tokens) * _TOKEN_BYTES if self.step_tokens else 4 * AHEAD_FLOATS
        return self.state_memory + ahead + film + _OVERHEAD

    @property
    def state_memory(self) -> int:
        """Bytes of its tables, moments and one mini-batch."""
        s, lay = self.settings, self.layout
        size = 8 if s.dtype == "float64" else 4
        copies = 2 + len(s.optimizer_y.rule.moments) + len(s.optimizer_z.rule.moments)
        tables = len(lay.rows) * len(lay.columns) + s.model.heads * len(lay.queries) * lay.vocab_size
        samples = s.batch_size or len(lay.slots)
        per_sample = len(lay.rows) * 4 + len(lay.columns) * 4 + lay.slots.shape[1] * (8 + 4 * s.model.heads)
        return int(size * (copies * tables * 2 + samples * per_sample))

    @property
    def step_tokens(self) -> int:
        """Tokens drawn for one step, where they are drawn one by one."""
        s = self.settings
        drawn = s.sampling == "tokens" and not math.isinf(s.context)
        return (s.batch_size or 0) * int(s.context) if drawn else 0

    def longest(self, floats_per_step: int) -> int:
        """Steps whose data may be sampled at once."""
        ahead = _AHEAD // self.step_tokens if self.step_tokens else AHEAD_FLOATS // max(1, floats_per_step)
        return max(1, min(4096, ahead))


def _film_bytes(floats: int, frames: int) -> int:
    """What :class:`scansnap.explorer.live.film.Film` comes to: frames are dropped above LIMITS["film_bytes"]."""
    row = 4 * floats
    return int(min(frames, LIMITS["film_bytes"] // row + 1) * (row + _FRAME_OVERHEAD))


def scheduled_frames(steps: int) -> int:
    """An upper bound on the frames that every film holds: each step to 50, then every 2%."""
    return 52 + math.ceil(math.log(max(steps, 50) / 50) / math.log(1.02))


def query_tokens(layout: Layout) -> tuple[np.ndarray, list[np.ndarray]]:
    """The queries and, for each, the tokens its classes attend to, ascending."""
    rows = []
    for q in range(len(layout.queries)):
        own = [layout.slots[n, : layout.n_slots[n]] for n in np.flatnonzero(layout.class_query == q)]
        rows.append(np.unique(np.concatenate(own)))
    return layout.queries, rows


def hold_against_caps(blueprint: Blueprint) -> None:
    classes, s, lay = blueprint.classes, blueprint.settings, blueprint.layout
    for field, value, name in (("the number of classes", classes.n_classes, "classes"),
                               ("the vocabulary size", classes.vocab_size, "tokens")):  # fmt: skip
        if value > LIMITS[name]:
            raise _about_classes(field, value, f"at most {LIMITS[name]} in the explorer")
    if blueprint.frame_floats > LIMITS["frame_floats"]:
        allowed = f"at most {LIMITS['frame_floats']}: fewer classes or tokens, or norm l2"
        raise _about_classes("numbers per frame (attention and z)", blueprint.frame_floats, allowed)
    samples = s.batch_size or len(lay.slots)
    work = samples * (len(lay.rows) * len(lay.columns) + s.model.heads * lay.slots.shape[1] * 4)
    if s.sampling == "tokens" and not math.isinf(s.context):
        work += samples * int(s.context) * 300  # a token takes about as long as so many products
    orthogonal = _muon_products(blueprint)
    if work <= LIMITS["step_products"] < work + orthogonal:
        raise InputError("optimizer", "muon", f"another one for tables of {len(lay.rows)}×{len(lay.columns)} numbers")
    if work > LIMITS["step_products"]:
        allowed = f"at most {LIMITS['step_products']:.1e}, so that a step stays below a second: take a smaller batch"
        raise InputError("batch_size", s.batch_size, f"smaller here: a step is {work:.1e} products, {allowed}")
    if blueprint.memory > LIMITS["run_bytes"]:
        allowed = f"at most {LIMITS['run_bytes'] / 2**20:.0f} MiB: fewer tokens, a smaller batch, or init zero"
        raise _about_classes("the memory of the run", f"{blueprint.memory / 2**20:.0f} MiB", allowed)


def _muon_products(blueprint: Blueprint) -> float:
    """Five rounds of three matrix products for each table; large ones run about 20 times as fast as our own."""
    lay, model = blueprint.layout, blueprint.settings.model
    y = len(lay.rows), len(lay.columns)
    z = len(lay.queries), lay.vocab_size
    cost = [(blueprint.settings.optimizer_y, 1, y), (blueprint.settings.optimizer_z, model.heads, z)]
    return sum(n * 15 / 20 * a * b * min(a, b) for rule, n, (a, b) in cost if rule.name == "muon")


def _about_classes(field: str, value: Any, allowed: str) -> InputError:
    return ClassesError(InputError(field, value, allowed), "classes")
