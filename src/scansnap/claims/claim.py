"""What a verdict consists of, and the one rule by which it is given.

A claim compares something measured with something predicted. ``margin`` is 1 − deviation/tolerance: 1 is exact
agreement, 0 the edge, negative a failure. A claim whose assumptions are not met is *not applicable*, whatever was
measured; the measurement is still reported, because where a statement holds beyond its assumptions is a finding.

A measurement with noise brings an interval of its deviation: the claim is decided only where the whole interval is on
one side of the tolerance, and *undecided* otherwise.

Not every verdict is evidence: each statement says of which ``kind`` it is, and totals count the kinds apart. What is
``measured`` are the independent statements of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scansnap.checks import InputError, check_choice
from scansnap.claims.assumptions import Assumption

if TYPE_CHECKING:
    from scansnap.claims.ours.path import Path

Status = Literal["holds", "fails", "undecided", "not applicable"]
STATUSES: tuple[Status, ...] = ("holds", "fails", "undecided", "not applicable")

# What a verdict rests on:
#   by definition  true because of how a thing is named or drawn
#   formula        two ways to write one formula, or algebra and symmetry of it; no run takes part
#   identity       follows for every run from what was already established; a failure would be a bug of ours
#   measured       an independent statement of the paper, which could have come out otherwise
#   dependent      measured too, but it cannot fail where the statements of ``implied_by`` hold, or it measures the same
#                  as those of ``repeats`` in another way
#   proof step     measured too, but the paper's proof uses it and no statement of the paper says it
#   ours           measured too, but what is held against the run is our theory, not the paper's
Kind = Literal["by definition", "formula", "identity", "measured", "dependent", "proof step", "ours"]
KINDS: tuple[Kind, ...] = ("by definition", "formula", "identity", "measured", "dependent", "proof step", "ours")

EVERY = 0.5  # of a statement on every case: one exception is too many, half a one is not


@dataclass(frozen=True)
class Curve:
    """The figure that shows a claim: measured against predicted over a common axis."""

    x_label: str
    y_label: str
    x: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    log_x: bool = True
    log_y: bool = False
    along: Callable[[Path], tuple[np.ndarray, np.ndarray]] | None = None  # x and y, measured on a path of ours instead


@dataclass(frozen=True)
class Claim:
    """One statement of the paper (or ours) held against one setting."""

    name: str  # short and stable, for programs: "theorem-2a"
    reference: str  # "Theorem 2(a)"
    statement: str  # in one line
    status: Status
    quantity: str  # what was measured, in words
    measured: float | None
    predicted: float | None
    margin: float | None
    tolerance: float | None  # on the deviation whose complement the margin is
    why: str  # where it fails, which assumption is not met, what would decide; empty when it simply holds
    assumptions: tuple[Assumption, ...] = ()
    curve: Curve | None = None
    kind: Kind = "measured"
    interval: tuple[float, float] | None = None  # of the deviation; None where the measurement has no noise
    candidates: tuple[str, ...] = ()  # the claims of ours that may hold where it fails: Statement.instead
    instead: Instead | None = None  # what holds in its place, where it is seen to fail (claims/instead.py)
    implied_by: tuple[str, ...] = ()  # the claims without which it is no evidence, as its statement has them …
    repeats: tuple[str, ...] = ()  # … or none where they do not imply it in this setting

    def __post_init__(self) -> None:
        check_choice(f"the status of the claim {self.name}", self.status, STATUSES)

    @property
    def relation(self) -> str:
        """What it depends on, in words; empty where it is independent."""
        words = (("follows from", self.implied_by), ("repeats", self.repeats))
        return "; ".join(f"{says} {', '.join(names)}" for says, names in words if names)

    def independent(self) -> Claim:
        """The same claim in a setting where what usually implies it does not."""
        return replace(self, kind="measured", implied_by=(), repeats=())

    @property
    def observed(self) -> Status:
        """What the measurement alone would say, assumptions set aside."""
        if self.margin is None or self.tolerance is None:
            return "not applicable"
        if self.interval is None:
            return "holds" if self.margin >= 0 else "fails"
        low, high = self.interval
        if high <= self.tolerance:
            return "holds"
        return "undecided" if low <= self.tolerance else "fails"


@dataclass(frozen=True)
class Instead:
    """What takes the place of a statement that fails: one of ours, judged on the same data, and its curve."""

    claim: Claim
    until: str = ""  # how far it goes: "10 t₀"; what fails may do so later
    x: np.ndarray | None = None  # on the axes of the failing claim's curve
    y: np.ndarray | None = None
    off: float | None = (
        None  # how far it is from what was measured, and how far the failing prediction, where both are:
    )
    theirs: float | None = None  # the largest difference over the largest value, of a logarithmic axis relative

    @property
    def verdict(self) -> str:
        """Whether it does, in words."""
        status = self.claim.status
        if status == "holds":
            return f"instead: {self.claim.name} holds" + (f" up to {self.until}" if self.until else "")
        return f"{self.claim.name} {status}, too" if status == "fails" else f"{self.claim.name} is {status}"

    def __str__(self) -> str:
        if self.off is None or self.theirs is None:
            return self.verdict
        return f"{self.verdict}; its curve is off by {share(self.off)}, the paper's by {share(self.theirs)}"


@dataclass(frozen=True)
class Statement:
    """A claim before it is judged: its short name, where it stands, what it says in one line, what it rests on."""

    name: str
    reference: str
    text: str
    kind: Kind = "measured"
    instead: tuple[str, ...] = ()  # claims of ours that may hold where this one fails, the most telling first
    implied_by: tuple[str, ...] = ()  # statements with which it cannot fail: kind "dependent"
    repeats: tuple[str, ...] = ()  # statements that measure the same in another way: kind "dependent"

    def __post_init__(self) -> None:
        for field in ("name", "reference", "text"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value:
                raise InputError(f"the {field} of a statement", value, "some text")
        check_choice(f"the kind of the statement {self.name}", self.kind, KINDS)
        if (self.kind == "dependent") != bool(self.implied_by or self.repeats):
            names = ", ".join([*self.implied_by, *self.repeats]) or "none"
            allowed = f"dependent if and only if implied_by or repeats names statements ({names} here)"
            raise InputError(f"the kind of the statement {self.name}", self.kind, allowed)

    @property
    def of_paper(self) -> bool:
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
        where: str = "",
        curve: Curve | None = None,
        interval: tuple[float, float] | None = None,
        to_decide: str = "",
    ) -> Claim:
        """Holds if deviation ≤ tolerance. A deviation that is not a number is a failure, never a pass.

        ``where`` says in words where the largest deviation is; it is shown when the claim fails. ``interval`` is the
        deviation's, where it has noise, and ``to_decide`` says what would decide when the tolerance lies inside it.
        """
        measured, predicted, deviation, tolerance = (
            self._number(name, value)
            for name, value in (("measured", measured), ("predicted", predicted), ("deviation", deviation),
                                ("tolerance", tolerance))
        )  # fmt: skip
        if tolerance <= 0 or deviation < 0:
            field, value = ("tolerance", tolerance) if tolerance <= 0 else ("deviation", deviation)
            raise InputError(f"the {field} of {self.name}", value, "above 0" if tolerance <= 0 else "at least 0")
        assumptions = tuple(assumptions)
        margin = 1 - deviation / tolerance if math.isfinite(deviation) else -math.inf
        if not math.isfinite(deviation):
            interval = None  # a number that is not one has no noise to hide behind
        claim = Claim(
            self.name, self.reference, self.text, "holds", quantity, measured, predicted, margin, tolerance, "",
            assumptions, curve, self.kind, interval, self.instead, implied_by=self.implied_by, repeats=self.repeats,
        )  # fmt: skip
        unmet = [a for a in assumptions if not a.met]
        if unmet:
            why = "; ".join(f"{a.name}: {a.value:.3g} against {a.threshold:.3g}" for a in unmet)
            return replace(claim, status="not applicable", why=why)
        why = {"fails": where, "undecided": to_decide}.get(claim.observed, "")
        return replace(claim, status=claim.observed, why=why)

    def judge_every(
        self,
        good: np.ndarray,
        *,
        quantity: str,
        where: str,
        assumptions: Iterable[Assumption] = (),
        curve: Curve | None = None,
        sure: tuple[np.ndarray, np.ndarray] | None = None,
        to_decide: str = "",
    ) -> Claim:
        """Judge a statement that is to be true of every case; ``good`` says of which it is.

        ``sure`` says where that is known: of which cases it is surely true, and of which surely not. One that is
        surely not true is enough to fail, and all must surely be true to hold.
        """
        share = float(np.mean(good))
        interval = None if sure is None else (float(np.mean(sure[1])), 1 - float(np.mean(sure[0])))
        return self.judge(
            quantity=quantity, measured=share, predicted=1.0, deviation=1 - share, tolerance=EVERY / good.size,
            where=f"{good.size - np.count_nonzero(good)} of {good.size} do not; {where}", assumptions=assumptions,
            curve=curve, interval=interval, to_decide=to_decide,
        )  # fmt: skip

    def _number(self, field: str, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise InputError(f"the {field} of {self.name}", value, "one number") from None

    def not_applicable(self, why: str, assumptions: Iterable[Assumption] = ()) -> Claim:
        """The statement does not speak about this setting, or the data lacks what it speaks about."""
        return Claim(
            self.name, self.reference, self.text, "not applicable", "", None, None, None, None, why,
            tuple(assumptions), None, self.kind, implied_by=self.implied_by, repeats=self.repeats,
        )  # fmt: skip


@dataclass(frozen=True)
class Report:
    """All claims for one setting."""

    setting: str
    claims: tuple[Claim, ...]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims)

    def __getitem__(self, name: str) -> Claim:
        for claim in self.claims:
            if claim.name == name:
                return claim
        raise KeyError(f"no claim {name!r}; there are {', '.join(claim.name for claim in self.claims)}")

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def failures(self) -> list[Claim]:
        """The claims that fail although their assumptions are met."""
        return [claim for claim in self.claims if claim.status == "fails"]

    def counts(self, kind: Kind = "measured") -> dict[Status, int]:
        """How many claims of a kind have each status."""
        return {status: sum(claim.kind == kind and claim.status == status for claim in self) for status in STATUSES}

    @property
    def summary(self) -> str:
        """How many independent statements of the paper hold, and how many that depend on others."""
        words = {"holds": "hold", "fails": "fail", "undecided": "are undecided", "not applicable": "do not apply"}
        own, others = self.counts(), self.counts("dependent")
        said = ", ".join(f"{n} {words[status]}" for status, n in own.items() if n and status != "holds")
        text = f"{own['holds']} of {sum(own.values())} independent statements hold" + (f", {said}" if said else "")
        if not any(others.values()):
            return f"{text}."
        return f"{text}; of {sum(others.values())} that follow from others or repeat them {others['holds']} hold."

    def __repr__(self) -> str:
        width = max(len(claim.reference) for claim in self.claims)
        lines = [self.setting]
        for claim in self.claims:
            margin = "" if claim.margin is None else f"margin {claim.margin:6.2f}"
            lines.append(f"  {claim.reference:<{width}}  {claim.status:<14}  {margin:<14}  {claim.why}".rstrip())
            if claim.instead is not None:
                lines.append(f"  {'':<{width}}  {claim.instead}")
        lines.append(self.summary)
        return "\n".join(lines)


def worst(values: np.ndarray) -> tuple[int, ...]:
    """The place of the largest value; of one that is not a number, if there is any."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def share(value: float) -> str:
    """A relative distance in words."""
    return f"{100 * value:.2g}%" if value < 1 else f"a factor of {1 + value:.3g}"


def nan_is_worst(value: float) -> float:
    """For a maximum over cases: what is not a number is the largest."""
    return float(value) if math.isfinite(value) else math.inf
