"""Theorem 4 on tables made by hand: it can hold exactly, and it can fail."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from flows import NAMES, as_premised, deviation, flow_of, judge

from scansnap.claims.theorems import theorem4_time
from scansnap.claims.theorems.gradient_decomposition import coefficients
from scansnap.claims.theorems.theorem4_growth import predict

PREMISE, GROWTH, TIME, RATES = EVERY = NAMES["theorem-4"]
judged = partial(judge, "theorem-4")
pytestmark = pytest.mark.usefixtures("each_run_once")


@pytest.mark.parametrize(("c0", "eta_z"), [(10.0, 0.09), (1e3, 0.02), (3.0, 0.02)])
def test_where_the_premise_is_true_so_is_the_theorem(c0, eta_z):
    evidence = as_premised(4.0, c0, eta_z)
    claims = judged(evidence)
    assert [claims[name].status for name in (PREMISE, GROWTH, TIME)] == ["holds", "holds", "holds"]
    assert claims[PREMISE].measured == pytest.approx(4, abs=0.2)
    assert deviation(claims[GROWTH]) < 0.02  # C₀ is read where attention has moved a little
    assert deviation(claims[TIME]) < 0.01  # although the estimator reads 0.53 to 0.58 t₀
    assert claims[TIME].measured < 0.6 * evidence.t_snap
    assert predict(evidence, 0).c0 == pytest.approx(c0, rel=0.03)


def test_without_gradients_the_growth_is_judged_all_the_same():
    evidence = dataclasses.replace(as_premised(), g=None)
    claims = judged(evidence)
    assert claims[PREMISE].reason == "the record holds no gradient: record y"
    assert claims[GROWTH].status == "holds"
    assert predict(evidence, 1).c0 == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize(("exponent", "status"), [(4.0, "holds"), (4.6, "holds"), (2.0, "fails"), (8.0, "fails")])
def test_another_exponent_is_found(exponent, status):
    claims = judged(as_premised(exponent, 1.0))
    assert claims[PREMISE].status == claims[GROWTH].status == status
    assert claims[PREMISE].measured == pytest.approx(exponent, rel=0.03)
    found = float(claims[GROWTH].quantity.partition("fits best is ")[2].rstrip(")"))
    assert found == pytest.approx(exponent, rel=0.1)


def test_growth_of_another_size_fails():
    evidence = as_premised()
    claims = judged(dataclasses.replace(evidence, z=2 * evidence.z))
    assert claims[GROWTH].status == "fails"
    assert claims[GROWTH].measured == pytest.approx(2 * claims[GROWTH].predicted, rel=0.05)
    assert "class" in claims[GROWTH].reason
    assert "t₀)" in claims[GROWTH].reason


def test_the_premise_has_its_attention():
    """Built from Eqs. 13 and 14 and the C₀ found: the tables of ``as_premised``, which were integrated."""
    evidence = as_premised()
    found = theorem4_time.premised_attention(
        evidence, [predict(evidence, n) for n in range(2)], np.arange(len(evidence.t))
    )
    assert np.ptp(evidence.attention, axis=0).max() > 0.05
    np.testing.assert_allclose(found, evidence.attention, atol=5e-4)  # C₀ is 1% off


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_transition_at_another_time_fails(factor):
    """By more than a factor of two from what the estimator reads where the premise is true, earlier or later."""
    evidence = as_premised(4.0, 1e3, 0.02)
    other = judged(dataclasses.replace(evidence, t=factor * evidence.t))[TIME]
    assert other.status == "fails"
    assert other.measured == pytest.approx(factor * other.predicted, rel=0.1)
    assert f"{other.measured:.4g}" in other.reason


def test_a_class_without_c0_has_no_time():
    evidence = as_premised()
    claim = judged(dataclasses.replace(evidence, g=-evidence.g))[TIME]
    assert (claim.status, claim.margin) == ("not applicable", None)
    assert "has no C₀" in claim.reason


def test_a_transition_that_does_not_come_fails():
    """Attention that speeds up to the end of a record of 12 t₀."""
    evidence = as_premised()
    z = np.zeros_like(evidence.z)
    z[:, 0] = evidence.z[-1, 0] * (evidence.t[:, None] / evidence.t[-1]) ** 2
    weight = evidence.classes.p_context * np.exp(z)
    claim = judged(dataclasses.replace(evidence, z=z, attention=weight / weight.sum(-1, keepdims=True)))[TIME]
    assert claim.status == "fails"
    assert claim.measured >= 10 * claim.predicted
    assert "later than that" in claim.quantity


def test_growth_that_depends_on_the_rates_fails():
    evidence = flow_of("textbook", 0.9, 0.02)
    claim = judged(dataclasses.replace(evidence, z=1.2 * evidence.z))[RATES]
    assert claim.status == "fails"
    assert claim.predicted == pytest.approx(1.2 * claim.measured, rel=1e-4)


def test_a_speed_that_is_not_positive_fails():
    evidence = as_premised()
    claims = judged(dataclasses.replace(evidence, g=-evidence.g))
    assert claims[PREMISE].observed == claims[GROWTH].observed == "fails"
    g = evidence.g.copy()
    common = evidence.classes.common[0]
    late = np.arange(90, len(g))
    g[late, :, common] += 2 * coefficients(evidence, 0, late)[1][:, None] / evidence.f[late, :, common]  # ξ becomes −ξ
    claim = judged(dataclasses.replace(evidence, g=g))[PREMISE]
    assert claim.status == "fails"
    assert "not positive" in claim.reason
    assert claim.measured < 0


def test_what_is_not_a_number_fails():
    evidence = as_premised()
    g, z = evidence.g.copy(), evidence.z.copy()
    g[80:] = np.nan
    assert judged(dataclasses.replace(evidence, g=g))[PREMISE].status == "fails"
    z[80:, 0, evidence.classes.distinct(0)] = np.nan
    assert judged(dataclasses.replace(evidence, z=z))[GROWTH].status == "fails"


def test_short_records_are_not_judged():
    evidence = flow_of("textbook", 0.9, 0.02)
    late = {name: getattr(evidence, name)[10:] for name in ("t", "z", "attention", "g", "gap")}
    claims = judged(dataclasses.replace(evidence, **late))
    assert "begins at t =" in claims[GROWTH].reason
    few = {name: getattr(evidence, name)[[0, 30, 50]] for name in ("t", "z", "attention", "g", "gap")}
    claims = judged(dataclasses.replace(evidence, **few))
    assert {claim.status for claim in claims.values()} == {"not applicable"}
    assert all("recorded times" in claims[name].reason or "record does not" in claims[name].reason for name in EVERY)
