"""Curves of every head over ln t, as small integers, so that a page with hundreds of heads stays small.

Positions and heights are in units of 1/``FINE`` of a chart. A missing value is None, a gap in the curve.
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
APART = 50  # of FINE, between step 0 and the first positive step

Line = list[int | None]


class Quantity(NamedTuple):
    """A quantity that the curves can show."""

    name: str
    title: str
    meaning: str
    unit_range: bool = False  # always drawn from 0 to 1


QUANTITIES = (
    Quantity("entropy_rel", "entropy", "Entropy of attention: 1 if uniform, 0 if on a single token.", True),
    Quantity("distinctness", "distinctness",
             "Mean distinctness (0 common, 1 rare) of the tokens attended to. It rises if the head scans."),
    Quantity("speed", "movement", "How fast attention moves: total variation per unit of ln t."),
    Quantity("moved_from_start", "moved from start", "Total variation since the first measurement."),
    Quantity("max_logit", "largest logit", "The largest attention logit of the batch. It should not keep growing."),
    Quantity("logit_std", "logit spread", "Standard deviation of a query's logits over the tokens it can see."),
    Quantity("output_share", "output share", "What the head adds to the residual stream, relative to the stream."),
    Quantity("q_norm", "query norm", "Euclidean norm of the queries."),
    Quantity("k_norm", "key norm", "Euclidean norm of the keys."),
    Quantity("top1", "largest weight", "The largest weight of a query."),
    Quantity("sink", "sink", "Attention to the first token."),
    Quantity("previous", "previous", "Attention to the token before."),
    Quantity("induction", "induction",
             "Attention to the tokens that came after earlier occurrences of the query's token."),
    Quantity("same_token", "same token", "Attention to earlier occurrences of the query's token."),
    Quantity("copy", "copy", "Attention to tokens like the one that comes next."),
    Quantity("idf", "rank with IDF", "Rank correlation of attention with how distinct (IDF) its tokens are."),
)  # fmt: skip


class LogStepAxis:
    """An axis of ln t, with step 0 apart at the left."""

    def __init__(self, steps: np.ndarray) -> None:
        self.steps = np.asarray(steps, dtype=np.float64)
        later = self.steps[self.steps > 0]
        self.left = APART if len(later) < len(self.steps) and len(later) else 0
        self.low, self.high = (math.log(later.min()), math.log(later.max())) if len(later) else (0.0, 0.0)

    def place(self, step: float) -> int:
        """The position of any step."""
        if self.high == self.low:
            return FINE // 2 if not self.left else FINE if step > 0 else 0
        if step <= 0:
            return 0
        part = (math.log(step) - self.low) / (self.high - self.low)
        return round(self.left + (FINE - self.left) * min(max(part, 0.0), 1.0))

    def shown(self) -> np.ndarray:
        """Indices of at most ``MOST`` measurements, evenly spread in ln t, with the first and the last."""
        n = len(self.steps)
        if n <= MOST:
            return np.arange(n)
        places = np.array([self.place(step) for step in self.steps])
        return np.unique(np.abs(places[None, :] - np.linspace(0, FINE, MOST)[:, None]).argmin(1))

    def ticks(self) -> list[tuple[int, str]]:
        """Positions and labels at powers of ten, and between them on a short axis."""
        if self.high == self.low:
            return [(self.place(step), short(step)) for step in self.steps]
        ticks = [(0, "0")] if self.left else []
        few = self.high - self.low < math.log(300)
        for power in range(math.floor(self.low / math.log(10)), math.ceil(self.high / math.log(10)) + 1):
            for factor in (1, 2, 5) if few else (1,):
                step = factor * 10.0**power
                if self.low - 1e-9 <= math.log(step) <= self.high + 1e-9 and step >= 1:
                    ticks.append((self.place(step), short(step)))
        if not ticks or ticks[-1][0] < 0.9 * FINE:
            ticks.append((FINE, short(math.exp(self.high))))
        return ticks


@dataclass(frozen=True)
class QuantityCurves:
    """The curves of one quantity: heights between ``low`` and ``high``, by layer and head."""

    quantity: Quantity
    low: float
    high: float
    lines: list[list[Line]]
    uniform: list[list[int | None]]  # of uniform attention


def compute_curves(data: xr.Dataset, axis: LogStepAxis) -> list[QuantityCurves]:
    """The curves of all quantities in the data."""
    curves = []
    for quantity in QUANTITIES:
        values = values_of(data, quantity.name)
        if values is None or not np.isfinite(values).any():
            continue
        uniform = _uniform(data, quantity.name, values.shape[1:])
        low, high = _range(quantity, np.concatenate([values.ravel(), uniform.ravel()]))
        values = values[axis.shown()].transpose(1, 2, 0)  # layer, head, step
        lines = [[heights(line, low, high) for line in layer] for layer in values]
        curves.append(QuantityCurves(quantity, low, high, lines, [heights(layer, low, high) for layer in uniform]))
    return curves


def values_of(data: xr.Dataset, name: str) -> np.ndarray | None:
    """A quantity by step, layer and head, NaN if not finite; None if the data do not have it."""
    source = {"speed": "moved", "idf": "rank_corr"}.get(name, name)
    if source not in data or not {"layer", "step"} <= set(data[source].dims) or not data[source].size:
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
    """Distance per unit of ln t over an e-fold around each step; between neighbours it is mostly noise."""
    result = np.full(moved.shape, np.nan)
    half = math.exp(0.5) * (1 + 1e-9)
    positive = int(np.searchsorted(steps, 0, side="right"))  # ln 0 does not exist
    for i in range(positive, len(steps)):
        near = np.flatnonzero((steps >= steps[i] / half) & (steps <= steps[i] * half))
        start, end = max(min(near[0], i - 1), positive), max(near[-1], min(i + 1, len(steps) - 1))  # or neighbours
        if end > start:
            result[i] = moved[start + 1 : end + 1].sum(0) / math.log(steps[end] / steps[start])
    return result


def _uniform(data: xr.Dataset, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """By layer and head; the same at all steps."""
    if name == "idf":
        return np.zeros(shape)
    values = values_of(data, f"{name}_uniform")
    return np.full(shape, np.nan) if values is None else mean(values, 0)


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of finite values; NaN without any."""
    finite = np.isfinite(values)
    n = finite.sum(axis)
    return np.where(n > 0, np.where(finite, values, 0.0).sum(axis) / np.maximum(n, 1), np.nan)


