"""Learning rates and seeds of runs, one entry per run.

``grid(eta_z=[0.5, 1], ratio=[1, 2], seed=range(10))`` is the outer product of its arguments; the last argument varies
fastest. Only the seed determines data and initial values: runs with different rates see the same sequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypedDict, Unpack

import numpy as np

from scansnap.checks import InputError
from scansnap.settings import Page, SettingSpec, setting, settings_of

Numbers = float | Iterable[float]
MAX_SEED = 2**63 - 1
_RATE: dict[str, Any] = {"low": 0.01, "high": 100.0, "log": True, "live": True, "most": 1e4}


@dataclass(frozen=True)
class Runs:
    """Rates, seed and optimiser constants of each run, as arrays of shape (R,). `grid` makes them.

    Rates are in 1/step.

    Parameters
    ----------
    fields_set
        The names among momentum and weight decays that `grid` sets; `simulate` may set the others.

    Examples
    --------
    >>> runs = grid(eta_z=0.5, eta_y=[1, 2])
    >>> len(runs), runs.ratio.tolist()
    (2, [2.0, 4.0])
    """

    eta_y: np.ndarray = setting(
        1.0, "Learning rate η_Y of the decoder table Y.", per_run=float, least=0,
        page=Page("Decoder rate", "η_Y", **_RATE))  # fmt: skip
    eta_z: np.ndarray = setting(
        1.0, "Learning rate η_Z of the attention logits Z; 0 freezes attention.", per_run=float, least=0,
        page=Page("Attention rate", "η_Z", **_RATE))  # fmt: skip
    seed: np.ndarray = setting(
        0, "Random seed of the sampled sequences and the initial values.", per_run=int, most=MAX_SEED,
        page=Page("Seed", most=2**53 - 1))  # fmt: skip
    momentum: np.ndarray = setting(
        0.0, "Momentum μ; both learning rates act 1/(1 − μ) times as fast.", per_run=float,
        least=0, below=1, page=Page("Momentum", "μ", 0.0, 0.99, default=0.9, most=0.999))  # fmt: skip
    weight_decay_y: np.ndarray = setting(0.0, "Weight decay of Y only.", per_run=float, least=0, page=None)
    weight_decay_z: np.ndarray = setting(0.0, "Weight decay of Z only.", per_run=float, least=0, page=None)
    fields_set: tuple[str, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.seed)

    @property
    def ratio(self) -> np.ndarray:
        """η_Y / η_Z; infinite where attention is not trained (η_Z = 0)."""
        with np.errstate(over="ignore"):
            return np.divide(self.eta_y, self.eta_z, out=np.full(len(self), np.inf), where=self.eta_z > 0)

    @property
    def weight_decay(self) -> np.ndarray:
        """Weight decay of Y, which is also that of Z unless they were set separately."""
        return self.weight_decay_y

    @property
    def decays(self) -> bool:
        """Whether there is any weight decay."""
        return bool(self.weight_decay_y.any() or self.weight_decay_z.any())

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of a result; equal weight decays of Y and Z become one column."""
        same = np.array_equal(self.weight_decay_y, self.weight_decay_z)
        decays = {"weight_decay": self.weight_decay_y} if same else {name: getattr(self, name) for name in DECAYS}
        return {name: getattr(self, name) for name in ("eta_y", "eta_z", "ratio", "seed", "momentum")} | decays

    def filled(self, **open_: float | None) -> Runs:
        """Return these runs with the momentum and weight decay that the grid does not set."""
        changed: dict[str, Any] = {}
        for name, value in open_.items():
            if value is not None:
                for own in _stands_for(name):
                    if own in self.fields_set:
                        raise InputError.conflict(name, "given by the runs, too; leave one of the two out", value)
                    if own in changed:
                        raise InputError.conflict(name, "given beside weight_decay; leave one of the two out", value)
                    changed[own] = np.full(len(self), run_fields()[name].check(value))
        return replace(self, **changed, fields_set=("momentum", *DECAYS))

    @classmethod
    def of(cls, column: dict[str, np.ndarray]) -> Runs:
        """Return runs from columns; missing fields have their defaults."""
        column = {own: values for name, values in column.items() for own in _stands_for(name)}
        eta_y = column["eta_y"] if "eta_y" in column else column.pop("ratio") * column["eta_z"]
        rest = {name: column.get(name, np.full(len(eta_y), spec.default)) for name, spec in settings_of(cls).items()}
        fields_set = tuple(name for name in column if name in SHARED)
        return cls(**(rest | {"eta_y": eta_y}), fields_set=fields_set)


