"""One measurement as a flat dict of numbers: what ``on_measure``, the loggers and alerts get.

    probe/step
    probe/batch_loss, probe/train_loss
    probe/nonfinite/attention, …/output, …/batch_loss, …/train_loss     1 if NaN or infinite, else 0
    attention/max_logit                                                 of the whole model
    attention/layer0/max_logit                                          of a layer
    attention/layer0/head1/max_logit                                    of a head

A layer's number is its mean over heads, the model's that over all heads; of ``max_logit`` the largest, of
``n_nonfinite`` the sum. What was not measured has no key. A head with NaN or infinite attention keeps its keys, with
the value NaN, so that no chart ends with the last finite number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from scansnap.probe.schema import PARTS
from scansnap.probe.store.measurements import Measurements, Row

STEP = "probe/step"
LOSSES = ("batch_loss", "train_loss")
QUANTITIES: dict[str, Callable[[np.ndarray], Any]] = {  # with what a layer and the model show of their heads
    "entropy": np.mean,
    "entropy_rel": np.mean,
    "max_logit": np.max,
    "logit_std": np.mean,
    "q_norm": np.mean,
    "k_norm": np.mean,
    "output_norm": np.mean,
    "output_share": np.mean,
    "n_nonfinite": np.sum,
    "sink": np.mean,
    "previous": np.mean,
    "induction": np.mean,
    "scan_index": np.mean,
    "moved": np.mean,
}


class History(Sequence[Mapping[str, float]]):
    """The measurements so far as flat dicts; ``history[-1]`` is the present one.

    ``heads(name)`` is a variable of the record as an array (measurement, layer, head).
    """

    def __init__(self, measurements: Measurements, n: int | None = None) -> None:
        self._measurements = measurements
        self._n = len(measurements.steps) if n is None else n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Mapping[str, float]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, float]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, float] | Sequence[Mapping[str, float]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._n))]
        i = range(self._n)[index]
        return scalars(self._measurements.steps[i], self._measurements.rows[i], self._measurements.rows[0])

    def until(self, n: int) -> History:
        """The first n measurements."""
        return History(self._measurements, n)

    @property
    def steps(self) -> list[int]:
        return self._measurements.steps[: self._n]

    def nonfinite(self) -> set[str]:
        """The parts that are NaN or infinite in the present measurement."""
        marks = self._measurements.rows[self._n - 1]["nonfinite"] if self._n else ()
        return {part for part, mark in zip(PARTS, marks, strict=False) if mark == 1}

    def heads(self, name: str) -> np.ndarray:
        """A variable by measurement, layer and head; NaN where it is not known."""
        rows = self._measurements.rows[: self._n]
        return np.stack([_by_head(name, row, rows[0]) for row in rows])


def scalars(step: int, row: Row, first: Row) -> dict[str, float]:
    """The flat dict of one measurement; ``first`` is that from which the scan index counts."""
    values: dict[str, float] = {STEP: step}
    nonfinite = dict(zip(PARTS, row["nonfinite"].tolist(), strict=True))
    for name in LOSSES:
        if not np.isnan(nonfinite[name]):
            values[f"probe/{name}"] = float(row[name])
    values |= {f"probe/nonfinite/{part}": value for part, value in nonfinite.items() if value == value}
    damaged = row["n_nonfinite"] > 0
    for name, over in QUANTITIES.items():
        numbers = _by_head(name, row, first)
        known = ~np.isnan(numbers) | (damaged & (row["n_queries"] == row["n_queries"]))
        if known.any():
            values |= _of_quantity(name, numbers, known, over)
    return values


def _of_quantity(
    name: str, numbers: np.ndarray, known: np.ndarray, over: Callable[[np.ndarray], Any]
) -> Iterator[tuple[str, float]]:
    yield f"attention/{name}", float(over(numbers[known]))
    for i, heads in enumerate(known):
        if heads.any():
            yield f"attention/layer{i}/{name}", float(over(numbers[i, heads]))
        for j in np.flatnonzero(heads).tolist():
            yield f"attention/layer{i}/head{j}/{name}", float(numbers[i, j])


def _by_head(name: str, row: Row, first: Row) -> np.ndarray:
    """(layer, head); NaN where it was not measured."""
    if name == "scan_index":
        change = row["distinctness"] - first["distinctness"]  # (sequence, layer, head)
        known = np.isfinite(change)
        return np.where(known.any(0), np.where(known, change, 0).sum(0) / np.maximum(known.sum(0), 1), np.nan)
    return row[name] if name in row else np.full_like(row["entropy"], np.nan)
