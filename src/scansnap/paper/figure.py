"""What every figure returns: computed numbers, counted findings with the numbers behind them, and a drawing.

Each figure is a module with ``TITLE``, ``CAPTION``, ``compute`` and ``draw``. ``draw`` gets only what ``compute``
returned, so the CSV beside a figure holds everything in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from scansnap.claims.claim import KINDS, Kind
from scansnap.measure.comparison import Comparison, Statement, compare
from scansnap.paper.shared.over_seeds import WORDS
from scansnap.plots.sparkline import Sparkline
from scansnap.progress import Progress

MOST_LISTED = 8  # exact cases, one by one
ROUNDING = 1e-6  # of a number without noise


@dataclass(frozen=True)
class Number:
    """One number of a finding. ``half_width`` is that of its 95% interval: 0 if exact, infinite if unknown."""

    case: str  # empty: of all cases together
    value: float
    half_width: float


@dataclass(frozen=True)
class Points:
    """The tested numbers: a row for each case with a value for each seed, or one value where nothing is random."""

    values: tuple[tuple[float, ...], ...]
    cases: tuple[str, ...] = ()  # names of the rows; empty where they have none
    wanted: Statement | None = None  # which side of the margin agrees
    margin: float = 0.0
    exact: bool = False  # no noise

    @classmethod
    def of(cls, comparison: Comparison, wanted: Statement) -> Points:
        """Of a family of comparisons."""
        return cls(_rows(comparison.differences), named(comparison.index), wanted, comparison.margin, comparison.exact)

    @classmethod
    def without_noise(cls, values: ArrayLike, cases: tuple[str, ...] = ()) -> Points:
        """One value for each case."""
        return cls(_rows(np.ravel(np.asarray(values, dtype=np.float64))[:, None]), cases, exact=True)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers in the report, which a later reproduction compares with its own.

        A family of cases over seeds has one number, its mean over the cases with the 95% t interval over seeds. Values
        without noise (a flow, a formula) are listed case by case; of many the least, the middle and the largest.
        """
        if not self.values:
            return ()
        table = np.array(self.values)
        if not self.exact:
            fine = table[np.isfinite(table).all(axis=1)]
            interval = compare(fine.mean(axis=0) if len(fine) else np.full(table.shape[1], np.nan))
            return (Number("", float(interval.mean[0]), float(interval.half_width[0])),)
        values = table[:, 0]
        if len(values) <= MOST_LISTED:
            return tuple(Number(self.cases[i] if self.cases else "", float(v), 0.0) for i, v in enumerate(values))
        ends = np.nanquantile(values, (0, 0.5, 1)) if np.isfinite(values).any() else ()
        return tuple(Number(word, float(v), 0.0) for word, v in zip(("least", "middle", "largest"), ends, strict=False))


def named(index: Any) -> tuple[str, ...]:
    """Names of the rows of a table, "queries = 1, η_Z = 0.5", without what all rows share."""
    if not isinstance(index, pd.Index) or None in index.names:
        return ()
    columns = index.to_frame(index=False)
    varying = [name for name in columns if len(columns) == 1 or columns[name].nunique() > 1]
    return tuple(
        ", ".join(f"{WORDS.get(str(name), name)} {_value(value)}" for name, value in zip(varying, case, strict=True))
        for case in columns[varying].itertuples(index=False)
    )


def _value(value: Any) -> str:
    return f"{value}" if isinstance(value, str) else f"= {value:g}"


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in values)


def beyond(old: Number, new: Number) -> bool | None:
    """Whether two numbers differ by more than their error; None where one of them has no known error.

    The difference of two means with independent 95% intervals ±a and ±b has the interval ±√(a² + b²). Runs from the
    same seeds are not independent but closer to each other, so that this is careful. Numbers without noise come from
    integrators and may differ by a millionth.
    """
    if not (math.isfinite(old.value) and math.isfinite(new.value)):
        return not (old.value == new.value or (math.isnan(old.value) and math.isnan(new.value)))
    error = math.hypot(old.half_width, new.half_width)
    if not math.isfinite(error):
        return None
    return abs(new.value - old.value) > max(error, ROUNDING * max(abs(old.value), abs(new.value)))


Verdict = Literal[
    "agrees", "mostly agrees", "mixed", "mostly disagrees", "disagrees", "undecided", "not applicable"
]  # fmt: skip
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
PLURAL: dict[Verdict, str] = {"agrees": "agree", "mostly agrees": "mostly agree", "disagrees": "disagree",
                              "mostly disagrees": "mostly disagree"}  # fmt: skip
MOSTLY = 3 / 4  # of the decided cases
T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """How much to compute and where."""

    quick: bool = False  # fewer seeds and steps; ``Computed.note`` says so on the figure
    device: str = "auto"
    data: str | Path | tuple[str, ...] | None = None  # the text, or several for Figure 10; None: see find_corpora
    cache_folder: Path | None = None  # of finished runs, until their figure is complete: see shared.run_cache
    shared_runs: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def compute_once(self, name: str, compute: Callable[[], T]) -> T:
        """Runs that several figures share: computed for the first figure, reused by the others of the same effort."""
        key = (name, self.quick, self.device, self.data)
        if key not in self.shared_runs:
            self.shared_runs[key] = compute()
        runs: T = self.shared_runs[key]
        return runs


