"""The scan order holds on flows from any Z(0), and fails by another order, after a fall, and from another Y(0)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flows import counterexample, evolve, flow

import scansnap as ss
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.ours import scan

MEDIUM = ss.SequenceClasses.syn_medium(1)
TIMES = np.append(0.0, np.geomspace(0.01, 2000, 60))
VARIABLES = ("z", "attention", "g", "gap")


@pytest.mark.parametrize(("name", "eta_z"), [("textbook", 0.02), ("syn-small", 0.9), ("zipf", 0.9)])
def test_distinct_tokens_gain_in_the_order_of_their_attention(name: str, eta_z: float) -> None:
    claim = scan.check(flow(name, eta_z))
    assert claim.status == "holds", claim
    slowed = claim.quantity.split("keep the order ")[1]
    assert slowed.startswith("throughout" if name == "textbook" else "until")


def test_any_start_is_a_prior() -> None:
    """And no other check speaks about such a flow."""
    z0 = np.random.default_rng(5).normal(size=(1, MEDIUM.vocab_size))
    data = ss.flow(MEDIUM, 0.9, 0.3, TIMES, z0=z0, variables=VARIABLES)
    report = ss.verify(data=data, checks=["scan", "theorem-2"])
    assert report["scan-order"].status == "holds"
    assert report["theorem-2a"].reason == "the flow does not start from Z = 0"
    only_loss = ss.flow(MEDIUM, 0.9, 0.3, TIMES, z0=z0, variables=("loss",))
    assert ss.verify(data=only_loss, checks=["scan"])["scan-order"].status == "not applicable"


def test_by_another_order_it_fails() -> None:
    evidence = flow("textbook")
    attention = evidence.attention.copy()
    ids = evidence.classes.distinct(0)
    attention[0, 0, ids] = attention[0, 0, ids[::-1]]
    claim = scan.check(replace(evidence, attention=attention))
    assert claim.status == "fails"
    assert "of class 0" in claim.reason


def test_after_the_weaker_token_falls_the_order_may_be_lost() -> None:
    evidence = evolve(counterexample(), eta_z=0.09)
    assert scan.check(evidence).status == "holds"
    z = evidence.z[:, 0, evidence.classes.distinct(1)]
    assert evidence.attention[0, 1, 4] > evidence.attention[0, 1, 5]
    assert z[-1, 0] < z[-1, 1] < 0
    assert not scan.rising_so_far(evidence, 1)[-1].any()


def test_a_decoder_that_prefers_the_weaker_token_turns_the_order() -> None:
    ids = MEDIUM.distinct(0)
    y0 = np.zeros((MEDIUM.vocab_size, MEDIUM.vocab_size))
    y0[ids[0], MEDIUM.next_token[0]] = 2.0
    evidence = from_trajectory(ss.flow(MEDIUM, 0.9, 0.3, TIMES, y0=y0, variables=VARIABLES), MEDIUM)
    assert MEDIUM.p_context[0, ids[0]] == MEDIUM.p_context[0, ids].min()
    assert scan.check(evidence).status == "fails"


def test_where_it_does_not_apply() -> None:
    evidence = flow("textbook")
    for changed, reason in (
        (replace(evidence, context=500), "contexts are sampled"),
        (replace(evidence, momentum=0.9), "with momentum"),
        (replace(evidence, t=evidence.t + 1), "begin at t = 0"),
    ):
        claim = scan.check(changed)
        assert (claim.status, reason in claim.reason) == ("not applicable", True)
