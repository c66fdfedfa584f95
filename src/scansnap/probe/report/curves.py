"""Curves of every head on one axis of ln t, as whole numbers: a page with hundreds of heads stays small.

A place on the axis and a height are parts in ``FINE`` of a chart, whatever its size on the screen. A value that does
not exist is None, and the curve has a gap there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

FINE = 1000
MOST = 128  # points of a curve
APART = 50  # of FINE, from step 0, which has no logarithm, to the first step that has one

Line = list[int | None]


class Quantity(NamedTuple):
    """What the curves of the heads may show."""

    name: str
    title: str
    meaning: str
    whole: bool = False  # always drawn from 0 to 1


QUANTITIES = (
    Quantity("entropy_rel", "entropy", "Entropy of attention: 1 looks at all tokens alike, 0 at a single one.", True),
    Quantity("distinctness", "distinctness",
             "Mean distinctness (0 common, 1 rare) of the tokens attended to. A head that scans rises."),
    Quantity("speed", "movement", "How fast attention moves: total variation per unit of ln t."),
    Quantity("moved_from_start", "from start", "Total variation since the first measurement."),
    Quantity("top1", "largest", "The largest weight of a query."),
    Quantity("sink", "sink", "Attention to the first token."),
    Quantity("previous", "previous", "Attention to the token before."),
    Quantity("induction", "induction",
             "Attention to the tokens that came after earlier occurrences of the query's token."),
    Quantity("same_token", "same token", "Attention to earlier occurrences of the query's token."),
    Quantity("copy", "copy", "Attention to tokens like the one that comes next."),
    Quantity("idf", "rank with IDF", "Rank correlation of attention with how distinct (IDF) its tokens are."),
)  # fmt: skip


class Axis:
    """Steps by ln t; step 0 stands apart at the left."""

    def __init__(self, steps: np.ndarray) -> None:
        self.steps = np.asarray(steps, dtype=np.float64)
        later = self.steps[self.steps > 0]
        self.left = APART if len(later) < len(self.steps) and len(later) else 0
        self.low, self.high = (math.log(later.min()), math.log(later.max())) if len(later) else (0.0, 0.0)

    def place(self, step: float) -> int:
        """Where a step is; one that is between measurements too."""
        if self.high == self.low:
            return FINE // 2 if not self.left else FINE if step > 0 else 0
        if step <= 0:
            return 0
        part = (math.log(step) - self.low) / (self.high - self.low)
        return round(self.left + (FINE - self.left) * min(max(part, 0.0), 1.0))

    def kept(self) -> np.ndarray:
        """Numbers of at most ``MOST`` measurements, even in ln t, the first and the last among them."""
        n = len(self.steps)
        if n <= MOST:
            return np.arange(n)
        places = np.array([self.place(step) for step in self.steps])
        return np.unique(np.abs(places[None, :] - np.linspace(0, FINE, MOST)[:, None]).argmin(1))

    def ticks(self) -> list[tuple[int, str]]:
        """Powers of ten, and where there are few of them some numbers between; never two labels in one place."""
        if self.high == self.low:
            return [(self.place(step), short(step)) for step in self.steps]
        found = [(0, "0")] if self.left else []
        few = self.high - self.low < math.log(300)
        for power in range(math.floor(self.low / math.log(10)), math.ceil(self.high / math.log(10)) + 1):
            for factor in (1, 2, 5) if few else (1,):
                step = factor * 10.0**power
                if self.low - 1e-9 <= math.log(step) <= self.high + 1e-9 and step >= 1:
                    found.append((self.place(step), short(step)))
        if not found or found[-1][0] < 0.9 * FINE:
            found.append((FINE, short(math.exp(self.high))))
        return found


@dataclass(frozen=True)
class Drawn:
    """One quantity of all heads: heights between ``low`` and ``high``, by layer and head."""

    quantity: Quantity
    low: float
    high: float
    lines: list[list[Line]]
    uniform: list[list[int | None]]  # what uniform attention gives


def drawn(data: xr.Dataset, axis: Axis) -> list[Drawn]:
    """All quantities that the data have, at the steps that are kept."""
    found = []
    for quantity in QUANTITIES:
        values = values_of(data, quantity.name)
        if values is None or not np.isfinite(values).any():
            continue
        uniform = _uniform(data, quantity.name, values.shape[1:])
        low, high = _range(quantity, np.concatenate([values.ravel(), uniform.ravel()]))
        values = values[axis.kept()].transpose(1, 2, 0)  # layer, head, step
        lines = [[heights(line, low, high) for line in layer] for layer in values]
        found.append(Drawn(quantity, low, high, lines, [heights(layer, low, high) for layer in uniform]))
    return found


def values_of(data: xr.Dataset, name: str) -> np.ndarray | None:
    """A quantity by step, layer and head, NaN where it is not finite; None where the data do not have it."""
    source = {"speed": "moved", "idf": "rank_corr"}.get(name, name)
    if source not in data or "layer" not in data[source].dims or "step" not in data[source].dims:
        return None
    array = data[source]
    if name == "idf":
        if "idf" not in array.coords.get("against", np.array([])):
            return None
        array = array.sel(against="idf")
    values = array.transpose("step", "layer", "head", ...).values.astype(np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    if values.ndim > 3:
        values = mean(values.reshape(*values.shape[:3], -1), -1)
    return speed(values, data["step"].values) if name == "speed" else values


def speed(moved: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Way per unit of ln t, over an e-fold around each step: between neighbours it would be mostly noise."""
    found = np.full(moved.shape, np.nan)
    half = math.exp(0.5) * (1 + 1e-9)
    positive = int(np.searchsorted(steps, 0, side="right"))  # from step 0 there is no way in ln t
    for i in range(positive, len(steps)):
        near = np.flatnonzero((steps >= steps[i] / half) & (steps <= steps[i] * half))
        start, end = max(min(near[0], i - 1), positive), max(near[-1], min(i + 1, len(steps) - 1))  # or its neighbours
        if end > start:
            found[i] = moved[start + 1 : end + 1].sum(0) / math.log(steps[end] / steps[start])
    return found


