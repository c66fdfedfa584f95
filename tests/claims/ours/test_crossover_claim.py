"""Insight (c) and its crossover: measured slopes are those of the memory equation, and not of the drive alone."""

from __future__ import annotations

from typing import Any

import pytest
from flows import CLASSES, evolve

import scansnap as ss
from scansnap.claims.claim import Claim
from scansnap.claims.ours import crossover


def judge(eta_z: float, **changed: Any) -> dict[str, Claim]:
    return {claim.name: claim for claim in crossover.check(evolve(CLASSES["textbook"], eta_z, spans=0.1), **changed)}


@pytest.mark.parametrize(("eta_z", "insight"), [(0.02, "holds"), (0.09, "fails"), (0.3, "not applicable")])
def test_insight_c_fails_near_the_crossover_with_every_assumption_met(eta_z: float, insight: str) -> None:
    claims = judge(eta_z)
    assert (claims["insight-c"].status, claims["crossover"].status) == (insight, "holds"), claims
    assert claims["insight-c"].observed == ("holds" if eta_z == 0.02 else "fails")


def test_it_fails_for_other_flows_and_without_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def slower_attention(classes: ss.SequenceClasses, eta_y: float, eta_z: float, *known: Any, **more: Any) -> Any:
        return ss.flow(classes, eta_y, eta_z / 10, *known, **more)

    assert judge(0.3, run=slower_attention)["crossover"].observed == "fails"
    changes = crossover.token_changes
    monkeypatch.setattr(crossover, "token_changes", lambda t, eta_y, eta_z, *known: changes(t, eta_y, 1e-9, *known))
    assert judge(0.3)["crossover"].observed == "fails"


def test_where_it_does_not_apply() -> None:
    claims = crossover.check(evolve(CLASSES["two queries"], spans=0.1))
    assert {claim.status for claim in claims} == {"not applicable"}
