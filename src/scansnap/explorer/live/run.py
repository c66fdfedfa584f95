"""One run under way: advance it, look at it, change its rates, and keep its film."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from scansnap.dynamics.engines.batches import Batches, Stretch
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.observe import Observer
from scansnap.dynamics.state import State, start
from scansnap.explorer.live.film import Film, next_scheduled
from scansnap.explorer.protocol import FIELDS, LIMITS
from scansnap.explorer.setups.blueprint import Blueprint, query_tokens
from scansnap.measure.growth import GrowthPoint

_TABLE_BYTES = 8 << 20  # kept tables Y
_DRAWN = (16, 1 << 15)  # mini-batches drawn at once, and their floats: early frames are a step apart, and a draw costs


class _SlotObserver(Observer):
    """Attention by slots of the class instead of by all tokens."""

    def _to_tokens(self, c: np.ndarray) -> np.ndarray:
        return c


class LiveRun:
    """The engine of ``simulate``, stopped and looked at whenever somebody wants to; the numbers are the same."""

    def __init__(self, blueprint: Blueprint, ahead: Sequence[dict[str, Any]] = ()) -> None:
        self.blueprint, self.classes = blueprint, blueprint.classes
        self.device = torch.device("cpu")
        variables = ("attention", "entropy", "loss", "z")
        self.settings = dataclasses.replace(blueprint.settings, variables=variables)
        self.batches = Batches(blueprint.layout, self.settings, np.unique(blueprint.runs.seed), self.device)
        model = blueprint.settings.model
        self.theory_model = model.norm == "l2" and model.residual == "none" and model.heads == 1
        _, self.query_tokens = query_tokens(blueprint.layout)
        self.longest = blueprint.longest(self.batches.floats_per_step)
        self._at_once = max(1, min(_DRAWN[0], self.longest, _DRAWN[1] // self.batches.floats_per_step))
        self._drawn: Stretch | None = None
        self.ahead: deque[dict[str, Any]]  # changes of the rates on the way
        self.reset()
        self.ahead = deque(ahead)
        self._pass_marks()

    def reset(self) -> None:
        """Back to step 0 and the first rates."""
        self.runs = self.blueprint.runs
        self._set_engine()
        self.state: State = start(self.blueprint.layout, self.settings, self.runs.seed, self.device)
        self.marks: list[dict[str, Any]] = []
        self.ahead = deque()
        self.film, self.tables = Film(LIMITS["film_bytes"]), Film(_TABLE_BYTES)
        self._scheduled = 0
        z, c = self._look()[:2]
        self._dominant = self._find_dominant(c)
        self._z0 = z.copy()
        self._path = _Path(self)
        self._path.commit(self._path.read(z, c))
        self.record()

    def _set_engine(self) -> None:
        self.engine = Engine(self.blueprint.layout, self.settings, self.runs, self.device)
        self.observer = _SlotObserver(self.classes, self.engine, self.batches)

    @property
    def step(self) -> int:
        return self.state.step

    @property
    def steps(self) -> int:
        return self.settings.steps

    @property
    def eta(self) -> tuple[float, float]:
        return float(self.runs.eta_y[0]), float(self.runs.eta_z[0])

    @property
    def failed_step(self) -> int | None:
        failed = int(self.state.failed_step[0])
        return None if failed < 0 else failed

    @property
    def over(self) -> bool:
        """Nothing moves any more: the last step is reached, or the run left the float range."""
        return self.step >= self.steps or self.failed_step is not None

    def advance(self, n: int) -> int:
        """Up to n steps, but not past the next scheduled frame, which is recorded, nor past the next change of the
        rates; returns how many were made."""
        stop = min(self.step + max(1, n), self._scheduled, self.steps, self.step + self.longest)
        if self.ahead:
            stop = min(stop, self.ahead[0]["step"])
        done = stop - self.step
        if done <= 0 or self.failed_step is not None:
            return 0
        with torch.inference_mode():
            self.state = self.engine.advance(self.state, self._take(self.step, stop))
        if self.step == self._scheduled or self.over:
            self.record()
        self._pass_marks()
        return done

    def _take(self, start: int, stop: int) -> Stretch:
        """The mini-batches start … stop − 1; they depend on their step alone, not on what they are drawn with."""
        if stop - start >= self._at_once:
            return self.batches.take(start, stop)
        kept = self._drawn
        if kept is None or start < kept.start or stop > kept.start + len(kept):
            kept = self._drawn = self.batches.take(start, start + self._at_once)
        part = slice(start - kept.start, stop - kept.start)
        return Stretch(start, *(a[:, part] for a in (kept.cls, kept.counts, kept.weight)))

    def _pass_marks(self) -> None:
        while self.ahead and self.ahead[0]["step"] <= self.step:
            mark = self.ahead.popleft()
            self.change(mark["eta_y"], mark["eta_z"])

    def change(self, eta_y: float | None, eta_z: float | None) -> None:
        """New rates from the current step on; the state, its momentum included, goes on."""
        now = self.eta
        new = (now[0] if eta_y is None else eta_y, now[1] if eta_z is None else eta_z)
        if new == now:
            return
        self.runs = dataclasses.replace(self.runs, eta_y=np.array([new[0]]), eta_z=np.array([new[1]]))
        self._set_engine()
        if self.marks and self.marks[-1]["step"] == self.step:
            self.marks.pop()
        self.marks.append({"step": self.step, "eta_y": new[0], "eta_z": new[1]})
        self.record()

    def extend(self, steps: int) -> None:
        """A new last step, not before the current one."""
        self.settings = dataclasses.replace(self.settings, steps=max(steps, self.step))
        self.batches.settings = self.settings
        self._set_engine()

    # --- frames ------------------------------------------------------------------------------------------------------

    def record(self) -> bool:
        """Keep a frame of the current step, if there is none yet; whether one was added."""
        if self.film.steps and self.film.steps[-1] >= self.step:
            return False
        z, c, loss, entropy = self._look()
        here = self._path.read(z, c)
        growth = self._path.value(here)
        if self.step >= self._scheduled or self.step == 0:
            self._path.commit(here)
            self._scheduled = next_scheduled(self.step)
            fixed = True
        else:
            fixed = False
        k = len(growth)
        own = [c[n, : self.blueprint.layout.n_slots[n]] for n in range(k)]
        on_tokens = [z[q, tokens] for q, tokens in enumerate(self.query_tokens)]
        row = np.concatenate([[loss], entropy, growth, self._log_chi(z), *own, *on_tokens]).astype(np.float32)
        self.film.add(self.step, row)
        if fixed or self.over:
            y = self.state.tables["y"][0].numpy()
            if y.size * 4 * 16 <= _TABLE_BYTES:
                self.tables.add(self.step, np.concatenate([row, y.ravel().astype(np.float32)]))
        return True

    def _look(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """z (Q, M), mean over heads; attention (K, S); loss; entropy (K,)."""
        with torch.inference_mode():
            seen = self.observer(self.state, self.settings.variables)
        z = seen["z"][0]
        return z.mean(0) if z.ndim == 3 else z, seen["attention"][0], float(seen["loss"][0]), seen["entropy"][0]

    def _find_dominant(self, c: np.ndarray) -> list[int | None]:
        """The token of each class's distinct ones that leads at step 0."""
        found: list[int | None] = []
        for n, distinct in enumerate(self.observer.distinct):
            where = np.flatnonzero(distinct)
            top = where[np.argmax(c[n, where])] if len(where) else None
            found.append(None if top is None else int(self.blueprint.layout.slots[n, top]))
        return found

    def _log_chi(self, z: np.ndarray) -> np.ndarray:
        query = self.blueprint.layout.class_query
        return np.array([np.nan if token is None else 2 * (float(z[q, token]) - float(self._z0[q, token]))
                         for q, token in zip(query, self._dominant, strict=True)])  # fmt: skip

    def table_y(self, size: int, step: int | None = None) -> tuple[int, np.ndarray]:
        """The step and the values of a TABLE_Y frame: at most size × size, larger tables as means over blocks.

        Of an earlier ``step``, the nearest table that is kept; where tables are too large to keep, that of now.
        """
        lay = self.blueprint.layout
        y, rows, columns, at = self.state.tables["y"][0].numpy(), lay.rows, lay.columns, self.step
        if step is not None and step < self.step and self.tables.steps:
            at = min([*self.tables.steps, self.step], key=lambda kept: abs(kept - step))
        if at != self.step:
            y = self.tables.rows[self.tables.steps.index(at)][-y.size :].reshape(y.shape)
        y, rows = _blocks(y, rows, size, axis=0)
        y, columns = _blocks(y, columns, size, axis=1)
        return at, np.concatenate([[len(rows), len(columns)], rows, columns, y.ravel()]).astype(np.float32)

    def layout(self) -> dict[str, Any]:
        """``Layout`` of the protocol."""
        lay, k = self.blueprint.layout, self.classes.n_classes
        sizes = {"loss": 1, "entropy": k, "growth": k, "log_chi": k, "attention": int(lay.n_slots.sum()),
                 "z": sum(len(tokens) for tokens in self.query_tokens)}  # fmt: skip
        offsets = np.cumsum([0, *sizes.values()])
        return {
            "floats": int(offsets[-1]),
            "fields": [{"name": name, "offset": int(o), "size": sizes[name]}
                       for name, o in zip(FIELDS, offsets, strict=False)],
            "tokens": [lay.slots[n, : lay.n_slots[n]].tolist() for n in range(k)],
            "query_tokens": [tokens.tolist() for tokens in self.query_tokens],
            "queries": lay.queries.tolist(), "class_query": lay.class_query.tolist(),
        }  # fmt: skip


