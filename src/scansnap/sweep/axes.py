"""The outer product of rates and seeds, never written out: any slice of it is made when it is needed.

Runs are numbered with the seed varying slowest, whatever the order in the file, and the last other axis fastest.
Neighbours then share a seed, hence their data, and a slice of the product samples each of its few streams once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scansnap.checks import InputError, check_keys, digits
from scansnap.runs import DECAYS, SHARED, Runs, grid, run_fields, values_of

_RANGE = "a number, a list of numbers, or for whole numbers a range such as '0:10' (10 not included)"


@dataclass(frozen=True)
class Axes:
    """Named values of each axis, slowest first."""

    values: dict[str, np.ndarray]

    @classmethod
    def of(cls, table: dict[str, Any]) -> Axes:
        """From the ``[grid]`` table, checked as :func:`scansnap.grid` checks it."""
        check_keys("[grid]", table, run_fields())
        grid(**{name: 1 if name in ("eta_y", "eta_z", "ratio") else 0 for name in table})  # which fields go together
        values = {name: _values(name, value) for name, value in table.items()}
        seeds = {"seed": values.pop("seed")} if "seed" in values else {}
        if "ratio" in values and not math.isfinite(float(values["ratio"].max()) * float(values["eta_z"].max())):
            raise InputError("ratio · eta_z", math.inf, "a finite number")
        return cls(seeds | values)

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.values.values())

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The run fields a store has along its runs: one weight decay for both tables, unless they have their own."""
        apart = any(name in self.values for name in DECAYS)
        return tuple(name for name in run_fields() if name not in (("weight_decay",) if apart else DECAYS))

    @property
    def decays(self) -> bool:
        """Whether any run has weight decay."""
        return any(np.any(self.values[name]) for name in ("weight_decay", *DECAYS) if name in self.values)

    @property
    def n_seeds(self) -> int:
        return len(self.values.get("seed", [0]))

    def take(self, start: int, stop: int) -> Runs:
        """Runs start … stop − 1."""
        at = np.unravel_index(np.arange(start, stop), [len(v) for v in self.values.values()])
        column = {name: v[i] for (name, v), i in zip(self.values.items(), at, strict=True)}
        return replace(Runs.of(column), given=SHARED)


def _values(name: str, value: Any) -> np.ndarray:
    if isinstance(value, str):
        low, colon, high = value.partition(":")
        first, last = digits(low.strip()), digits(high.strip())
        if not colon or first is None or last is None or first >= last:
            raise InputError(name, value, _RANGE)
        value = np.arange(first, last)
        if name == "seed":
            return value
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, list | dict) for one in value)):
        raise InputError(name, value, _RANGE)
    return np.array(values_of(run_fields()[name], value))