DECAYS = ("weight_decay_y", "weight_decay_z")
SHARED = ("momentum", "weight_decay", *DECAYS)  # one value for all runs may be given beside them
_INSTEAD = {
    "ratio": SettingSpec("η_Y / η_Z, instead of eta_y.", per_run=float, above=0, page=None, name="ratio", kind="float"),
    "weight_decay": SettingSpec(
        "Weight decay of Y and Z.", per_run=float, least=0, name="weight_decay", kind="float",
        default=0.0, page=Page("Weight decay", "λ", 0.0, 0.1, most=10.0)),
}  # fmt: skip


def run_fields() -> dict[str, SettingSpec]:
    """All that may differ between the runs of one simulation; some stand for others."""
    own = settings_of(Runs) | _INSTEAD
    return {name: own[name] for name in ("eta_y", "eta_z", "ratio", "seed", "momentum", "weight_decay")} | own


def _stands_for(name: str) -> tuple[str, ...]:
    return DECAYS if name == "weight_decay" else (name,)


class RunOptions(TypedDict, total=False):
    """The arguments of `scansnap.grid`, for editors and type checkers; a test compares them with the fields."""

    eta_y: Numbers
    eta_z: Numbers
    ratio: Numbers
    seed: Numbers
    momentum: Numbers
    weight_decay: Numbers
    weight_decay_y: Numbers
    weight_decay_z: Numbers


def grid(**axes: Unpack[RunOptions]) -> Runs:
    """The outer product of named values.

    Parameters
    ----------
    **axes
        Values by name, each a number or a sequence of numbers: ``eta_z`` and one of ``eta_y`` and ``ratio`` = η_Y/η_Z,
        in 1/step; ``seed``, ``momentum``, ``weight_decay``, ``weight_decay_y``, ``weight_decay_z`` (default 0).

    Returns
    -------
    Runs
        One entry per combination, the last argument varying fastest.

    Examples
    --------
    >>> runs = grid(eta_z=[0.5, 1], ratio=2, seed=range(3))
    >>> len(runs), runs.eta_y.tolist()
    (6, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    """
    return _outer_product(dict(axes))


def _outer_product(axes: dict[str, Any]) -> Runs:
    allowed = run_fields()
    for name in axes:
        if name not in allowed:
            raise InputError.conflict(
                f"the run field {name!r}", f"unknown; expected one of {', '.join(allowed)}", axes[name]
            )
    if "eta_z" not in axes:
        raise InputError("eta_z", None, "a number or a list of numbers")
    if ("eta_y" in axes) == ("ratio" in axes):
        both = "both" if "eta_y" in axes else "neither"
        raise InputError("eta_y and ratio", f"{both} given", "exactly one of the two", "eta_y = ratio · eta_z")
    for name in DECAYS:
        if name in axes and "weight_decay" in axes:
            raise InputError.conflict(name, "given beside weight_decay; leave one of the two out", axes[name])
    values = {name: values_of(allowed[name], value) for name, value in axes.items()}
    points = list(product(*values.values()))
    column = {name: np.array([point[i] for point in points]) for i, name in enumerate(values)}
    with np.errstate(over="ignore"):  # refused next, in words
        runs = Runs.of(column)
    if not np.isfinite(runs.eta_y).all():
        raise InputError("ratio · eta_z", np.inf, "a finite float")
    return runs


def values_of(declared: SettingSpec, value: Any) -> list[Any]:
    """The values of one axis, given as a number or several, checked."""
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy or xarray
        value = value.item()
    if isinstance(value, str) or not isinstance(value, Iterable):
        value = [value]
    values = [declared.check(number) for number in value]
    if not values:
        raise InputError(declared.name, "empty", "at least one number")
    return values
