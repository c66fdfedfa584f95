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
    weight_decay_y: np.ndarray
    weight_decay_z: np.ndarray
    given: tuple[str, ...] = ()  # which of the last three the grid names; ``simulate`` may set the others

    def __len__(self) -> int:
        return len(self.seed)

    @property
    def ratio(self) -> np.ndarray:
        """η_Y / η_Z; infinite where attention is not trained (η_Z = 0)."""
        with np.errstate(over="ignore"):
            return np.divide(self.eta_y, self.eta_z, out=np.full(len(self), np.inf), where=self.eta_z > 0)

    @property
    def weight_decay(self) -> np.ndarray:
        """Of both tables, where it is the same."""
        return self.weight_decay_y

    @property
    def decays(self) -> bool:
        """Whether there is any weight decay."""
        return bool(self.weight_decay_y.any() or self.weight_decay_z.any())

    def columns(self) -> dict[str, np.ndarray]:
        """What a result says of its runs; the two weight decays as one where they are the same."""
        same = np.array_equal(self.weight_decay_y, self.weight_decay_z)
        decays = {"weight_decay": self.weight_decay_y} if same else {name: getattr(self, name) for name in _DECAYS}
        return {name: getattr(self, name) for name in ("eta_y", "eta_z", "ratio", "seed", "momentum")} | decays

    def filled(self, **open_: float | None) -> Runs:
        """These runs with momentum and weight decay set where the grid leaves them open."""
        changed: dict[str, Any] = {}
        for name, value in open_.items():
            if value is not None:
                for field in _stands_for(name):
                    if field in self.given:
                        raise InputError(name, value, "left out here, since the runs give their own")
                    if field in changed:
                        raise InputError(name, value, "left out where weight_decay is given")
                    changed[field] = np.full(len(self), _value(name, value))
        return replace(self, **changed, given=("momentum", *_DECAYS))


_DECAYS = ("weight_decay_y", "weight_decay_z")
FIELDS = ("eta_y", "eta_z", "ratio", "seed", "momentum", "weight_decay", *_DECAYS)


def _stands_for(name: str) -> tuple[str, ...]:
    return _DECAYS if name == "weight_decay" else (name,)


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
    for name in _DECAYS:
        if name in axes and "weight_decay" in axes:
            raise InputError(name, axes[name], "left out where weight_decay is given")
    values = {name: _values(name, value) for name, value in axes.items()}
    points = list(product(*values.values()))
    column = {name: np.array([point[i] for point in points]) for i, name in enumerate(values)}
    n = len(points)
    eta_z = column["eta_z"]
    with np.errstate(over="ignore"):  # refused next, in words
        eta_y = column["eta_y"] if "eta_y" in column else column["ratio"] * eta_z
    if not np.isfinite(eta_y).all():
        raise InputError("ratio · eta_z", np.inf, "a finite number")
    decay = column.get("weight_decay", np.zeros(n))
    return Runs(
        eta_y=eta_y,
        eta_z=eta_z,
        seed=column.get("seed", np.zeros(n, dtype=np.int64)),
        momentum=column.get("momentum", np.zeros(n)),
        weight_decay_y=column.get("weight_decay_y", decay),
        weight_decay_z=column.get("weight_decay_z", decay),
        given=tuple(field for name in column for field in _stands_for(name) if field in ("momentum", *_DECAYS)),
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