@dataclass(frozen=True)
class Finding:
    """A statement of the paper, counted over cases.

    A case agrees, disagrees, or is undecided: the data are too few to tell (:mod:`scansnap.measure.comparison`). A case
    with a failed run disagrees. The verdict is

        not applicable     there are no cases
        undecided          fewer than half of the cases are decided
        agrees             all cases agree
        mostly agrees      at least three quarters of the decided cases agree
        mixed              between one and three quarters of them
        mostly disagrees   at most one quarter of them
        disagrees          all cases disagree

    so an undecided case prevents the plain "agrees" and "disagrees" and otherwise does not count.
    """

    says: str  # the statement in our words
    reference: str  # where the paper makes it: "Figure 6", "Section 7"
    agree: int
    of: int  # number of cases
    cases: str  # what a case is, in the plural: "curves"
    detail: str = ""  # measured numbers with their uncertainty
    undecided: int = 0  # number of cases that the data do not decide
    kind: Kind = "measured"
    points: Points | None = None  # the numbers behind the count
    headline: int = 0  # its position in the first lines of the report; 0: not there

    def __post_init__(self) -> None:
        if min(self.agree, self.undecided) < 0 or self.agree + self.undecided > self.of:
            raise ValueError(f"{self.agree} that agree and {self.undecided} undecided are not of {self.of} cases")

    @classmethod
    def compared(
        cls,
        says: str,
        reference: str,
        comparison: Comparison,
        statement: Statement,
        cases: str,
        detail: str = "",
        headline: int = 0,
    ) -> Finding:
        """Count a family of comparisons; the detail ends with what would decide the undecided cases."""
        count = comparison.count(statement)
        detail = " ".join(part for part in (detail, comparison.to_decide(statement)) if part)
        return cls(says, reference, count.agree, count.of, cases, detail, count.undecided,
                   points=Points.of(comparison, statement), headline=headline)  # fmt: skip

    @property
    def disagree(self) -> int:
        return self.of - self.agree - self.undecided

    @property
    def verdict(self) -> Verdict:
        decided = self.agree + self.disagree
        if not self.of:
            return "not applicable"
        if 2 * decided < self.of:
            return "undecided"
        if self.agree == self.of:
            return "agrees"
        if self.disagree == self.of:
            return "disagrees"
        if self.agree >= MOSTLY * decided:
            return "mostly agrees"
        return "mostly disagrees" if self.disagree >= MOSTLY * decided else "mixed"

    def __str__(self) -> str:
        detail = f" {self.detail}" if self.detail else ""
        return f"{self.says}: {self.verdict}, {self.counted}.{detail}"

    @property
    def counted(self) -> str:
        open_cases = f", {self.undecided} undecided" if self.undecided else ""
        return f"{self.agree} of {self.of} {self.cases}{open_cases}"


def totals(findings: Iterable[Finding]) -> dict[Kind, dict[Verdict, int]]:
    """Counts of verdicts for each kind of finding; only the measured ones are evidence."""
    all_findings = list(findings)
    counts = {kind: Counter(f.verdict for f in all_findings if f.kind == kind) for kind in KINDS}
    return {kind: {v: counts[kind][v] for v in VERDICTS if counts[kind][v]} for kind in KINDS if counts[kind]}


def describe_totals(counted: dict[Kind, dict[Verdict, int]]) -> list[str]:
    """Totals in words: measured findings first, then those that no run could contradict."""
    of = {kind: sum(verdicts.values()) for kind, verdicts in counted.items()}
    lines = []
    if "measured" in counted:
        lines.append(f"measured: {_listed(counted['measured'])}, of {of['measured']} statements")
    if "ours" in counted:
        lines.append(f"ours, for what fails: {_listed(counted['ours'])}, of {of['ours']} statements")
    if "dependent" in counted:
        lines.append(f"following from others or repeating them: {_listed(counted['dependent'])}, of "
                     f"{of['dependent']} statements")  # fmt: skip
    if "proof step" in counted:
        lines.append(f"steps of proofs: {_listed(counted['proof step'])}, of {of['proof step']}")
    plural = {"formula": "formulas", "identity": "identities"}
    apart = [
        f"{of[kind]} {kind if of[kind] == 1 else plural.get(kind, kind)} ({_listed(counted[kind])})"
        for kind in KINDS
        if kind in of and kind in ("by definition", "formula", "identity")
    ]
    if apart:
        lines.append(f"counted apart, since no run could show otherwise: {'; '.join(apart)}")
    return lines


def _listed(verdicts: dict[Verdict, int]) -> str:
    return ", ".join(f"{n} {verdict if n == 1 else PLURAL.get(verdict, verdict)}" for verdict, n in verdicts.items())


@dataclass(frozen=True)
class Computed:
    """Everything behind one figure."""

    table: pd.DataFrame  # tidy: one row for each number drawn
    settings: dict[str, Any]  # plain numbers, strings and lists, for the manifest
    findings: tuple[Finding, ...] = ()
    note: str = ""  # printed below the figure: how it is smaller than the paper's
    extra: dict[str, Any] = field(default_factory=dict)  # what ``draw`` needs beyond the table (labels, matrices)
    sparklines: dict[str, Sparkline] = field(default_factory=dict)  # by claim, for the report's table of them


class PaperFigure(Protocol):
    """The shape of a figure's module."""

    TITLE: str
    CAPTION: str

    @staticmethod
    def compute(effort: Effort, progress: Progress | None = None) -> Computed: ...

    @staticmethod
    def draw(computed: Computed) -> Figure: ...
