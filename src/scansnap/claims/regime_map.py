"""Regime maps: the margin of a theorem over a grid of settings, with an exact flow for each point.

The settings are those of the paper's analysis: K classes that share a query, one common token, a few distinct tokens
each, and a vocabulary padded to M. The ``overlap`` f_nᵀ f_n' at the start determines the common token's weight. Points
whose classes need more tokens than M are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_choice, check_float, check_integer
from scansnap.claims.assumptions import met_level
from scansnap.claims.evidence import from_flow
from scansnap.claims.registry import BUILT_IN
from scansnap.classes import SequenceClasses
from scansnap.interrupt import block_signals_in_children
from scansnap.processes import killable_pool, single_threaded_children
from scansnap.progress import Progress
from scansnap.settings import parse_number
from scansnap.theory import t_snap

MAPPED = ("theorem-1", "theorem-2", "theorem-3", "theorem-4", "lemma-3", "lemma-4")
T_END = 10.0  # in units of t₀: past the transition the theorems speak about


_LEAST = {"n_classes": 2, "vocab_size": 1, "distinct": 1}  # an overlap needs two classes
_WHOLE = tuple(_LEAST)


@dataclass(frozen=True)
class MapPoint:
    """One point of a map; the default meets every assumption."""

    ratio: float = 50.0  # η_Y/η_Z
    overlap: float = 0.3
    n_classes: int = 2
    vocab_size: int = 2000
    eta_y: float = 0.9
    distinct: int = 5

    def __post_init__(self) -> None:
        for name in ("ratio", "eta_y"):
            check_float(name, getattr(self, name), above=0)
        check_float("overlap", self.overlap, above=0, below=1)
        for name in _WHOLE:
            check_integer(name, getattr(self, name), least=_LEAST[name])

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the classes: one common, the distinct, one query and the next tokens."""
        return 1 + self.distinct * self.n_classes + 1 + self.n_classes

    def classes(self) -> SequenceClasses:
        """The sequence classes of this point."""
        if self.vocab_size < self.n_tokens:
            classes = f"{self.n_classes} classes with {self.distinct} distinct tokens each"
            raise InputError("vocab_size", self.vocab_size, f"an integer ≥ {self.n_tokens} for {classes}")
        weights = np.linspace(0.1, 1.0, self.distinct)
        common = np.sqrt(self.overlap / (1 - self.overlap) * np.sum(weights**2))
        return SequenceClasses.synthetic(
            n_queries=1, next_per_query=self.n_classes, common=1, distinct=self.distinct,
            common_weight=float(common), unused=self.vocab_size - self.n_tokens,
        )  # fmt: skip


@dataclass(frozen=True)
class MapAxis:
    """One axis of a map: a field of MapPoint and its values."""

    name: str
    values: tuple[float, ...]
    log: bool

    @classmethod
    def parse(cls, text: str, n: int = 30) -> MapAxis:
        """From ``ratio=1:1000:log`` or ``overlap=0.01:0.9``."""
        name, _, span = text.partition("=")
        check_choice("the axis", name, MapPoint.__dataclass_fields__)
        low, *rest = span.split(":")
        if len(rest) not in (1, 2) or (len(rest) == 2 and rest[1] not in ("log", "lin")):
            raise InputError(f"the axis {name}", span, "low:high or low:high:log")
        first, last = (parse_number(f"the axis {name}", text, "two numbers, low:high") for text in (low, rest[0]))
        upper = {"overlap": 0.999}.get(name)
        first = check_float(f"the low end of {name}", first, above=0, least=_LEAST.get(name))
        last = check_float(f"the high end of {name}", last, above=first, most=upper)
        log = len(rest) == 2 and rest[1] == "log"
        n = check_integer("the number of points", n, least=2, most=200)
        values = np.geomspace(first, last, n) if log else np.linspace(first, last, n)
        if name in _WHOLE:
            values = np.unique(np.rint(values))
        return cls(name, tuple(values.tolist()), log)


GridIndex = tuple[int, int]  # row and column of a map


