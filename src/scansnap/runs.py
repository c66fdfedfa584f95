"""Which runs to make: rates and seeds, one entry per run.

``grid(eta_z=[0.5, 1], ratio=[1, 2], seed=range(10))`` is the outer product of its arguments, the last one
varying fastest. The seed decides data and initial values, nothing else does: runs that differ only in their
rates see the same sequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from scansnap.checks import InputError, real, whole

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Runs:
    """Rates, seed and optimiser constants of each run, as arrays of equal length."""

    eta_y: np.ndarray
    eta_z: np.ndarray
    seed: np.ndarray
    momentum: np.ndarray
    weight_decay: np.ndarray
    given: tuple[str, ...] = ()  # which of the last two the grid names; ``simulate`` may set the others

    def __len__(self) -> int:
        return len(self.seed)

    @property
    def ratio(self) -> np.ndarray:
        """η_Y / η_Z; infinite where attention is not trained (η_Z = 0)."""
        with np.errstate(over="ignore"):
            return np.divide(self.eta_y, self.eta_z, out=np.full(len(self), np.inf), where=self.eta_z > 0)

    def filled(self, momentum: float | None, weight_decay: float | None) -> Runs:
        """These runs with momentum and weight decay set where the grid leaves them open."""
        runs = self
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value is not None:
                if name in self.given:
                    raise InputError(name, value, "left out here, since the runs give their own")
                changed: dict[str, Any] = {name: np.full(len(self), _value(name, value))}
                runs = replace(runs, **changed)
        return replace(runs, given=("momentum", "weight_decay"))


FIELDS = ("eta_y", "eta_z", "ratio", "seed", "momentum", "weight_decay")


def grid(**axes: Any) -> Runs:
    """The outer product of named values: ``eta_y`` or ``ratio`` (η_Y = ratio·η_Z), ``eta_z``, ``seed``, …

    Each value is a number or a sequence of numbers. What is left out is 0.
    """
    for name in axes:
        if name not in FIELDS:
            raise InputError(f"the run field {name!r}", axes[name], "left out or one of " + ", ".join(FIELDS))
    if "eta_z" not in axes:
        raise InputError("eta_z", None, "given (a number or a list of numbers)")
    if ("eta_y" in axes) == ("ratio" in axes):
        both = "both" if "eta_y" in axes else "neither"
        raise InputError("eta_y and ratio", f"{both} given", "exactly one of the two (eta_y = ratio · eta_z)")
    values = {name: _values(name, value) for name, value in axes.items()}
    points = list(product(*values.values()))
    column = {name: np.array([point[i] for point in points]) for i, name in enumerate(values)}
    n = len(points)
    eta_z = column["eta_z"]
    with np.errstate(over="ignore"):  # refused next, in words
        eta_y = column["eta_y"] if "eta_y" in column else column["ratio"] * eta_z
    if not np.isfinite(eta_y).all():
        raise InputError("ratio · eta_z", np.inf, "a finite number")
    return Runs(
        eta_y=eta_y,
        eta_z=eta_z,
        seed=column.get("seed", np.zeros(n, dtype=np.int64)),
        momentum=column.get("momentum", np.zeros(n)),
        weight_decay=column.get("weight_decay", np.zeros(n)),
        given=tuple(name for name in ("momentum", "weight_decay") if name in column),
    )


def _values(name: str, value: Any) -> list[Any]:
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy or xarray
        value = value.item()
    if isinstance(value, str) or not isinstance(value, Iterable):
        value = [value]
    values = [_value(name, one) for one in value]
    if not values:
        raise InputError(name, "empty", "at least one number")
    return values


def _value(name: str, value: Any) -> Any:
    if name == "seed":
        return whole("seed", value, most=MAX_SEED)
    if name == "momentum":
        return real("momentum", value, least=0, below=1)
    if name == "ratio":
        return real("ratio", value, above=0)
    return real(name, value, least=0)
