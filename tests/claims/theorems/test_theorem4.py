"""Theorem 4: what the exact flow and SGD make of its premise and its conclusions, and why."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from flows import NAMES, assert_has_curve_and_numbers, deviation, flow_of, judge, strong_sgd, with_logits

from scansnap.claims.evidence import from_flow
from scansnap.claims.theorems import theorem4
from scansnap.claims.theorems.gradient_decomposition import coefficients
from scansnap.claims.theorems.theorem4_growth import predict
from scansnap.classes import SequenceClasses

PREMISE, GROWTH, TIME, RATES = EVERY = NAMES["theorem-4"]
judged = partial(judge, "theorem-4")
pytestmark = pytest.mark.usefixtures("each_run_once")


# --- what the exact flow says ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eta_y", "eta_z", "slope", "times", "time"),
    [
        (0.9, 0.02, -840, 8.4, 0.86),  # η_Y/η_Z = 45
        (0.9, 0.09, -223, 5.1, 0.77),  # 10
        (0.1, 0.002, -926, 8.6, 0.86),  # 50, slow: only η_Y/η_Z counts
    ],
)
def test_textbook(eta_y, eta_z, slope, times, time):
    """All assumptions are met. ξ/γ rises while the common token falls: the exponent comes out negative, and growth
    is many times what the earliest times predict. The time of the transition is right within a factor of two.
    """
    evidence = flow_of("textbook", eta_y, eta_z)
    assert all(a.met for a in evidence.assumptions.values())
    claims = judged(evidence)
    assert [claims[name].status for name in EVERY] == ["fails", "fails", "holds", "holds"]
    assert claims[PREMISE].measured == pytest.approx(slope, rel=0.03)
    assert claims[GROWTH].measured / claims[GROWTH].predicted == pytest.approx(times, rel=0.03)
    assert claims[TIME].measured / evidence.t_snap == pytest.approx(time, rel=0.03)
    assert claims[TIME].predicted / evidence.t_snap == pytest.approx(0.61, rel=0.03)  # what Eq. 14 would read
    assert deviation(claims[RATES]) < 1e-5
    assert "instead of 4" in claims[PREMISE].reason
    assert "the exponent that fits best is none (at best -" in claims[GROWTH].quantity


def test_long_after_t0_growth_is_doubly_logarithmic_in_the_end():
    """The slope of B_n in ln ln t rises to 10¹⁰ t₀ and falls after it; χ is far below ln t throughout."""
    classes = SequenceClasses.textbook()
    evidence = from_flow(classes, eta_y=0.9, eta_z=0.02, t_end=1e20 * 33.8, rtol=1e-7, with_y=False)
    growth, chi = theorem4.check_late(evidence)
    assert (growth.status, chi.status) == ("holds", "holds")
    assert growth.measured == pytest.approx(0.123, rel=0.1)
    assert chi.measured == pytest.approx(0.10, rel=0.1)
    clock = np.log(np.maximum(evidence.t, 1))[:, None, None]
    faster = with_logits(evidence, evidence.z * (1 + clock) ** 2)  # attention that never snaps
    assert [claim.status for claim in theorem4.check_late(faster)] == ["fails", "fails"]
    assert theorem4.check_late(flow_of("textbook", 0.9, 0.02))[0].status == "not applicable"


def test_why_the_premise_fails():
    """β_nn' is not E'_nn' but what the other class takes of the error, 1/M at first and growing with e^{ρu}."""
    evidence = flow_of("textbook", 0.9, 1e-4)
    later = evidence.t > 0.1 * evidence.t_scan
    gamma_iota, xi = coefficients(evidence, 0, np.flatnonzero(later))
    rho, x = evidence.overlap[later, 0, 1], (evidence.overlap[:, 0, 1] * evidence.gap[:, 0])[later]
    beta = (np.exp(x) + np.expm1(x) / x - 1) / evidence.classes.vocab_size
    np.testing.assert_allclose(xi / gamma_iota, rho * beta, rtol=0.05)
    assert (xi / gamma_iota)[-1] < 0.1 * rho[-1] ** 2  # what β = E' gives


@pytest.mark.parametrize(
    ("preset", "eta_y", "eta_z"), [("textbook", 0.9, 0.02), ("strong", 0.9, 0.02), ("strong", 0.9, 0.5)]
)
def test_nor_is_the_normaliser_constant(preset, eta_y, eta_z):
    """d ln ρ²/dz is 4(1 − f²) + (4/K) Σ f_l⁴/Σ f_l², not 4, as far as ξ_n is the same for all distinct tokens."""
    evidence = flow_of(preset, eta_y, eta_z)
    classes = evidence.classes
    f, common, own = evidence.f[:, 0] ** 2, classes.common[0], classes.distinct(0)
    expected = 4 * (1 - f[:, common]) + 4 / classes.n_classes * (f[:, own] ** 2).sum(-1) / f[:, own].sum(-1)
    later = evidence.t > 0.1 * evidence.t_scan
    slope = np.gradient(2 * np.log(evidence.overlap[later, 0, 1]), evidence.z[later, 0, common])
    np.testing.assert_allclose(slope, expected[later], rtol=0.1)
    assert np.ptp(np.append(expected, 4.0)) > 0.4


def test_the_premise_can_hold_outside_the_assumptions():
    """Strong overlap, a small vocabulary and attention faster than the decoder."""
    claims = judged(flow_of("strong", 0.2, 1.0))
    assert claims[PREMISE].status == "not applicable"
    assert claims[PREMISE].observed == "holds"
    assert claims[PREMISE].measured == pytest.approx(4.85, abs=0.1)
    assert claims[GROWTH].observed == "fails"  # ξ/γ still rises at first
    assert claims[TIME].observed == "holds"