class _Path:
    """B_n along the way (:mod:`scansnap.measure.growth`), between scheduled frames, so that it does not depend on how
    often somebody looked."""

    def __init__(self, live: LiveRun) -> None:
        self.live = live
        self.total: np.ndarray | None = None

    def read(self, z: np.ndarray, c: np.ndarray) -> GrowthPoint:
        lay, distinct = self.live.blueprint.layout, self.live.observer.distinct
        c64 = c.astype(np.float64)
        with np.errstate(all="ignore"):
            f = c64 / np.linalg.norm(c64, axis=1, keepdims=True)  # (K, S)
        on_slots = z.astype(np.float64)[lay.class_query[:, None], lay.slots]  # (K, S)
        return GrowthPoint.of((on_slots[n, own], f[n, own]) for n, own in enumerate(distinct))

    def value(self, here: GrowthPoint) -> np.ndarray:
        """(K,) at the given point, from the last committed one."""
        k = len(here.height)
        if not self.live.theory_model:
            return np.full(k, np.nan)
        total = np.zeros(k) if self.total is None else self.total + here.since(self.place)
        return np.where(self.live.observer.distinct.any(1), total, np.nan)

    def commit(self, here: GrowthPoint) -> None:
        self.total, self.place = self.value(here), here


def _blocks(table: np.ndarray, labels: np.ndarray, size: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    n = table.shape[axis]
    if n <= size:
        return table, labels
    starts = np.unique(np.linspace(0, n, size, endpoint=False).astype(int))
    sums = np.add.reduceat(table, starts, axis=axis)
    widths = np.diff(np.append(starts, n))
    return sums / (widths[:, None] if axis == 0 else widths), labels[starts]
