"""What is recorded of a state: attention of the classes themselves, loss, entropy, and the tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from scansnap.classes import SequenceClasses
from scansnap.dynamics import yz
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.state import State, start
from scansnap.measure.entropy import masked_entropy


class Observer:
    """Turns states into the recorded variables, in groups of runs that bound the memory."""

    def __init__(self, classes: SequenceClasses, engine: Engine, batches: Batches) -> None:
        self.engine, self.batches, self.layout = engine, batches, engine.layout
        tokens = np.zeros((classes.n_classes, classes.vocab_size), dtype=bool)
        for n in range(classes.n_classes):
            tokens[n, classes.distinct(n)] = True
        real = np.arange(self.layout.slots.shape[1]) < self.layout.n_slots[:, None]
        self.distinct = np.take_along_axis(tokens, self.layout.slots, 1) & real

    def __call__(self, state: State, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Each of the named variables, with the run dimension first."""
        n_runs = len(state.failed_step)
        groups = np.array_split(np.arange(n_runs), -(-n_runs // self.engine.group))
        parts = [self._observe(_without_moments(state, g), g, names) for g in groups]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _observe(self, state: State, which: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        model, tables = self.engine.settings.model, self.engine.tables
        y, z = state.tables["y"], state.tables["z"]
        out: dict[str, np.ndarray] = {}
        if {"attention", "entropy", "loss"} & set(names):
            expected = self.batches.expected(len(which))
            seen = yz.forward(y, z, expected, tables, model)
            c = seen.attention.cpu().numpy()  # (R, K, S)
            out["attention"] = self._to_tokens(c) if "attention" in names else c
            out["entropy"] = masked_entropy(c, self.distinct)
            right = seen.log_alpha[:, torch.arange(len(tables.target)), tables.target]  # (R, K)
            out["loss"] = -(expected.weight * right).sum(-1).cpu().numpy()
        if "z" in names:
            each = z.cpu().numpy()
            out["z"] = each[:, 0] if each.shape[1] == 1 else each
        if "y" in names:
            out["y"] = self._full_y(state, which)
        if "batch_loss" in names:
            stretch = self.batches.take(state.step, state.step + 1)
            batch = stretch.batch(0, self.engine.stream[torch.as_tensor(which, device=self.engine.device)])
            out["batch_loss"] = yz.gradients(y, z, batch, tables, model).loss.cpu().numpy()
        return out

    def _to_tokens(self, c: np.ndarray) -> np.ndarray:
        full = np.zeros((*c.shape[:2], self.layout.vocab_size), dtype=c.dtype)
        for n, size in enumerate(self.layout.n_slots):
            full[:, n, self.layout.slots[n, :size]] = c[:, n, :size]
        return full

    def _full_y(self, state: State, which: np.ndarray) -> np.ndarray:
        """(R, M, M): rows outside the layout are where they began, since nothing moves them."""
        layout, y = self.layout, state.tables["y"].cpu().numpy()
        if len(layout.rows) < layout.vocab_size:
            seeds = self.engine.runs.seed[which]
            everything = dataclasses.replace(layout, rows=np.arange(layout.vocab_size))
            full = start(everything, self.engine.settings, seeds, torch.device("cpu")).tables["y"].numpy().copy()
        else:
            full = np.empty((len(which), layout.vocab_size, len(layout.columns)), dtype=y.dtype)
        full[:, layout.rows] = y
        return layout.expand_columns(full)


def _without_moments(state: State, which: np.ndarray) -> State:
    """Some of the runs; optimiser buffers are as large as the tables and not looked at here."""
    runs = slice(int(which[0]), int(which[-1]) + 1)  # they are consecutive: nothing is copied
    return State(state.step, {name: t[runs] for name, t in state.tables.items()}, {}, state.failed_step[runs])