def test_syn_small_is_another_setting():
    claims = judged(flow_of("syn-small", 0.9, 0.02))
    assert {claims[name].status for name in (PREMISE, GROWTH, TIME)} == {"not applicable"}
    assert claims[RATES].status == "holds"  # algebra asks for nothing
    assert claims[PREMISE].reason == "one common token: there are 10"
    assert claims[PREMISE].measured is None
    assert [claims[name].observed for name in (GROWTH, TIME, RATES)] == ["fails", "fails", "holds"]
    assert claims[TIME].measured == pytest.approx(44, rel=0.05)  # late: ρ = 0.72
    assert "one query: 2 against 1" in claims[TIME].reason


def test_attention_faster_than_the_decoder():
    """Attention takes the overlap away before the decoder has learnt."""
    claims = judged(flow_of("strong", 0.2, 2.0))
    assert "fast decoder" in claims[PREMISE].reason
    assert claims[PREMISE].observed == "fails"
    assert claims[PREMISE].measured == pytest.approx(5.5, abs=0.1)
    evidence = flow_of("strong", 0.2, 2.0)
    assert claims[TIME].measured < 0.7 * evidence.t_snap
    assert claims[TIME].measured == pytest.approx(claims[TIME].predicted, rel=0.15)  # as Eq. 14 has it for its C₀


def test_curves_and_numbers():
    for claim in judged(flow_of("textbook", 0.9, 0.02)).values():
        assert_has_curve_and_numbers(claim)


# --- what SGD says -----------------------------------------------------------------------------------------------


def test_sgd_with_noise():
    claims = judged(strong_sgd())
    assert {claim.status for claim in claims.values()} == {"not applicable"}
    assert [claims[name].observed for name in EVERY] == ["fails", "fails", "fails", "holds"]
    assert claims[TIME].measured / strong_sgd().t_snap == pytest.approx(2.3, abs=0.3)
    assert claims[TIME].interval is not None  # of one run: from its own noise
    assert [claims[name].kind for name in EVERY] == ["measured"] * 4
    assert 0.01 < deviation(claims[RATES]) < 0.06  # step size
    assert "long sequences" in claims[GROWTH].reason


def test_sgd_without_noise_is_close_to_the_flow():
    quiet, exact = judged(strong_sgd(context=math.inf, batch_size=None)), judged(flow_of("strong", 0.9, 0.2))
    assert [quiet[name].observed for name in EVERY] == [exact[name].observed for name in EVERY]
    assert quiet[TIME].measured == pytest.approx(exact[TIME].measured, rel=0.1)
    assert quiet[GROWTH].measured == pytest.approx(exact[GROWTH].measured, rel=0.1)


def test_large_steps_are_too_few():
    claims = judged(strong_sgd(eta_y=8.0, eta_z=0.8, t_end=30, context=math.inf, batch_size=None))
    assert "too few steps" in claims[RATES].reason


# --- classes it does not speak about -----------------------------------------------------------------------------

ODD = {
    "one class": SequenceClasses([[0.5, 0.3, 0.2, 0, 0]], query=[3], next_token=[4]),
    "only common": SequenceClasses([[0.5, 0.5, 0, 0, 0], [0.2, 0.8, 0, 0, 0]], query=[2, 2], next_token=[3, 4]),
    "no common": SequenceClasses([[0.7, 0.3, 0, 0, 0], [0, 0, 0.6, 0.4, 0]], query=[4, 4], next_token=[0, 1]),
    "one token each": SequenceClasses(np.eye(2, 5), query=[2, 2], next_token=[3, 4]),
    "one token for all": SequenceClasses([[1.0, 0, 0, 0], [1.0, 0, 0, 0]], query=[1, 1], next_token=[2, 3]),
    "one class of it": SequenceClasses([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0]], query=[2, 2], next_token=[2, 3]),
    "every output right": SequenceClasses([[0.5, 0.5, 0], [0.5, 0, 0.5], [0.4, 0.3, 0.3]], [0, 0, 0], [0, 1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_odd_classes_get_a_plain_answer(kind):
    claims = [*judged(from_flow(ODD[kind], eta_y=0.9, eta_z=0.02, t_end=60.0, n_times=30)).values()]
    assert [claim.name for claim in claims] == EVERY
    for claim in claims:
        # the algebra of the rates holds wherever there is growth to speak of
        assert claim.status == "not applicable" or (claim.name, claim.status) == (RATES, "holds")
        assert claim.reason or claim.status == "holds"
        for number in (claim.measured, claim.predicted, claim.margin):
            assert number is None or not math.isnan(number)


def test_unequal_classes_share_what_the_common_token_loses():
    """The theorem gives each class its share p_n. In the flow the rarer class gains more: outputs of frequent classes
    are what it has to tell apart from its own, so its ξ_n is larger by more than p_n is smaller.
    """
    classes = SequenceClasses.textbook()
    tokens, probs = zip(*(classes.support(n) for n in range(2)), strict=True)
    skewed = SequenceClasses.from_support(
        tokens, probs, vocab_size=classes.vocab_size, query=classes.query, next_token=classes.next_token,
        p_class=[0.8, 0.2],
    )  # fmt: skip
    evidence = from_flow(skewed, eta_y=0.9, eta_z=0.02, t_end=50.0, n_times=30, rtol=1e-7)
    assert [predict(evidence, n).share for n in range(2)] == pytest.approx([0.8, 0.2])
    frequent, rare = evidence.measured_growth[-1]
    assert rare > 4 * frequent
    assert judged(evidence)[GROWTH].status == "not applicable"
