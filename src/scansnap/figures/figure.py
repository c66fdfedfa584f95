"""What a figure of the paper is here: numbers computed when asked, counted findings, and a drawing made from them.

Each figure is a module with ``TITLE``, ``CAPTION`` (what to see), ``compute`` and ``draw``. ``draw`` sees only what
``compute`` returned, so that the CSV beside a figure holds everything in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd
from matplotlib.figure import Figure

Progress = Callable[[int, int], None]
Verdict = Literal["agrees", "in part", "disagrees", "not applicable"]


@dataclass(frozen=True)
class Effort:
    """How much to compute and where."""

    quick: bool = False  # fewer seeds and steps; ``Computed.note`` then says so on the figure
    device: str = "auto"
    data: str | Path | None = None  # text for the figures on it: a folder, a file or a name; None: see find_corpus


@dataclass(frozen=True)
class Finding:
    """A statement of the paper, counted in our runs."""

    says: str  # the statement in our words
    reference: str  # where the paper makes it: "Figure 6", "Section 7"
    agree: int
    of: int  # how many cases were looked at
    cases: str  # what a case is, in the plural: "curves"
    detail: str = ""  # measured numbers with their uncertainty

    @property
    def verdict(self) -> Verdict:
        if not self.of:
            return "not applicable"
        if self.agree == self.of:
            return "agrees"
        return "in part" if self.agree else "disagrees"

    def __str__(self) -> str:
        detail = f" {self.detail}" if self.detail else ""
        return f"{self.says}: {self.verdict}, {self.counted}.{detail}"

    @property
    def counted(self) -> str:
        return f"{self.agree} of {self.of} {self.cases}"


@dataclass(frozen=True)
class Computed:
    """Everything behind one figure."""

    table: pd.DataFrame  # tidy: one row for each number drawn
    settings: dict[str, Any]  # plain numbers, strings and lists, for the manifest
    findings: tuple[Finding, ...] = ()
    note: str = ""  # printed small below the figure: what makes this one smaller than the paper's
    extra: dict[str, Any] = field(default_factory=dict)  # what drawing needs beyond the table (labels, matrices)


class PaperFigure(Protocol):
    """The shape of a figure's module."""

    TITLE: str
    CAPTION: str

    @staticmethod
    def compute(effort: Effort, progress: Progress | None = None) -> Computed: ...

    @staticmethod
    def draw(computed: Computed) -> Figure: ...
