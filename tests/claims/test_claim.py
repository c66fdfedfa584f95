"""The rule by which verdicts are given."""

from __future__ import annotations

import math

import pytest

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Statement

SAYS = Statement("x", "Theorem 0", "x is y", kind="identity")


def judged(deviation: float, interval: tuple[float, float] | None = None, met: bool = True) -> Claim:
    assumption = Assumption("a", "a holds", 1.0, 2.0, met, "")
    return SAYS.judge(
        quantity="x", measured=1.0, predicted=1.0, deviation=deviation, tolerance=0.1, interval=interval,
        failure="here", remedy="more seeds", assumptions=[assumption],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("deviation", "interval", "status", "why"),
    [
        (0.05, None, "holds", ""),
        (0.15, None, "fails", "here"),
        (0.05, (0.0, 0.09), "holds", ""),
        (0.05, (0.0, 0.11), "undecided", "more seeds"),
        (0.15, (0.09, 0.2), "undecided", "more seeds"),
        (0.15, (0.11, 0.2), "fails", "here"),
        (math.nan, None, "fails", "here"),
        (math.nan, (0.0, 0.05), "fails", "here"),
    ],
)
def test_noise_decides_only_with_its_whole_interval(
    deviation: float, interval: tuple[float, float] | None, status: str, why: str
) -> None:
    claim = judged(deviation, interval)
    assert (claim.status, claim.reason) == (status, why)


def test_an_unmet_assumption_keeps_what_was_observed() -> None:
    claim = judged(0.05, (0.0, 0.11), met=False)
    assert (claim.status, claim.observed) == ("not applicable", "undecided")


def test_a_claim_says_of_which_kind_it_is() -> None:
    assert judged(0.05).kind == SAYS.not_applicable("no data").kind == "identity"
    assert Statement("y", "Theorem 0", "y").kind == "measured"
