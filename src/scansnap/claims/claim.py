"""What a verdict consists of, and the one rule by which it is given.

A claim compares something measured with something predicted. ``margin`` is 1 − deviation/tolerance: 1 is exact
agreement, 0 the edge, negative a failure. A claim whose assumptions are not met is *not applicable*, whatever was
measured; the measurement is still reported, because where a statement holds beyond its assumptions is a finding.

A measurement with noise brings an interval of its deviation: the claim is decided only where the whole interval is on
one side of the tolerance, and *undecided* otherwise.

Not every verdict is evidence: each statement says of which ``kind`` it is, and totals count the measured ones apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scansnap.claims.assumptions import Assumption

Status = Literal["holds", "fails", "undecided", "not applicable"]

# What a verdict rests on:
#   by definition  true because of how a thing is named or drawn
#   formula        two ways to write one formula, or algebra and symmetry of it; no run takes part
#   identity       follows for every run from what was already established; a failure would be a bug of ours
#   measured       could have come out otherwise
Kind = Literal["by definition", "formula", "identity", "measured"]
KINDS: tuple[Kind, ...] = ("by definition", "formula", "identity", "measured")


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
class Statement:
    """A claim before it is judged."""

    name: str
    reference: str
    text: str
    kind: Kind = "measured"

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
        assumptions = tuple(assumptions)
        margin = 1 - deviation / tolerance if math.isfinite(deviation) else -math.inf
        if not math.isfinite(deviation):
            interval = None  # a number that is not one has no noise to hide behind
        claim = Claim(
            self.name, self.reference, self.text, "holds", quantity, measured, predicted, margin, tolerance, "",
            assumptions, curve, self.kind, interval,
        )  # fmt: skip
        unmet = [a for a in assumptions if not a.met]
        if unmet:
            why = "; ".join(f"{a.name}: {a.value:.3g} against {a.threshold:.3g}" for a in unmet)
            return replace(claim, status="not applicable", why=why)
        why = {"fails": where, "undecided": to_decide}.get(claim.observed, "")
        return replace(claim, status=claim.observed, why=why)

    def not_applicable(self, why: str, assumptions: Iterable[Assumption] = ()) -> Claim:
        """The statement does not speak about this setting, or the data lacks what it speaks about."""
        return Claim(
            self.name, self.reference, self.text, "not applicable", "", None, None, None, None, why,
            tuple(assumptions), None, self.kind,
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

    def __repr__(self) -> str:
        width = max(len(claim.reference) for claim in self.claims)
        lines = [self.setting]
        for claim in self.claims:
            margin = "" if claim.margin is None else f"margin {claim.margin:6.2f}"
            lines.append(f"  {claim.reference:<{width}}  {claim.status:<14}  {margin:<14}  {claim.why}".rstrip())
        return "\n".join(lines)