@dataclass(frozen=True)
class MapLayout:
    """The points of a map."""

    theorem: str
    x: MapAxis
    y: MapAxis
    base: MapPoint
    points: dict[GridIndex, MapPoint]  # those whose classes exist

    @classmethod
    def of(cls, theorem: str, x: MapAxis, y: MapAxis, base: MapPoint) -> MapLayout:
        """The grid over both axes; raises InputError if no point of it exists."""
        check_choice("the theorem", theorem, MAPPED)
        if x.name == y.name:
            raise InputError("the axes", f"{x.name} twice", "two different fields")
        grid = {(i, j): _with(base, {y.name: row, x.name: column})
                for i, row in enumerate(y.values) for j, column in enumerate(x.values)}  # fmt: skip
        points = {index: point for index, point in grid.items() if point.vocab_size >= point.n_tokens}
        if not points:
            nearest = min(grid.values(), key=lambda point: point.n_tokens - point.vocab_size)
            nearest.classes()  # raises InputError with the number of tokens
        return cls(theorem, x, y, base, points)

    def dataset(
        self, results: Mapping[GridIndex, Mapping[str, Mapping[str, float]]], met: Mapping[GridIndex, int]
    ) -> xr.Dataset:
        """Numbers by point, claim and name (``margin`` among them) as variables (claim, y, x).

        ``met``: the level of the assumptions (`met_level`) by point.
        """
        shape = len(self.y.values), len(self.x.values)
        claims = sorted({claim for claims in results.values() for claim in claims})
        names = sorted({"margin"}.union(*(numbers for claims in results.values() for numbers in claims.values())))
        values = {name: np.full((len(claims), *shape), np.nan) for name in names}
        level, possible = np.zeros(shape, dtype=int), np.zeros(shape, dtype=bool)
        for index, numbers in results.items():
            level[index], possible[index] = met[index], True
            for k, claim in enumerate(claims):
                for name, value in numbers.get(claim, {}).items():
                    values[name][k][index] = value
        n = shape[0] * shape[1]
        return xr.Dataset(
            {name: (("claim", "y", "x"), value) for name, value in values.items()}
            | {"assumptions_met": (("y", "x"), level >= 1), "paper_assumptions_met": (("y", "x"), level == 2),
               "possible": (("y", "x"), possible)},
            coords={"claim": claims, "x": list(self.x.values), "y": list(self.y.values)},
            attrs={"theorem": self.theorem, "x": self.x.name, "y": self.y.name, "x_log": int(self.x.log),
                   "y_log": int(self.y.log), "base": repr(self.base), "t_end": f"{T_END:g} t₀",
                   "left_out": _left_out(n - len(self.points), n)},
        )  # fmt: skip


def regime_map(
    theorem: str,
    x: MapAxis,
    y: MapAxis,
    base: MapPoint | None = None,
    progress: Progress | None = None,
    processes: int | None = None,
) -> xr.Dataset:
    """Margins of the theorem's claims over the grid: variable ``margin`` (claim, y, x), ``assumptions_met``
    and ``paper_assumptions_met``.

    Margins are those of the measurements alone, whether the assumptions are met or not. They are NaN where there are no
    such classes (``possible`` is false; ``attrs["left_out"]`` is the reason) and where a claim has nothing to
    measure.
    """
    layout = MapLayout.of(theorem, x, y, base or MapPoint())
    points = layout.points
    results: dict[GridIndex, tuple[dict[str, float], int]] = {}
    n = processes or os.cpu_count() or 1
    with single_threaded_children(), killable_pool(n) as pool:
        with block_signals_in_children():
            jobs = {pool.submit(_point, theorem, point): index for index, point in points.items()}
        for done, job in enumerate(as_completed(jobs), start=1):
            results[jobs[job]] = job.result()
            if progress is not None:
                progress(done, len(points))
    return layout.dataset({index: {name: {"margin": margin} for name, margin in margins.items()}
                           for index, (margins, _) in results.items()},
                          {index: met for index, (_, met) in results.items()})  # fmt: skip


def _left_out(missing: int, total: int) -> str:
    if not missing:
        return ""
    return f"{missing} of {total} points left out: their classes need more tokens than the vocabulary has"


def _with(base: MapPoint, values: dict[str, float]) -> MapPoint:
    typed = {name: int(value) if name in _WHOLE else float(value) for name, value in values.items()}
    return replace(base, **typed)  # type: ignore[arg-type]


def _point(theorem: str, point: MapPoint) -> tuple[dict[str, float], int]:
    """Margins of the measured claims, and which assumptions are met (`met_level`)."""
    classes = point.classes()
    snap = float(t_snap(eta_y=point.eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    evidence = from_flow(
        classes,
        eta_y=point.eta_y,
        eta_z=point.eta_y / point.ratio,
        t_end=T_END * snap,
        n_times=48,
        rtol=1e-6,  # margins are the same to two digits as at 1e-9
        with_y=False,
    )
    claims = BUILT_IN[theorem].judge(evidence)
    met = met_level(evidence.assumptions.values())
    return {claim.name: claim.margin for claim in claims if claim.margin is not None}, met