def _range(quantity: Quantity, values: np.ndarray) -> tuple[float, float]:
    """One scale for all heads."""
    if quantity.unit_range:
        return 0.0, 1.0
    values = values[np.isfinite(values)]
    return bounds(float(values.min()), float(values.max()))


def bounds(least: float, most: float, from_zero: bool = True) -> tuple[float, float]:
    """Round numbers around an interval, different from each other; from 0 if the values are near it."""
    if from_zero and 0 <= least < 0.5 * most:
        least = 0.0
    width = most - least if most > least else abs(most) or 1.0
    unit = 10.0 ** math.floor(math.log10(width)) / 2
    low, high = math.floor(least / unit + 1e-9) * unit, math.ceil(most / unit - 1e-9) * unit
    return low, high if high > low else low + unit


def heights(values: Sequence[float] | np.ndarray, low: float, high: float) -> Line:
    return [round(FINE * (float(v) - low) / (high - low)) if math.isfinite(v) else None for v in values]


def path(places: Sequence[int], line: Sequence[int | None]) -> str:
    """SVG path data, y downwards; a point between two gaps is a dot."""
    parts, pen = [], "M"
    for i, (x, y) in enumerate(zip(places, line, strict=True)):
        if y is None:
            pen = "M"
            continue
        alone = pen == "M" and (i + 1 == len(line) or line[i + 1] is None)
        parts.append(f"{pen}{x} {FINE - y}" + ("h0" if alone else ""))
        pen = "L"
    return "".join(parts)


def loss_values(data: xr.Dataset) -> np.ndarray | None:
    """The training loss, or else the loss on the batch, by measurement; None without one."""
    losses = [data[name].values.astype(np.float64) for name in ("train_loss", "batch_loss") if name in data]
    return next((values for values in losses if np.isfinite(values).any()), None)


def loss_of(data: xr.Dataset, axis: LogStepAxis) -> dict[str, Any] | None:
    """The curve of the training loss, or else of the loss on the batch; None without one."""
    values = loss_values(data)
    if values is None:
        return None
    finite = values[np.isfinite(values)]
    low, high = bounds(float(finite.min()), float(finite.max()), from_zero=False)
    shown = axis.shown()
    places = [axis.place(step) for step in axis.steps[shown]]
    line = path(places, heights(values[shown], low, high))
    return {"path": line, "low": low, "high": high, "first": float(finite[0]), "last": float(values[-1])}


def short(number: float) -> str:
    """A step as a label: 500, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
