"""A statement from the literature, and what became of it in one setting of ours.

A :class:`Surveyed` statement is a :class:`~scansnap.claims.claim.Statement` with its source and the setting it is held
against; a :class:`Finding` is the :class:`~scansnap.claims.claim.Claim` about it, with the interval of what was
measured. The rule is that of all claims: with ``predicted`` and the ``bound`` up to which a measurement agrees with
it, the deviation may be at most their distance (a statement without a number has a round one here, and its bound
decides). Where training is random the interval is over training seeds, and the verdict is *undecided* while the bound
lies inside it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.claims.claim import Claim, Curve, Kind, Statement
from scansnap.measure.comparison import mean_interval

Read = Literal["text", "abstract", "our own"]


@dataclass(frozen=True)
class Source:
    """Who said it, and how much of it we had before us.

    ``abstract``: the abstract, summaries or the authors' code page; what goes beyond them is as we read it.
    """

    authors: str  # with the year
    title: str
    arxiv: str  # its number; empty where there is none
    read: Read

    @property
    def short(self) -> str:
        """Tian et al. 2023."""
        first, *others = re.split(", | and ", self.authors)
        return f"{first} et al. {self.authors[-4:]}" if others else first

    def __str__(self) -> str:
        if self.read == "our own":
            return self.authors
        note = "" if self.read == "text" else ", as we read it"
        return f"{self.authors}, {self.title} (arXiv {self.arxiv}{note})"


OURS = Source("our own", "", "", "our own")


@dataclass(frozen=True)
class Sizes:
    """How much is spent: training seeds, and whether long runs are cut short."""

    seeds: int
    quick: bool = False


# Six equal values are the fewest that say something by the sign test (2^{1−n} ≤ 5%).
FULL, QUICK = Sizes(10), Sizes(6, quick=True)


@dataclass(frozen=True, kw_only=True)
class Finding(Claim):
    """A verdict, beside its source and setting."""

    source: Source
    setting: str
    bound: float | None = None  # how far from ``predicted`` still agrees
    range: tuple[float, float] | None = None  # 95% interval of ``measured`` over seeds; None where nothing is random


@dataclass(frozen=True, kw_only=True)
class Surveyed(Statement):
    """A statement before it is judged."""

    source: Source
    setting: str

    def found(
        self,
        values: ArrayLike,
        *,
        predicted: float,
        bound: float,
        quantity: str,
        both_sides: bool = False,
        where: str = "",
        curve: Curve | None = None,
    ) -> Finding:
        """Judge what was measured: one exact number, or a number for each training seed.

        It agrees from ``bound`` to ``predicted`` and beyond; with ``both_sides`` only as near to it as the bound is.
        """
        each = np.asarray(values, dtype=np.float64)
        mean, low, high = (float(each),) * 3 if each.ndim == 0 else mean_interval(each)

        def deviation(value: float) -> float:
            distance = (predicted - value) if bound < predicted else (value - predicted)
            return abs(distance) if both_sides else max(distance, 0.0)

        ends = sorted((deviation(low), deviation(high)))
        least = 0.0 if low <= predicted <= high else ends[0]
        claim = self.judge(
            quantity=quantity, measured=mean, predicted=predicted, tolerance=abs(predicted - bound), where=where,
            deviation=deviation(mean) if math.isfinite(mean) else math.inf, curve=curve,
            interval=None if each.ndim == 0 else (least, ends[1]), to_decide="more training seeds would decide",
        )  # fmt: skip
        plain = {field.name: getattr(claim, field.name) for field in fields(Claim)}
        between = None if each.ndim == 0 else (low, high)
        return Finding(**plain, source=self.source, setting=self.setting, bound=bound, range=between)

    def does_not_apply(self, why: str) -> Finding:
        """The setting has nothing the statement speaks about."""
        claim = self.not_applicable(why)
        plain = {field.name: getattr(claim, field.name) for field in fields(Claim)}
        return Finding(**plain, source=self.source, setting=self.setting)


def surveyed(name: str, text: str, *, source: Source, setting: str, kind: Kind = "measured") -> Surveyed:
    """A statement whose reference is its source."""
    return Surveyed(name, source.authors, text, kind, source=source, setting=setting)