def _uniform(data: xr.Dataset, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """By layer and head: it depends on the batch and the mask, which do not change."""
    if name == "idf":
        return np.zeros(shape)
    values = values_of(data, f"{name}_uniform")
    return np.full(shape, np.nan) if values is None else mean(values, 0)


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Of what is finite; NaN where nothing is."""
    finite = np.isfinite(values)
    n = finite.sum(axis)
    return np.where(n > 0, np.where(finite, values, 0.0).sum(axis) / np.maximum(n, 1), np.nan)


def _range(quantity: Quantity, values: np.ndarray) -> tuple[float, float]:
    """One scale for all heads, so that they can be compared."""
    if quantity.whole:
        return 0.0, 1.0
    values = values[np.isfinite(values)]
    return bounds(float(values.min()), float(values.max()))


def bounds(least: float, most: float, from_zero: bool = True) -> tuple[float, float]:
    """Round numbers around an interval, never the same twice; from 0 where the values are near it."""
    if from_zero and 0 <= least < 0.5 * most:
        least = 0.0
    width = most - least if most > least else abs(most) or 1.0
    unit = 10.0 ** math.floor(math.log10(width)) / 2
    low, high = math.floor(least / unit + 1e-9) * unit, math.ceil(most / unit - 1e-9) * unit
    return low, high if high > low else low + unit


def heights(values: Sequence[float] | np.ndarray, low: float, high: float) -> Line:
    return [round(FINE * (float(v) - low) / (high - low)) if math.isfinite(v) else None for v in values]


def path(places: Sequence[int], line: Sequence[int | None]) -> str:
    """As SVG draws it, y downwards; a point between two gaps is a dot."""
    parts, pen = [], "M"
    for i, (x, y) in enumerate(zip(places, line, strict=True)):
        if y is None:
            pen = "M"
            continue
        alone = pen == "M" and (i + 1 == len(line) or line[i + 1] is None)
        parts.append(f"{pen}{x} {FINE - y}" + ("h0" if alone else ""))
        pen = "L"
    return "".join(parts)


def loss_of(data: xr.Dataset, axis: Axis) -> dict[str, Any] | None:
    """The loss over training; None where nobody told it."""
    if "loss" not in data:
        return None
    values = data["loss"].values.astype(np.float64)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = bounds(float(finite.min()), float(finite.max()), from_zero=False)
    kept = axis.kept()
    places = [axis.place(step) for step in axis.steps[kept]]
    line = path(places, heights(values[kept], low, high))
    return {"path": line, "low": low, "high": high, "first": float(finite[0]), "last": float(finite[-1])}


def short(number: float) -> str:
    """A step as a label: 500, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
