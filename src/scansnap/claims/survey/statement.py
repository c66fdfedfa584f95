"""A statement from the literature, its setting, and its verdict.

A `SurveyStatement` is a `scansnap.claims.claim.Statement` with its source and the setting on which it
is tested. A `SurveyClaim` is the `scansnap.claims.claim.Claim` about it, with the interval of the
measured value. The rule is that of all claims: given ``predicted`` and the ``bound`` up to which a measurement agrees
with it, the deviation may be at most their distance. (For a statement without a number the prediction is a round one,
and the bound decides.) Where training is random, the interval is over training seeds, and the verdict is *undecided*
while the bound lies inside it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from scansnap.checks.arrays import FloatArray
from scansnap.claims.claim import Claim, Curve, Kind, Statement
from scansnap.measure.comparison import mean_interval


@dataclass(frozen=True)
class Citation:
    """A paper, and which part of it was available to us.

    ``abstract``: the abstract, summaries or the authors' code page; details beyond them are as we read it.
    """

    authors: str  # with the year
    title: str
    arxiv: str  # its number; empty where there is none, and ``authors`` then say where it was published
    read: Literal["text", "abstract", "our own"]

    @property
    def short(self) -> str:
        """Tian et al. 2023."""
        first, *others = re.split(", | and ", self.authors)
        return f"{first} et al. {self.authors[-4:]}" if others else first

    def __str__(self) -> str:
        if self.read == "our own":
            return self.authors
        note = "" if self.read == "text" else ", as we read it"
        place = f"arXiv {self.arxiv}{note}" if self.arxiv else note.removeprefix(", ")
        return f"{self.authors}, {self.title} ({place})"


OURS = Citation("our own", "", "", "our own")


@dataclass(frozen=True)
class SurveyEffort:
    """The number of training seeds, and whether long runs are shortened."""

    seeds: int
    quick: bool = False


# Six equal values are the fewest that are significant in the sign test (2^{1−n} ≤ 5%).
FULL, QUICK = SurveyEffort(10), SurveyEffort(6, quick=True)


@dataclass(frozen=True, kw_only=True)
class SurveyClaim(Claim):
    """A verdict with its source and setting."""

    source: Citation
    setting: str
    bound: float | None = None  # the value furthest from ``predicted`` that still agrees
    range: tuple[float, float] | None = None  # 95% interval of ``measured`` over seeds; None without randomness


@dataclass(frozen=True, kw_only=True)
class SurveyStatement(Statement):
    """A statement before it is judged."""

    source: Citation
    setting: str

    def judge_values(
        self,
        values: ArrayLike,
        *,
        predicted: float,
        bound: float,
        quantity: str,
        two_sided: bool = False,
        failure: str = "",
        curve: Curve | None = None,
    ) -> SurveyClaim:
        """Judge one exact number, or one number per training seed.

        Values from ``bound`` to ``predicted`` and beyond agree; if ``two_sided``, only those as near as the bound.
        """
        each = np.asarray(values, dtype=np.float64)
        mean, low, high = (float(each),) * 3 if each.ndim == 0 else mean_interval(each)

        def deviation(value: float) -> float:
            distance = (predicted - value) if bound < predicted else (value - predicted)
            return abs(distance) if two_sided else max(distance, 0.0)

        ends = sorted((deviation(low), deviation(high)))
        least = 0.0 if low <= predicted <= high else ends[0]
        claim = self.judge(
            quantity=quantity, measured=mean, predicted=predicted, tolerance=abs(predicted - bound), failure=failure,
            deviation=deviation(mean) if math.isfinite(mean) else math.inf, curve=curve,
            interval=None if each.ndim == 0 else (least, ends[1]), remedy="more training seeds would decide",
        )  # fmt: skip
        return self._survey_claim(claim, bound, None if each.ndim == 0 else (low, high))

    def judge_not_applicable(self, reason: str) -> SurveyClaim:
        """The verdict for a setting to which the statement does not apply."""
        return self._survey_claim(self.not_applicable(reason))

    def _survey_claim(
        self, claim: Claim, bound: float | None = None, interval: tuple[float, float] | None = None
    ) -> SurveyClaim:
        plain = {field.name: getattr(claim, field.name) for field in fields(Claim)}
        return SurveyClaim(**plain, source=self.source, setting=self.setting, bound=bound, range=interval)


def survey_statement(
    name: str, text: str, *, source: Citation, setting: str, kind: Kind = "measured"
) -> SurveyStatement:
    """A statement whose reference is its source."""
    return SurveyStatement(name, source.authors, text, kind, source=source, setting=setting)


class SurveyCheck(NamedTuple):
    """Statements that share their runs, and the function that judges them."""

    statements: tuple[SurveyStatement, ...]
    judge: Callable[[SurveyEffort], list[SurveyClaim]]


def integrate_in_log_time(
    rates: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    times: FloatArray,
    *,
    first: float = 1e-3,
    rtol: float = 1e-9,
    atol: float = 1e-12,
    method: Literal["LSODA", "RK45"] = "LSODA",
) -> FloatArray:
    """The autonomous flow ẋ = rates(x) at ``times``, (N, state), integrated in ln t from t = ``first``.

    For flows of a few entries to very late times. `scansnap.flow` integrates the YZ model itself. RK45 needs no
    Jacobian, which pays for hundreds of entries and moderate times.
    """
    log_t = np.log(times)
    run = solve_ivp(
        lambda s, state: np.exp(s) * rates(state), (np.log(first), log_t[-1]), start, t_eval=log_t, method=method,
        rtol=rtol, atol=atol,
    )  # fmt: skip
    if not run.success:
        raise RuntimeError(f"the integration to t = {times[-1]:g} stopped: {run.message}")
    return np.asarray(run.y.T)
