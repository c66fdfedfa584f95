"""The film of a run as the page shows it, computed by the package: for tests of what the page says about its runs."""

import dataclasses
import math
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.engines.trainers import YZMeasurement
from scansnap.dynamics.state import start
from scansnap.explorer.setup import read_setup
from scansnap.measure.growth import GrowthPoint

CPU = torch.device("cpu")


class Film:
    """Frames at every step to 50, then every 2%, and at ``extra`` steps; ``marks`` change the rates on the way."""

    def __init__(self, setup, marks=(), extra=()):
        reading = self.reading = read_setup(setup)
        self.classes, self.settings = reading.classes, reading.settings
        self.layout = make_layout(self.classes, self.settings.model, decays=reading.runs.decays)
        self.marks = [{**mark} for mark in marks]
        steps = {*schedule(self.settings.steps), *extra, *(mark["step"] for mark in marks)}
        self.steps = np.array(sorted(steps))
        self._run(reading.runs)

    def _run(self, runs):
        batches = Batches(self.layout, self.settings, np.unique(runs.seed), CPU)
        state = start(self.layout, self.settings, runs.seed, CPU)
        later = {mark["step"]: mark for mark in self.marks}
        frames = []
        for step in self.steps.tolist():
            while state.step < step:
                stop = min(step, state.step + 500)
                with torch.inference_mode():
                    state = self._engine(runs).advance(state, batches.take(state.step, stop))
            frames.append(self._frame(self._engine(runs), batches, state))
            if step in later:
                rates = {name: later[step][name] for name in ("eta_y", "eta_z") if later[step][name] is not None}
                runs = dataclasses.replace(runs, **{name: np.array([rate]) for name, rate in rates.items()})
        self.eta = float(runs.eta_y[0]), float(runs.eta_z[0])
        names = frames[0].keys()
        self.rows: dict[str, np.ndarray] = {name: np.array([frame[name] for frame in frames]) for name in names}

    def _engine(self, runs):
        return Engine(self.layout, self.settings, runs, CPU)

    def _frame(self, engine, batches, state):
        with torch.inference_mode():
            values = YZMeasurement(self.classes, engine, batches)(state, ("attention", "entropy", "loss", "z"))
        found = {name: np.array(values[name][0]) for name in ("attention", "entropy", "loss", "z")}
        return {**found, "z": found["z"].mean(0) if found["z"].ndim == 3 else found["z"]}  # over heads

    @cached_property
    def growth(self):
        """B_n along the frames, (n, K)."""
        query = [list(self.classes.queries).index(m) for m in self.classes.query]
        total = [np.zeros(self.classes.n_classes)]
        points = []
        for z, c in zip(self.rows["z"], self.rows["attention"], strict=True):
            f = c / np.linalg.norm(c, axis=1, keepdims=True)
            own = [self.classes.distinct(n) for n in range(self.classes.n_classes)]
            points.append(GrowthPoint.of((z[query[n], tokens], f[n, tokens]) for n, tokens in enumerate(own)))
        for before, here in pairwise(points):
            total.append(total[-1] + here.since(before))
        return np.array(total)

    def frame_values(self, name):
        """A quantity as the frames of the page have it, (n, size)."""
        layout, model, k = self.layout, self.settings.model, self.classes.n_classes
        if name in ("loss", "entropy"):
            return self.rows[name].reshape(len(self.steps), -1)
        if name == "growth":
            is_papers = model.norm == "l2" and model.residual == "none" and model.heads == 1
            return self.growth if is_papers else np.full((len(self.steps), k), np.nan)
        if name == "attention":
            parts = [self.rows[name][:, n, layout.slots[n, : layout.n_slots[n]]] for n in range(k)]
            return np.concatenate(parts, axis=1)
        z = self.rows["z"]
        if name == "z":
            own = [[layout.slots[n, : layout.n_slots[n]] for n in np.flatnonzero(layout.class_query == q)]
                   for q in range(len(layout.queries))]  # fmt: skip
            return np.concatenate([z[:, q, np.unique(np.concatenate(rows))] for q, rows in enumerate(own)], axis=1)
        top = []
        for n in range(k):
            tokens = self.classes.distinct(n)
            top.append(int(tokens[np.argmax(self.rows["attention"][0, n, tokens])]))
        return 2 * np.stack([z[:, q, t] - z[0, q, t] for q, t in zip(layout.class_query, top, strict=True)], axis=1)

    def at(self, name, step):
        """A quantity at a step; between two frames, in between, as on the screen."""
        rows = self.growth if name == "growth" else self.rows[name]
        i = int(np.searchsorted(self.steps, step, side="right")) - 1
        if i + 1 == len(self.steps):
            return np.asarray(rows[i])
        share = (step - self.steps[i]) / (self.steps[i + 1] - self.steps[i])
        return np.asarray(rows[i] + share * (rows[i + 1] - rows[i]))

    def attention(self, step, n):
        """Of class n, by the tokens of its context."""
        tokens = self.classes.support(n)[0]
        return dict(zip(tokens.tolist(), self.at("attention", step)[n, tokens].tolist(), strict=True))

    def z(self, step, q=0):
        """Of a query, by the tokens of its classes' contexts."""
        query = self.classes.queries[q]
        own = [self.classes.support(n)[0] for n in range(self.classes.n_classes) if self.classes.query[n] == query]
        tokens = np.unique(np.concatenate(own))
        return dict(zip(tokens.tolist(), self.at("z", step)[q, tokens].tolist(), strict=True))

    def common(self, step):
        """The share of attention on common tokens, mean over classes."""
        return float(self.at("attention", step)[:, self.classes.common].sum(1).mean())

    def entropy(self, step):
        return float(self.at("entropy", step).mean())

    def distinct(self, step, n):
        """Attention of class n on its distinct tokens."""
        return np.asarray(self.at("attention", step)[n, self.classes.distinct(n)])


def hold(text, facts):
    """Each fact is true, or a string that the text has; a text without a fact is not tested."""
    facts = list(facts)
    wrong = {i: fact for i, fact in enumerate(facts) if not (fact in text if isinstance(fact, str) else bool(fact))}
    assert facts, text
    assert wrong == {}, text


def schedule(steps):
    """Every step to 50, then every 2%, and the last."""
    out, at = list(range(min(50, steps) + 1)), 50
    while at < steps:
        at = max(at + 1, math.ceil(at * 51 / 50))
        out.append(min(at, steps))
    return out
