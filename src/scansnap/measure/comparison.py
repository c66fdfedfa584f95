"""When a difference between settings, seen in a few seeds, is one: paired t tests, Holm over a family, equivalence.

A *case* is one comparison (a curve, a panel, a class): the differences of its two settings, one for each seed, both
trained from the same seed. A *family* is the cases counted for one statement. With mean d̄, standard deviation s and
n seeds, (d̄ − δ)√n/s has Student's t distribution with n − 1 degrees of freedom, so that the noise of few seeds is
allowed for: the interval of 2 seeds is 6.4 times as wide as "two standard errors", that of 3 seeds 2.2 times.

``margin`` m is the largest change that still counts as none. It cuts the line into three, and a case is decided when
the data exclude the other two (three-sided testing, Goeman, Solari and Stijnen 2010; m = 0 is the ordinary test):

    rises    δ > m       rejects δ ≤ m, two-sided level
    falls    δ < −m      rejects δ ≥ −m, two-sided level
    level    |δ| ≤ m     rejects δ > m and δ < −m, each one-sided (two one-sided tests, Schuirmann 1987)

Nothing follows from a lack of significance: what rejects none of them is *undecided*, and fewer seeds decide less.
Holm's step-down correction is applied over the cases to each of these questions, so that of a family of cases without
any change one is called a rise or a fall with probability of at most ``LEVEL``, however many cases there are.

Where all differences of a case are equal there is no spread to divide by. Such differences are either exact (nothing
random takes part; the caller says so with ``exact``, and one value decides) or come from a quantity with few values
(ranks, a recall of 1), where t would be infinite by chance: a sign test takes its place, which asks for more seeds
(n equal signs have probability 2^{1−n}).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import nct, t

from scansnap.checks import InputError, check_float
from scansnap.checks.arrays import FloatArray

LEVEL = 0.05
POWER = 0.8  # with which ``seeds_needed`` would decide
MOST_SEEDS = 1000  # beyond it "no number of seeds" is the honest answer

Verdict = Literal["rises", "falls", "level", "undecided", "failed"]
Statement = Literal["rises", "falls", "level", "does not rise", "does not fall"]


@dataclass(frozen=True)
class Count:
    """A statement over a family: ``of`` cases, of which ``agree`` agree and ``undecided`` do neither."""

    agree: int
    of: int
    undecided: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """What the differences of a family decide. Arrays are (cases,)."""

    differences: FloatArray  # (cases, seeds)
    margin: float = 0.0
    level: float = LEVEL
    exact: bool = False
    index: Any = None  # pandas's, of the cases, where they came with one

    @property
    def seeds(self) -> int:
        return self.differences.shape[1]

    @cached_property
    def failed(self) -> np.ndarray:
        """Where some seed has no number: such a case never agrees, and more seeds would not help it."""
        return np.asarray(~np.isfinite(self.differences).all(axis=1))

    @cached_property
    def mean(self) -> FloatArray:
        """NaN where failed."""
        return np.where(self.failed, np.nan, self._finite.mean(axis=1))

    @cached_property
    def spread(self) -> FloatArray:
        """Standard deviation over seeds; 0 for one seed, and where it is only rounding."""
        if self.seeds == 1:
            return np.zeros(len(self.differences))
        spread = self._finite.std(axis=1, ddof=1)
        rounding = 8 * np.finfo(np.float64).eps * np.abs(self._finite).max(axis=1)
        return np.where(spread <= rounding, 0.0, spread)

    @cached_property
    def half_width(self) -> FloatArray:
        """Of the two-sided t interval of one case, at 1 − level, without correction for the family: for reading.

        0 where exact, infinite where there is no spread to take it from (one seed, or equal differences).
        """
        if self.exact:
            return np.zeros(len(self.differences))
        if self.seeds == 1:
            return np.full(len(self.differences), np.inf)
        return np.where(self.spread > 0, t_half_width(self.spread, self.seeds, self.level), np.inf)

    @property
    def low(self) -> FloatArray:
        return self.mean - self.half_width

    @property
    def high(self) -> FloatArray:
        return self.mean + self.half_width

    @cached_property
    def p(self) -> FloatArray:
        """Of |δ| ≤ margin, two-sided, after Holm: small where the case rises or falls."""
        return holm(np.minimum(2 * np.minimum(self._above(self.margin), self._below(-self.margin)), 1.0))

    @cached_property
    def p_level(self) -> FloatArray:
        """Of |δ| > margin, the larger of two one-sided ones, after Holm: small where the case is level."""
        return holm(np.maximum(self._below(self.margin, or_at=True), self._above(-self.margin, or_at=True)))

    @cached_property
    def verdict(self) -> list[Verdict]:
        """One for each case."""
        verdicts: list[Verdict] = []
        for failed, mean, p, p_level in zip(self.failed, self.mean, self.p, self.p_level, strict=True):
            if failed:
                verdicts.append("failed")
            elif p <= self.level:
                verdicts.append("rises" if mean > 0 else "falls")
            else:
                verdicts.append("level" if p_level <= self.level else "undecided")
        return verdicts

    def agree(self, statement: Statement) -> np.ndarray:
        """Where the data show the statement."""
        if statement == "does not rise":  # one test more: whether it falls or is level need not be known
            shown = holm(self._below(self.margin, or_at=True)) <= self.level
            return shown | self._is("falls", "level")
        if statement == "does not fall":
            shown = holm(self._above(-self.margin, or_at=True)) <= self.level
            return shown | self._is("rises", "level")
        return self._is(statement)

    def undecided(self, statement: Statement) -> np.ndarray:
        """Where the data show neither the statement nor its opposite; a failed case is not undecided."""
        return self._is("undecided") & ~self.agree(statement)

    def count(self, statement: Statement) -> Count:
        return Count(int(self.agree(statement).sum()), len(self.differences), int(self.undecided(statement).sum()))

    @cached_property
    def seeds_needed(self) -> FloatArray:
        """About how many seeds would decide each undecided case, if its mean and spread are as measured.

        The t test must then decide with probability ``POWER`` at the level that Holm's first step gives the cases
        still undecided. Infinite where not even ``MOST_SEEDS`` would, NaN where the case is decided or has failed, and
        where one seed leaves the spread unknown.
        """
        open_cases = self._is("undecided")
        needed = np.full(len(open_cases), np.nan)
        if self.seeds == 1 or not open_cases.any():
            return needed
        level = self.level / int(open_cases.sum())
        sizes = np.unique(np.geomspace(self.seeds + 1, max(MOST_SEEDS, self.seeds + 1), 200).astype(int))
        for case in np.flatnonzero(open_cases):
            enough = sizes[self._power(sizes, abs(self.mean[case]), self.spread[case], level) >= POWER]
            needed[case] = enough[0] if len(enough) else np.inf
        return needed

    def to_decide(self, statement: Statement) -> str:
        """What would decide the undecided cases, in words; empty if there are none."""
        still = self.undecided(statement)
        if not still.any():
            return ""
        if self.seeds == 1:
            return "Undecided: one seed says nothing about the spread over seeds."
        needed = self.seeds_needed[still]
        some, words = needed[np.isfinite(needed)], []
        if len(some):
            least, most = int(some.min()), int(some.max())
            number = f"{most}" if least == most else f"{least} to {most}"
            words.append(f"about {number} seeds would decide {len(some)} undecided")
        if len(some) < len(needed):
            width = self.half_width[still][~np.isfinite(needed)].max()
            within = f", 0 within {width:.2g} as it is" if math.isfinite(width) else ""
            words.append(f"no number of seeds up to {MOST_SEEDS} would decide {len(needed) - len(some)}{within}")
        sentence = "; ".join(words)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def _is(self, *wanted: Verdict) -> np.ndarray:
        return np.array([verdict in wanted for verdict in self.verdict], dtype=bool)

    @property
    def _finite(self) -> FloatArray:
        return np.where(self.failed[:, None], 0.0, self.differences)

    def _below(self, bound: float, or_at: bool = False) -> FloatArray:
        """One-sided p value of δ ≥ bound; ``or_at``: the bound itself counts as below (it matters where s = 0)."""
        return self._one_sided(bound - self._finite.mean(axis=1), or_at)

    def _above(self, bound: float, or_at: bool = False) -> FloatArray:
        return self._one_sided(self._finite.mean(axis=1) - bound, or_at)

    def _one_sided(self, distance: FloatArray, or_at: bool) -> FloatArray:
        """p value from how far the mean is on the right side of the bound; 1 where failed."""
        right = (distance >= 0) if or_at else (distance > 0)
        if self.exact:
            p = np.where(right, 0.0, 1.0)
        else:
            sign_test = np.where(right, 0.5**self.seeds, 1.0)
            spread = self.spread
            p = sign_test
            if self.seeds > 1:
                statistic = distance * math.sqrt(self.seeds) / np.where(spread > 0, spread, 1.0)
                p = np.where(spread > 0, t.sf(statistic, self.seeds - 1), sign_test)
        return np.where(self.failed, 1.0, p)

    def _power(self, n: np.ndarray, effect: float, spread: float, level: float) -> FloatArray:
        """Of the test that the measured effect points to, for n seeds."""
        if spread == 0:  # the sign test: certain once n equal signs are rare enough
            p = 0.5**n if effect <= self.margin else 2 * 0.5**n
            return (p <= level).astype(np.float64)
        if effect > self.margin:
            shift = (effect - self.margin) * np.sqrt(n) / spread
            return np.asarray(nct.sf(t.isf(level / 2, n - 1), n - 1, shift))
        near, far = ((self.margin + sign * effect) * np.sqrt(n) / spread for sign in (-1, 1))
        critical = t.isf(level, n - 1)
        both = nct.sf(critical, n - 1, near) + nct.sf(critical, n - 1, far) - 1  # at least: the two are dependent
        return np.asarray(np.maximum(both, 0.0))


def compare(differences: ArrayLike, *, margin: float = 0.0, level: float = LEVEL, exact: bool = False) -> Comparison:
    """Judge a family from its differences (cases, seeds), or (seeds,) for one case.

    ``exact``: the differences have no noise, as between two solutions of an equation; each case then needs one value.
    """
    values = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    if values.ndim != 2 or values.shape[1] == 0:
        raise InputError("differences", f"of shape {np.shape(differences)}", "of shape (cases, seeds)")
    limits = check_float("margin", margin, least=0), check_float("level", level, above=0, below=1)
    table: Any = differences
    return Comparison(values, *limits, exact, table.index if hasattr(table, "columns") else None)


def t_half_width(spread: ArrayLike, n: ArrayLike, level: float = LEVEL) -> FloatArray:
    """Half of the two-sided t interval, at 1 − level, of the mean of n values with this standard deviation."""
    return np.asarray(t.isf(level / 2, np.asarray(n) - 1) * spread / np.sqrt(n))


def mean_interval(values: ArrayLike) -> tuple[float, float, float]:
    """Mean and 95% t interval over seeds, (mean, low, high).

    Equal values have no spread to take t from: the sign test allows the point itself once 2^{1−n} ≤ 5%, and nothing
    before. A value that is not a number makes all three so.
    """
    comparison = compare(values)
    mean = float(comparison.mean[0])
    if not math.isfinite(mean):
        return math.nan, math.nan, math.nan
    width = float(comparison.half_width[0])
    if comparison.spread[0] == 0:
        width = 0.0 if 0.5 ** (comparison.seeds - 1) <= LEVEL else math.inf
    return mean, mean - width, mean + width


def sure_signs(moved: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """(p,), (p,) which of p quantities surely rise, and which surely fall, by t intervals over seeds; (R, p) given.

    That *every* quantity rises is said when each is seen to at `LEVEL`: then no correction for their number is
    needed. That *some* quantity falls is said at LEVEL for all of them together (Bonferroni). One run says nothing.
    """
    n, p = moved.shape
    if n < 2:
        return np.zeros(p, dtype=bool), np.zeros(p, dtype=bool)
    mean, spread = moved.mean(0), moved.std(0, ddof=1)  # one-sided: twice the level
    return mean > t_half_width(spread, n, 2 * LEVEL), mean < -t_half_width(spread, n, 2 * LEVEL / p)


def holm(p: FloatArray) -> FloatArray:
    """p values corrected by Holm's step-down procedure: compare each with the level of the whole family."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def plus_minus(mean: float, half_width: float, signed: bool = True) -> str:
    """A number with half the width of its interval, to the digits the width leaves."""
    if not math.isfinite(mean):
        return "no number (a run failed)"
    number = "+" if signed else ""
    if not math.isfinite(half_width):
        return f"{mean:{number}.3f} (no interval)".replace("-", "−")
    digits = min(max(1 - math.floor(math.log10(half_width)), 2), 5) if half_width > 1e-6 else 3
    return f"{mean:{number}.{digits}f} ± {half_width:.{digits}f}".replace("-", "−")


def interval(values: ArrayLike, signed: bool = True) -> str:
    """The mean over seeds ± half of its 95% t interval, in words."""
    comparison = compare(values)
    if comparison.seeds > 1 and comparison.spread[0] == 0 and not comparison.failed[0]:
        return f"{comparison.mean[0]:{'+' if signed else ''}.3f} in every seed".replace("-", "−")
    return plus_minus(float(comparison.mean[0]), float(comparison.half_width[0]), signed)
