"""The conservation laws: on the flow, on SGD in both precisions, and where they are broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import flows
import numpy as np
import pytest

from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.claims.lemmas import conservation
from scansnap.classes import SequenceClasses

CLASSES = {
    "syn-small": SequenceClasses.syn_small(),
    "syn-medium": SequenceClasses.syn_medium(3),
    "textbook": SequenceClasses.textbook(),
    "zipf": SequenceClasses.zipf(vocab=120, classes=4),
}


def evidence_of(classes: SequenceClasses, eta_z: float = 0.5, t_end: float = 1e3) -> Evidence:
    return from_flow(classes, eta_y=0.9, eta_z=eta_z, t_end=t_end, n_times=20)


def trained(classes: SequenceClasses, **settings: Any) -> Evidence:
    return flows.trained(classes, **{"eta_y": 1.0, "eta_z": 1.0, "steps": 60, "record": [0, 1, 7, 60]} | settings)


def by_name(evidence: Evidence) -> dict[str, Claim]:
    return {claim.name: claim for claim in conservation.check(evidence)}


def statuses(evidence: Evidence) -> list[str]:
    return [claim.status for claim in conservation.check(evidence)]


@pytest.fixture(scope="module")
def small() -> Evidence:
    return evidence_of(CLASSES["syn-small"])


@pytest.mark.parametrize("name", CLASSES)
def test_holds_on_the_flow(name: str) -> None:
    found = by_name(evidence_of(CLASSES[name]))
    assert found["conservation-y"].status == "holds"
    assert found["conservation-z"].status == found["common-sum"].status == "holds"
    assert all(claim.margin > 0.99 for claim in found.values() if claim.margin is not None), found
    common = found["common-sum"]
    assert common.measured < 0
    assert common.measured == pytest.approx(common.predicted, rel=1e-9)
    assert (common.curve.x > 0).all()
    assert (np.diff(common.curve.measured) < 0).all(), "every common token's loss is some distinct token's gain"


@pytest.mark.parametrize("settings", [
    {},
    {"init": "uniform", "momentum": 0.9},
    {"init": "normal(0.5)", "context": 8, "batch_size": 2},
])  # fmt: skip
@pytest.mark.parametrize("name", ["syn-small", "syn-medium"])
def test_holds_on_sgd(name: str, settings: dict[str, Any]) -> None:
    found = by_name(trained(CLASSES[name], **settings))
    for claim in found.values():
        assert claim.status == "holds", claim
        assert claim.kind == "identity"
        assert claim.tolerance < 1e-13


@pytest.mark.parametrize("engine", ["general", "auto"])
def test_single_precision_is_recognised_and_allowed_for(engine: str) -> None:
    evidence = trained(CLASSES["syn-small"], dtype="float32", init="uniform", momentum=0.9, engine=engine)
    for claim in conservation.check(evidence):
        assert claim.status == "holds", claim
        assert 1e-5 < claim.tolerance < 1e-4
        assert claim.margin < 1


def test_the_start_is_what_is_kept_and_not_zero() -> None:
    found = by_name(trained(CLASSES["syn-small"], init="uniform"))
    assert abs(found["conservation-z"].predicted) > 0.01
    assert abs(found["conservation-y"].predicted) > 0.01


# --- they can fail ----------------------------------------------------------------------------------------------


def test_weight_decay_breaks_the_laws() -> None:
    assert statuses(trained(CLASSES["syn-small"], init="uniform", weight_decay=1e-3)) == ["fails", "fails", "fails"]


def test_weight_decay_keeps_sums_that_are_zero() -> None:
    assert statuses(trained(CLASSES["syn-small"], weight_decay=1e-3)) == ["holds", "holds", "holds"]


def test_a_changed_logit_fails(small: Evidence) -> None:
    z = small.z.copy()
    z[11, 1, 5] += 1e-6
    found = by_name(replace(small, z=z))
    assert found["conservation-y"].status == "holds"
    assert found["conservation-z"].status == found["common-sum"].status == "fails"
    assert "query 31" in found["conservation-z"].reason
    assert f"t = {small.t[11]:.4g}" in found["conservation-z"].reason


@pytest.mark.parametrize("source", ["flow", "float32"])
def test_a_small_violation_in_the_beginning_fails(small: Evidence, source: str) -> None:
    """One logit, off by a thousandth of the little that it has moved by then."""
    evidence = small if source == "flow" else trained(CLASSES["textbook"], eta_z=0.01, dtype="float32")
    assert statuses(evidence) == ["holds", "holds", "holds"]
    z = evidence.z.copy()
    z[2, 0, 0] *= 1.001 if source == "flow" else 1.05
    assert abs(z[2, 0, 0]) < 1e-3
    found = by_name(replace(evidence, z=z.astype(np.float32) if source == "float32" else z))
    assert found["conservation-z"].status == found["common-sum"].status == "fails"
    assert f"t = {evidence.t[2]:.4g}" in found["conservation-z"].reason


def test_common_tokens_that_rise_on_the_way_fail(small: Evidence) -> None:
    """For a while the common tokens rise with the distinct ones, the rest of the query's sum being held elsewhere."""
    z = small.z.copy()
    z[5, 0, small.classes.common] = 1e-3
    common = by_name(replace(small, z=z))["common-sum"]
    assert common.status == "fails"
    assert f"t = {small.t[5]:.4g}: common +" in common.reason


