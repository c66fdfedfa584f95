"""Statements, claims, and the one rule by which a claim gets its verdict.

A claim compares a measured value with a predicted one. ``margin`` is 1 − deviation/tolerance: 1 is exact agreement, 0
the limit, negative a failure. A claim whose assumptions are not met is *not applicable*, whatever the measurement. The
measurement is still reported, because where a statement holds beyond its assumptions is a finding.

A measurement with noise has an interval of its deviation. The claim is decided only if the whole interval is on one
side of the tolerance, and *undecided* otherwise.

Not every verdict is evidence: each statement has a ``kind``, and totals count the kinds separately. Claims of kind
``measured`` are the independent statements of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scansnap.checks import InputError, check_choice
from scansnap.claims.assumptions import Assumption

if TYPE_CHECKING:
    from scansnap.claims.ours.path import PredictedPath

Status = Literal["holds", "fails", "undecided", "not applicable"]
STATUSES: tuple[Status, ...] = ("holds", "fails", "undecided", "not applicable")

# What a verdict rests on:
#   by definition  true by the definition of a term or of a drawing
#   formula        two forms of one formula, or algebra and symmetry of it; needs no run
#   identity       follows for every run from established facts; a failure would be a bug of ours
#   measured       an independent statement of the paper, which could have come out otherwise
#   dependent      measured too, but it cannot fail where the statements of ``implied_by`` hold, or it measures the same
#                  as those of ``repeats`` in another way
#   proof step     measured too, but only the paper's proof uses it; no statement of the paper says it
#   ours           measured too, but the prediction is our theory's, not the paper's
Kind = Literal["by definition", "formula", "identity", "measured", "dependent", "proof step", "ours"]
KINDS: tuple[Kind, ...] = ("by definition", "formula", "identity", "measured", "dependent", "proof step", "ours")

ALL_CASES = 0.5  # tolerance, in cases, of a statement about every case: one exception exceeds it


@dataclass(frozen=True)
class Curve:
    """The figure of a claim: measured and predicted values over a common axis."""

    x_label: str
    y_label: str
    x: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    log_x: bool = True
    log_y: bool = False
    along: Callable[[PredictedPath], tuple[np.ndarray, np.ndarray]] | None = None  # x and y on a path of our theory


@dataclass(frozen=True)
class Claim:
    """The verdict on one statement in one setting.

    Attributes
    ----------
    name, reference, statement
        Short name for programs (``"theorem-2a"``), place in the paper, and the statement in one line.
    status
        ``"holds"``, ``"fails"``, ``"undecided"`` or ``"not applicable"``.
    quantity, measured, predicted
        What was measured, and both values.
    margin, tolerance
        1 − deviation/tolerance, and the tolerance on the deviation.
    reason
        Why it fails, is undecided, or does not apply; empty if it holds.
    assumptions
        The assumptions of the statement with their values in this setting.
    kind, implied_by, repeats
        What the verdict rests on, and the claims that it depends on.
    interval
        Interval of the deviation; None for a measurement without noise.
    curve, alternatives, alternative
        The claim's figure, the claims of ours that may hold where it fails, and the one that does (or comes closest).

    Examples
    --------
    >>> import scansnap as ss
    >>> report = ss.verify(ss.SequenceClasses.textbook(), checks=["conservation"])
    >>> claim = report["conservation-z"]
    >>> claim.status, claim.kind, claim.margin > 0
    ('holds', 'identity', True)
    """

    name: str
    reference: str
    statement: str
    status: Status
    quantity: str
    measured: float | None
    predicted: float | None
    margin: float | None
    tolerance: float | None
    reason: str
    assumptions: tuple[Assumption, ...] = ()
    curve: Curve | None = None
    kind: Kind = "measured"
    interval: tuple[float, float] | None = None
    alternatives: tuple[str, ...] = ()
    alternative: Alternative | None = None
    implied_by: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice(f"the status of the claim {self.name}", self.status, STATUSES)

    @property
    def relation(self) -> str:
        """The claims that it depends on, in words; empty if it is independent."""
        words = (("follows from", self.implied_by), ("repeats", self.repeats))
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in words if names)

    def as_independent(self) -> Claim:
        """The same claim for a setting in which nothing implies it."""
        return replace(self, kind="measured", implied_by=(), repeats=())

    @property
    def observed(self) -> Status:
        """The verdict of the measurement alone, without the assumptions."""
        if self.margin is None or self.tolerance is None:
            return "not applicable"
        if self.interval is None:
            return "holds" if self.margin >= 0 else "fails"
        low, high = self.interval
        if high <= self.tolerance:
            return "holds"
        return "undecided" if low <= self.tolerance else "fails"


@dataclass(frozen=True)
class Alternative:
    """A claim of ours in the place of one that fails, judged on the same data, and its curve."""

    claim: Claim
    until: str = ""  # end of its range: "10 t₀"; the failing claim may fail later
    x: np.ndarray | None = None  # on the axes of the failing claim's curve
    y: np.ndarray | None = None
    error: float | None = None  # largest difference from the measured curve over the largest value (log axis: relative)
    paper_error: float | None = None  # the same of the failing prediction

    @property
    def verdict(self) -> str:
        """Whether it holds, in words."""
        status = self.claim.status
        if status == "holds":
            return f"instead: {self.claim.name} holds" + (f" up to {self.until}" if self.until else "")
        return f"{self.claim.name} {status}, too" if status == "fails" else f"{self.claim.name} is {status}"

    def __str__(self) -> str:
        if self.error is None or self.paper_error is None:
            return self.verdict
        ours, paper = format_error(self.error), format_error(self.paper_error)
        return f"{self.verdict}; its curve is off by {ours}, the paper's by {paper}"


@dataclass(frozen=True)
class Statement:
    """A statement before it is judged.

    Parameters
    ----------
    name, reference, text
        Short name, place in the paper, and the statement in one line.
    kind
        What a verdict on it rests on (`Kind`).
    alternatives
        Claims of ours that may hold where it fails, the most informative first.
    implied_by, repeats
        Of kind "dependent": statements with which it cannot fail, or which measure the same in another way.

    Examples
    --------
    >>> import scansnap as ss
    >>> small = ss.Statement("small-z", "Own claim", "no logit leaves [−1, 1]")
    >>> claim = small.judge(quantity="largest |z|", measured=0.4, predicted=0.0, deviation=0.4, tolerance=1.0)
    >>> claim.status, claim.margin
    ('holds', 0.6)
    """

    name: str
    reference: str
    text: str
    kind: Kind = "measured"
    alternatives: tuple[str, ...] = ()
    implied_by: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("name", "reference", "text"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value:
                raise InputError(f"the {field} of a statement", value, "a non-empty string")
        check_choice(f"the kind of the statement {self.name}", self.kind, KINDS)
        if (self.kind == "dependent") != bool(self.implied_by or self.repeats):
            names = ", ".join([*self.implied_by, *self.repeats]) or "none"
            expected = f"dependent if and only if implied_by or repeats names statements ({names} here)"
            raise InputError(f"the kind of the statement {self.name}", self.kind, expected)

    @property
    def is_from_paper(self) -> bool:
        """Whether the paper states it."""
        return self.kind not in ("proof step", "ours")

    def judge(
        self,
        *,
        quantity: str,
        measured: float,
        predicted: float,
        deviation: float,
        tolerance: float,
        assumptions: Iterable[Assumption] = (),
        failure: str = "",
        curve: Curve | None = None,
        interval: tuple[float, float] | None = None,
        remedy: str = "",
    ) -> Claim:
        """The claim that holds if deviation ≤ tolerance. A deviation that is not a number is a failure.

        Parameters
        ----------
        quantity, measured, predicted
            What was measured, and both values.
        deviation, tolerance
            The distance that the verdict is about, and its limit.
        assumptions
            If one is not met, the claim is not applicable.
        failure
            Where the largest deviation is; the claim's reason if it fails.
        curve
            The claim's figure.
        interval
            The interval of the deviation, for a measurement with noise.
        remedy
            What would decide if the tolerance is inside the interval; the claim's reason if it is undecided.
        """
        measured, predicted, deviation, tolerance = (
            self._number(name, value)
            for name, value in (("measured", measured), ("predicted", predicted), ("deviation", deviation),
                                ("tolerance", tolerance))
        )  # fmt: skip
        if tolerance <= 0 or deviation < 0:
            field, value = ("tolerance", tolerance) if tolerance <= 0 else ("deviation", deviation)
            raise InputError(f"the {field} of {self.name}", value, "a float > 0" if tolerance <= 0 else "a float ≥ 0")
        assumptions = tuple(assumptions)
        margin = 1 - deviation / tolerance if math.isfinite(deviation) else -math.inf
        if not math.isfinite(deviation):
            interval = None  # it fails whatever the noise
        claim = Claim(
            self.name, self.reference, self.text, "holds", quantity, measured, predicted, margin, tolerance, "",
            assumptions, curve, self.kind, interval, self.alternatives, implied_by=self.implied_by,
            repeats=self.repeats,
        )  # fmt: skip
        unmet = [a for a in assumptions if not a.met]
        if unmet:
            reason = "; ".join(f"{a.name}: {a.value:.3g} against {a.threshold:.3g}" for a in unmet)
            return replace(claim, status="not applicable", reason=reason)
        reason = {"fails": failure, "undecided": remedy}.get(claim.observed, "")
        return replace(claim, status=claim.observed, reason=reason)

    def judge_cases(
        self,
        agrees: np.ndarray,
        *,
        quantity: str,
        failure: str,
        assumptions: Iterable[Assumption] = (),
        curve: Curve | None = None,
        known: tuple[np.ndarray, np.ndarray] | None = None,
        remedy: str = "",
    ) -> Claim:
        """Judge a statement about every case; ``agrees`` is true where it is so.

        With noise, ``known`` = (certainly true, certainly false) by case. One case that is certainly false is enough to
        fail; to hold, all must be certainly true.
        """
        share = float(np.mean(agrees))
        interval = None if known is None else (float(np.mean(known[1])), 1 - float(np.mean(known[0])))
        n_exceptions = agrees.size - np.count_nonzero(agrees)
        return self.judge(
            quantity=quantity, measured=share, predicted=1.0, deviation=1 - share, tolerance=ALL_CASES / agrees.size,
            failure=f"{n_exceptions} of {agrees.size} do not; {failure}", assumptions=assumptions, curve=curve,
            interval=interval, remedy=remedy,
        )  # fmt: skip

    def _number(self, field: str, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise InputError(f"the {field} of {self.name}", value, "a number") from None

    def not_applicable(self, reason: str, assumptions: Iterable[Assumption] = ()) -> Claim:
        """The claim in a setting about which the statement says nothing, or whose data lacks what it needs."""
        return Claim(
            self.name, self.reference, self.text, "not applicable", "", None, None, None, None, reason,
            tuple(assumptions), None, self.kind, implied_by=self.implied_by, repeats=self.repeats,
        )  # fmt: skip


def index_of_largest(values: np.ndarray) -> tuple[int, ...]:
    """The index of the largest value; of a NaN if there is one."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def format_error(value: float) -> str:
    """A relative error in words."""
    return f"{100 * value:.2g}%" if value < 1 else f"a factor of {1 + value:.3g}"


def nan_to_inf(value: float) -> float:
    """For a maximum over cases: a value that is not finite is the largest."""
    return float(value) if math.isfinite(value) else math.inf
