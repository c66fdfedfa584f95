"""Theorem 3 on tables made by hand: it can hold exactly, and it can fail."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from flows import NAMES, by_one_clock, deviation, judge, with_logits

IDENTITY, LOWER, UPPER, MONOTONE = EVERY = NAMES["theorem-3"]
judged = partial(judge, "theorem-3")


def test_one_clock_for_all_tokens_of_a_class_holds_exactly():
    claims = judged(by_one_clock())
    assert [claims[name].status for name in EVERY] == ["holds"] * 4
    assert deviation(claims["theorem-3-identity"]) < 1e-6  # of a growth ln χ that is 1e-8 at first
    assert deviation(claims[LOWER]) == deviation(claims[UPPER]) == deviation(claims[MONOTONE]) == 0


def test_tokens_that_rise_together_break_the_identity():
    """χ grows and r does not."""
    evidence = by_one_clock()
    z = evidence.z.copy()
    own = evidence.classes.distinct(0)
    z[:, 0, own] = z[:, 0, own].mean(-1, keepdims=True)
    claim = judged(with_logits(evidence, z))["theorem-3-identity"]
    assert claim.status == "fails"
    assert "class 0" in claim.reason
    assert deviation(claim) > 0.5


def test_a_token_that_takes_from_the_others_breaks_the_upper_bound():
    """Then not all distinct tokens rise, which is what the bound follows from: no verdict, but it is seen."""
    evidence = by_one_clock()
    z = evidence.z.copy()
    own = evidence.classes.distinct(1)
    z[:, 0, own[:-1]] *= -1
    claim = judged(with_logits(evidence, z))[UPPER]
    assert (claim.status, claim.observed) == ("not applicable", "fails")
    assert "distinct tokens rise: 0 against 1" in claim.reason
    assert claim.measured > claim.predicted
    assert f"token {own[-1]} of class 1" in claim.quantity


def test_a_wrong_sum_for_the_growth_breaks_the_bounds():
    """The upper bound is an identity: what fails it is a mistake of ours. A tenth of B_n, and ten times B_n."""
    evidence = by_one_clock()
    right = evidence.measured_growth
    vars(evidence)["measured_growth"] = 0.1 * right
    claims = judged(evidence)
    assert (claims[LOWER].status, claims[UPPER].status) == ("holds", "fails")
    vars(evidence)["measured_growth"] = 10 * right
    claims = judged(evidence)
    assert (claims[LOWER].status, claims[UPPER].status) == ("fails", "holds")
    assert claims[LOWER].measured < claims[LOWER].predicted


@pytest.mark.parametrize("name", [IDENTITY, LOWER, MONOTONE])
def test_an_early_violation_counts_as_much_as_a_late_one(name):
    """At an eighth of t₀ the logits are 1e-4 of what they become. Beside their largest values nothing would be seen."""
    evidence = by_one_clock()
    top = evidence.classes.distinct(0)[-1]
    at = int(np.argmax(evidence.t > evidence.t_snap / 8))
    z = evidence.z.copy()
    z[at, 0, top] *= 0.5  # half its way, and back at the next time
    assert z[at, 0, top] < 0.01 * z[-1, 0, top]
    assert judged(evidence)[name].status == "holds"
    claim = judged(with_logits(evidence, z))[name]
    assert claim.status == "fails"
    assert f"t = {evidence.t[at]:.4g}" in claim.reason


def test_rounding_is_no_violation():
    """Before attention has moved beyond rounding (1e-9 in double precision) nothing is judged."""
    evidence = by_one_clock()
    z = evidence.z * 1e-8 / evidence.z.max()
    z[1:] += 1e-12 * np.random.default_rng(0).normal(size=z[1:].shape) * (z[1:] != 0)
    assert evidence.resolution == 1e-9
    claims = judged(with_logits(evidence, z))
    assert claims[MONOTONE].status == "holds"
    single = dataclasses.replace(evidence, z=evidence.z.astype(np.float32).astype(np.float64))
    assert single.resolution == 1e-4


def test_a_dip_breaks_monotone_growth():
    evidence = by_one_clock()
    z = evidence.z.copy()
    top = evidence.classes.distinct(0)[-1]
    z[80, 0, top] -= 0.05 * np.ptp(z[:, 0, top])
    claim = judged(with_logits(evidence, z))["theorem-3-monotone"]
    assert claim.status == "fails"
    assert f"t = {evidence.t[80]:.4g}" in claim.reason
    assert claim.measured < claim.predicted


def test_a_rising_common_token_is_another_setting():
    evidence = by_one_clock()
    z = evidence.z.copy()
    z[:, 0, evidence.classes.common] *= -1
    claims = judged(with_logits(evidence, z))
    assert claims[LOWER].status == "not applicable"
    assert claims[LOWER].reason.endswith("common tokens fall: 0 against 1")
    assert claims[LOWER].measured is not None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_fails(value):
    evidence = by_one_clock()
    z = evidence.z.copy()
    z[60:, 0, evidence.classes.distinct(0)] = value
    claims = judged(dataclasses.replace(evidence, z=z))
    assert [claims[name].status for name in EVERY] == ["fails"] * 4
    attention = evidence.attention.copy()
    attention[60:, 0] = value
    claims = judged(dataclasses.replace(evidence, attention=attention))
    assert [claims[name].status for name in EVERY] == ["fails"] * 4


def test_attention_too_small_for_a_double_is_no_agreement():
    evidence = by_one_clock()
    attention = evidence.attention.copy()
    attention[-1, 0, evidence.classes.distinct(0)[0]] = 0
    assert judged(dataclasses.replace(evidence, attention=attention))["theorem-3-identity"].status == "fails"