def test_a_changed_vote_fails(small: Evidence) -> None:
    y = small.y.copy()
    y[1, 13, 2] *= 1 + 1e-8
    found = by_name(replace(small, y=y))
    assert found["conservation-y"].status == "fails"
    assert "token 13" in found["conservation-y"].reason
    assert found["conservation-z"].status == "holds"


def test_a_gradient_without_its_projection_fails(small: Evidence) -> None:
    """diag(f) g instead of diag(f)(I − ffᵀ)g, in one Euler step from the last state."""
    step = np.zeros_like(small.z[-1])
    np.add.at(step, small.class_query, small.f[-1] * small.g[-1])
    broken = replace(small, z=small.z + 0.1 * step * (small.t > 1)[:, None, None])
    assert statuses(broken) == ["holds", "fails", "fails"]


def test_what_moves_outside_the_context_breaks_only_the_whole_sum(small: Evidence) -> None:
    z = small.z.copy()
    z[1:, :, 33] += 1e-3  # a next token, in no context
    assert statuses(replace(small, z=z)) == ["holds", "fails", "holds"]


def test_common_tokens_that_rise_with_the_distinct_ones_fail(small: Evidence) -> None:
    z = np.abs(small.z)
    common = by_name(replace(small, z=z))["common-sum"]
    assert common.status == "fails"
    assert common.measured > 0 > common.predicted


def test_numbers_that_are_not_numbers_fail(small: Evidence) -> None:
    z, y = small.z.copy(), small.y.copy()
    z[4, 0, 3] = y[1, 2, 3] = np.nan
    found = by_name(replace(small, z=z, y=y))
    assert [claim.status for claim in found.values()] == ["fails", "fails", "fails"]
    assert "token 2" in found["conservation-y"].reason


# --- degenerate classes ----------------------------------------------------------------------------------------

DEGENERATE = {
    "one class": (SequenceClasses([[0.5, 0.3, 0.2]], [2], [0]), "no common"),
    "one token": (SequenceClasses([[1.0, 0, 0]], [2], [0]), "no common"),
    "no common": (SequenceClasses.synthetic(common=0), "no common"),
    "no distinct": (SequenceClasses([[0.5, 0.5, 0], [0.3, 0.7, 0]], [2, 2], [0, 1]), "no distinct"),
    "never both": (
        SequenceClasses([[0.5, 0.5, 0], [0.3, 0.7, 0], [0, 0, 1]], [0, 0, 1], [0, 1, 2]),
        "no query has",
    ),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_classes(name: str) -> None:
    classes, why = DEGENERATE[name]
    for evidence in (evidence_of(classes, t_end=20), trained(classes, steps=10, record=[0, 10])):
        found = by_name(evidence)
        assert found["conservation-y"].status == found["conservation-z"].status == "holds", found
        assert found["common-sum"].status == "not applicable"
        assert why in found["common-sum"].reason
        for claim in found.values():
            if claim.margin is not None:
                assert np.isfinite([claim.measured, claim.predicted, claim.margin]).all()


def test_a_single_record(small: Evidence) -> None:
    first = {name: getattr(small, name)[:1] for name in ("t", "z", "attention", "g", "gap")}
    alone = replace(small, **first, y=None, y_times=None)
    found = by_name(alone)
    assert found["conservation-y"].status == "not applicable"
    assert found["conservation-z"].status == found["common-sum"].status == "holds"
    assert found["conservation-z"].curve is None


def test_queries_with_only_one_kind_of_token_are_left_out() -> None:
    """Query 5 has distinct tokens only; query 4 has both."""
    p = [[0.5, 0.5, 0, 0, 0, 0], [0.5, 0, 0.5, 0, 0, 0], [0, 0, 0, 1, 0, 0]]
    common = by_name(evidence_of(SequenceClasses(p, [4, 4, 5], [0, 1, 2])))["common-sum"]
    assert common.status == "holds"
    assert "1 of 1 queries" in common.quantity
