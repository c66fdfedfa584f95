"""Where it is asked: two maps of the symmetric family, and a few settings outside of it.

The maps are (η_Y/η_Z, overlap) at M = 2000 and (M, overlap) at η_Y/η_Z = 50, in the family of the regime maps
(:class:`scansnap.claims.maps.MapPoint`): K = 2 classes of one query, one common token, 5 distinct tokens each. Outside
of the family, where the memory has no closed form, are the paper's own data: several common tokens, several queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.maps import MapPoint
from scansnap.classes import SequenceClasses

AXES = {"ratio": (1.0, 1000.0), "vocab_size": (20.0, 10_000.0)}  # the horizontal side of each map, in logarithms
OVERLAP = (0.01, 0.9)
GENERAL = "general"
ETA_Y = MapPoint().eta_y
_PRESETS: tuple[tuple[str, dict[str, int]], ...] = (
    ("syn-small", {}), ("syn-medium", {"n_queries": 1}), ("syn-medium", {"n_queries": 3}),
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How many settings."""

    across: dict[str, int]  # points along each of AXES
    up: int  # along the overlap
    ratios: tuple[float, ...]  # η_Y/η_Z of the settings outside the family


FULL = Size({"ratio": 11, "vocab_size": 8}, 12, (10.0, 30.0, 100.0, 300.0, 1000.0))
QUICK = Size({"ratio": 4, "vocab_size": 3}, 3, (100.0,))


@dataclass(frozen=True)
class Setting:
    """One setting: a point of a map, or a preset."""

    part: str  # of AXES, or GENERAL
    ratio: float  # η_Y/η_Z
    point: MapPoint | None = None  # in the symmetric family
    preset: str = ""
    knobs: tuple[tuple[str, int], ...] = ()

    def classes(self) -> SequenceClasses:
        if self.point is not None:
            return self.point.classes()
        return SequenceClasses.preset(self.preset, **dict(self.knobs))

    @property
    def eta_z(self) -> float:
        return ETA_Y / self.ratio

    @property
    def name(self) -> str:
        """Of the family, or of the preset with its knobs."""
        return "symmetric" if self.point is not None else " ".join([self.preset, *(f"{v}" for _, v in self.knobs)])


def settings(size: Size) -> list[Setting]:
    """All of them. Where the classes have more tokens than M there is no setting (the maps begin above that)."""
    found = []
    for name, across in size.across.items():
        for overlap in np.linspace(*OVERLAP, size.up):
            for value in values(name, across):
                point = replace(MapPoint(overlap=float(overlap)), **{name: value})  # type: ignore[arg-type]
                found.append(Setting(name, point.ratio, point))
    for preset, knobs in _PRESETS:
        found += [Setting(GENERAL, ratio, None, preset, tuple(knobs.items())) for ratio in size.ratios]
    return found


def values(name: str, n: int) -> list[float] | list[int]:
    """Along the horizontal side of a map."""
    there: FloatArray = np.geomspace(*AXES[name], n)
    return [round(value) for value in there.tolist()] if name == "vocab_size" else there.tolist()
