"""What a figure of the paper is here: numbers computed when asked, counted findings, and a drawing made from them.

Each figure is a module with ``TITLE``, ``CAPTION`` (what to see), ``compute`` and ``draw``. ``draw`` sees only what
``compute`` returned, so that the CSV beside a figure holds everything in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

import pandas as pd
from matplotlib.figure import Figure

from scansnap.claims.claim import KINDS, Kind
from scansnap.measure.comparison import Comparison, Statement
from scansnap.paper.points import Points
from scansnap.plots.sparkline import Sparkline
from scansnap.progress import Progress

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

    quick: bool = False  # fewer seeds and steps; ``Computed.note`` then says so on the figure
    device: str = "auto"
    data: str | Path | None = None  # text for the figures on it: a folder, a file or a name; None: see find_corpus
    kept: Path | None = None  # where finished runs lie until their figure is made: see shared.run_cache
    made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # what :meth:`once` has made

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Runs that several figures share: made for the first of them, and there for the others of the same effort."""
        key = (name, self.quick, self.device, self.data)
        if key not in self.made:
            self.made[key] = make()
        found: T = self.made[key]
        return found


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

    so that an undecided case stands against the plain "agrees" and "disagrees" and otherwise takes no side.
    """

    says: str  # the statement in our words
    reference: str  # where the paper makes it: "Figure 6", "Section 7"
    agree: int
    of: int  # how many cases were looked at
    cases: str  # what a case is, in the plural: "curves"
    detail: str = ""  # measured numbers with their uncertainty
    undecided: int = 0  # of the cases, how many the data do not decide
    kind: Kind = "measured"
    points: Points | None = None  # the numbers behind the count
    headline: int = 0  # its place among what the report begins with, which is the first few that were made; 0: none

    def __post_init__(self) -> None:
        if min(self.agree, self.undecided) < 0 or self.agree + self.undecided > self.of:
            raise ValueError(f"{self.agree} that agree and {self.undecided} undecided are not of {self.of} cases")

    @classmethod
    def compared(
        cls,
        says: str,
        reference: str,
        found: Comparison,
        statement: Statement,
        cases: str,
        detail: str = "",
        headline: int = 0,
    ) -> Finding:
        """Count a family of comparisons; the detail ends with what would decide the undecided cases."""
        count = found.count(statement)
        detail = " ".join(part for part in (detail, found.to_decide(statement)) if part)
        return cls(says, reference, count.agree, count.of, cases, detail, count.undecided,
                   points=Points.of(found, statement), headline=headline)  # fmt: skip

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
    """How many findings have each verdict, for each kind apart: only the measured ones are evidence."""
    found = list(findings)
    counts = {kind: Counter(f.verdict for f in found if f.kind == kind) for kind in KINDS}
    return {kind: {v: counts[kind][v] for v in VERDICTS if counts[kind][v]} for kind in KINDS if counts[kind]}


def told(counted: dict[Kind, dict[Verdict, int]]) -> list[str]:
    """Totals in words: what was measured, and apart from it what could hardly have come out otherwise."""
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
    note: str = ""  # printed small below the figure: what makes this one smaller than the paper's
    extra: dict[str, Any] = field(default_factory=dict)  # what drawing needs beyond the table (labels, matrices)
    sparklines: dict[str, Sparkline] = field(default_factory=dict)  # by claim, for the report's table of them


class PaperFigure(Protocol):
    """The shape of a figure's module."""

    TITLE: str
    CAPTION: str

    @staticmethod
    def compute(effort: Effort, progress: Progress | None = None) -> Computed: ...

    @staticmethod
    def draw(computed: Computed) -> Figure: ...
