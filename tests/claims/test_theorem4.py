"""Theorem 4: what the exact flow makes of its premise and its conclusions, why, and that the checks can tell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap import theory
from scansnap.claims import theorem4, theorem4_rates
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory
from scansnap.claims.theorem3 import coefficients, growth
from scansnap.claims.theorem4 import predict
from scansnap.claims.theorem4_rates import growth_at_snap
from scansnap.classes import SequenceClasses
from scansnap.measure.snap import snap_time

PREMISE, GROWTH, TIME, RATES = NAMES = (
    "theorem-4-premise", "theorem-4-growth", "theorem-4-time", "theorem-4-rates",
)  # fmt: skip


def snap(classes: SequenceClasses, eta_y: float) -> float:
    return float(theory.t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))


@cache
def flow_of(preset: str, eta_y: float, eta_z: float) -> Evidence:
    made = {"strong": lambda: SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)}
    classes = made[preset]() if preset in made else SequenceClasses.preset(preset)
    t_end = 12 * snap(classes, eta_y)
    return from_flow(classes, eta_y=eta_y, eta_z=eta_z, t_end=t_end, n_times=60, rtol=1e-7)


@pytest.fixture(autouse=True, scope="module")
def each_run_once() -> Iterator[None]:
    """B_n(t₀) of the same classes and rates is asked for again and again."""
    known: dict[tuple[object, ...], np.ndarray] = {}

    def remembered(classes: SequenceClasses, **rates: object) -> np.ndarray:
        key = (id(classes), *rates.items())
        if key not in known:
            known[key] = growth_at_snap(classes, **rates)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorem4_rates, "growth_at_snap", remembered)
        yield


def all_of(evidence: Evidence) -> list[Claim]:
    return [*theorem4.check(evidence), theorem4_rates.check(evidence)]


def judged(evidence: Evidence) -> dict[str, Claim]:
    claims = {claim.name: claim for claim in all_of(evidence)}
    assert tuple(claims) == NAMES
    return claims


def deviation(claim: Claim) -> float:
    assert claim.margin is not None
    assert claim.tolerance is not None
    return (1 - claim.margin) * claim.tolerance


@cache
def as_premised(exponent: float = 4.0, c0: float = 10.0, eta_z: float = 0.09) -> Evidence:
    """Tables that obey Eq. 13 with the given exponent: ξ = γ e^{qz}/C₀, ż = −η_Z ξ, and ż_l = η_Z p_n f_l² ξ."""
    classes = SequenceClasses.synthetic(common=1, distinct=3, common_weight=0.3, unused=10_000)
    eta_y, k, m = 0.9, classes.n_classes, classes.vocab_size
    t = np.concatenate([[0.0], np.geomspace(1e-2, 12 * snap(classes, eta_y), 120)])
    setting = {"eta_y": eta_y, "n_classes": k, "vocab_size": m}
    total = theory.growth(t, eta_z=eta_z, c0=c0, exponent=exponent, **setting)  # −z of the common token
    p = classes.p_context[0, classes.support(0)[0]]  # the common token first

    def rise(b: float, z: np.ndarray) -> np.ndarray:
        weight = (p * np.exp(np.concatenate([[-k * b], z]))) ** 2
        return weight[1:] / weight.sum()

    path = solve_ivp(rise, (0, total[-1] / k), np.zeros(3), t_eval=total / k, rtol=1e-11, atol=1e-13).y.T
    z = np.zeros((len(t), 1, m))
    z[:, 0, classes.common] = -total[:, None]
    for n in range(k):
        z[:, 0, classes.distinct(n)] = path
    weight = classes.p_context * np.exp(z)
    attention = weight / weight.sum(-1, keepdims=True)
    f = attention / np.linalg.norm(attention, axis=-1, keepdims=True)
    gamma = theory.gamma(t, **setting)
    xi = gamma * np.exp(-exponent * total) / c0
    g = gamma[:, None, None] * f
    common = classes.common[0]
    g[:, :, common] -= xi[:, None] / f[:, :, common]  # so that f·g = γ − ξ
    return Evidence(classes, eta_y, eta_z, "flow", math.inf, t, z, attention, g, None)


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
    assert [claims[name].status for name in NAMES] == ["fails", "fails", "holds", "holds"]
    assert claims[PREMISE].measured == pytest.approx(slope, rel=0.03)
    assert claims[GROWTH].measured / claims[GROWTH].predicted == pytest.approx(times, rel=0.03)
    assert claims[TIME].measured / evidence.t_snap == pytest.approx(time, rel=0.03)
    assert claims[TIME].predicted / evidence.t_snap == pytest.approx(0.61, rel=0.03)  # what Eq. 14 would read
    assert deviation(claims[RATES]) < 1e-5
    assert "instead of 4" in claims[PREMISE].why
    assert "the exponent that fits best is none (at best -" in claims[GROWTH].quantity


def test_why_the_premise_fails():
    """β_nn' is not E'_nn' but what the other class takes of the error, 1/M at first and growing with e^{ρu}."""
    evidence = flow_of("textbook", 0.9, 1e-4)
    later = evidence.t > 0.1 * evidence.t_scan
    own, xi = (values[later] for values in coefficients(evidence, 0))
    rho, x = evidence.overlap[later, 0, 1], (evidence.overlap[:, 0, 1] * evidence.gap[:, 0])[later]
    beta = (np.exp(x) + np.expm1(x) / x - 1) / evidence.classes.vocab_size
    np.testing.assert_allclose(xi / own, rho * beta, rtol=0.05)
    assert (xi / own)[-1] < 0.1 * rho[-1] ** 2  # what β = E' gives


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
    assert claims[PREMISE].why == "one common token: there are 10"
    assert claims[PREMISE].measured is None
    assert [claims[name].observed for name in (GROWTH, TIME, RATES)] == ["fails", "fails", "holds"]
    assert claims[TIME].measured == pytest.approx(44, rel=0.05)  # late: ρ = 0.72
    assert "one query: 2 against 1" in claims[TIME].why


def test_attention_faster_than_the_decoder():
    """Attention takes the overlap away before the decoder has learnt."""
    claims = judged(flow_of("strong", 0.2, 2.0))
    assert "fast decoder" in claims[PREMISE].why
    assert claims[PREMISE].observed == "fails"
    assert claims[PREMISE].measured == pytest.approx(5.5, abs=0.1)
    evidence = flow_of("strong", 0.2, 2.0)
    assert claims[TIME].measured < 0.7 * evidence.t_snap
    assert claims[TIME].measured == pytest.approx(claims[TIME].predicted, rel=0.15)  # as Eq. 14 has it for its C₀


def test_curves_and_numbers():
    for claim in judged(flow_of("textbook", 0.9, 0.02)).values():
        curve = claim.curve
        assert curve is not None
        assert curve.x.shape == curve.measured.shape == curve.predicted.shape
        assert np.isfinite([curve.measured, curve.predicted]).all()
        assert math.isfinite(claim.measured)
        assert math.isfinite(claim.predicted)
        assert claim.quantity


# --- it can hold exactly, and it can fail ------------------------------------------------------------------------


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
    assert claims[PREMISE].why == "the record holds no gradient: record y"
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
    assert "class" in claims[GROWTH].why
    assert "t₀)" in claims[GROWTH].why


def test_the_premise_has_its_attention():
    """Built from Eqs. 13 and 14 and the C₀ found: the tables of ``as_premised``, which were integrated."""
    evidence = as_premised()
    found = theorem4.premised_attention(evidence, [predict(evidence, n) for n in range(2)], np.arange(len(evidence.t)))
    assert np.ptp(evidence.attention, axis=0).max() > 0.05
    np.testing.assert_allclose(found, evidence.attention, atol=5e-4)  # C₀ is 1% off


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_transition_at_another_time_fails(factor):
    """By more than a factor of two from what the estimator reads where the premise is true, earlier or later."""
    evidence = as_premised(4.0, 1e3, 0.02)
    other = judged(dataclasses.replace(evidence, t=factor * evidence.t))[TIME]
    assert other.status == "fails"
    assert other.measured == pytest.approx(factor * other.predicted, rel=0.1)
    assert f"{other.measured:.4g}" in other.why


def test_a_class_without_c0_has_no_time():
    evidence = as_premised()
    claim = judged(dataclasses.replace(evidence, g=-evidence.g))[TIME]
    assert (claim.status, claim.margin) == ("not applicable", None)
    assert "has no C₀" in claim.why


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
    g[90:, :, common] += 2 * (coefficients(evidence, 0)[1][:, None] / evidence.f[:, :, common])[90:]  # ξ becomes −ξ
    claim = judged(dataclasses.replace(evidence, g=g))[PREMISE]
    assert claim.status == "fails"
    assert "not positive" in claim.why
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
    assert "begins at t =" in claims[GROWTH].why
    few = {name: getattr(evidence, name)[[0, 30, 50]] for name in ("t", "z", "attention", "g", "gap")}
    claims = judged(dataclasses.replace(evidence, **few))
    assert {claim.status for claim in claims.values()} == {"not applicable"}
    assert all("recorded times" in claims[name].why or "record does not" in claims[name].why for name in NAMES)


# --- rates -------------------------------------------------------------------------------------------------------


def test_the_flow_depends_on_the_ratio_of_the_rates_alone():
    classes = SequenceClasses.syn_small()
    once, twice = (growth_at_snap(classes, eta_y=c, eta_z=0.1 * c) for c in (0.5, 1.0))
    np.testing.assert_allclose(once, twice, rtol=1e-6)
    other = growth_at_snap(classes, eta_y=1.0, eta_z=0.2)
    assert (other > 1.5 * once).all()
    # so the claim is algebra there, and a measurement in SGD
    assert judged(flow_of("textbook", 0.9, 0.02))[RATES].kind == "formula"
    assert judged(sgd(context=math.inf, batch_size=None))[RATES].kind == "measured"


@pytest.mark.parametrize(("half", "status"), [(0.05, "holds"), (0.2, "undecided"), (None, "holds")])
def test_a_time_whose_interval_reaches_across_the_tolerance_is_undecided(half, status, monkeypatch):
    """Later by a factor of 1.6, with a 68% interval of so much in ln t on either side; the flow has none."""
    evidence = dataclasses.replace(as_premised(4.0, 1e3, 0.02), sampled=half is not None)

    def measured(data, classes):
        found = snap_time(data, classes)
        calls.append(data)
        if len(calls) == 1:  # the run; then comes what Eq. 14 reads
            found["t_snap"] *= 1.6
            found["t_snap_low"] = found["t_snap"] * math.exp(-(half or 0.2))
            found["t_snap_high"] = found["t_snap"] * math.exp(half or 0.2)
        return found

    calls = []
    monkeypatch.setattr(theorem4, "snap_time", measured)
    claim = theorem4.check(evidence)[2]
    assert claim.observed == status, claim
    assert (claim.interval is None) == (half is None)


def test_the_time_is_pooled_over_seeds():
    """Eight seeds together: one curve, with an interval over them."""
    classes = SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)
    data = ss.simulate(
        classes, ss.grid(eta_y=0.9, eta_z=0.2, seed=range(8)), steps=math.floor(10 * snap(classes, 0.9)),
        record="log:40", variables=["z", "attention"], dtype="float64", device="cpu",
    )  # fmt: skip
    one, eight = (theorem4.check(from_trajectory(d, classes))[2] for d in (data.isel(run=[0]), data))
    assert eight.measured == pytest.approx(one.measured, rel=0.15)
    assert eight.measured != one.measured
    low, high = eight.interval
    assert low < abs(math.log(eight.measured / eight.predicted)) < high


def test_sgd_shows_its_step_size():
    """At η_Y = 0.9 less than a tenth, at η_Y = 4 a fifth: t₀ is then 3 steps."""
    classes = SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)
    exact = growth_at_snap(classes, eta_y=0.9, eta_z=0.09)[0]
    off = [growth_at_snap(classes, eta_y=c, eta_z=0.1 * c, source="sgd")[0] / exact - 1 for c in (0.225, 0.9, 4.0)]
    np.testing.assert_allclose(off, [-0.016, -0.06, -0.266], atol=0.005)


# --- what SGD says -----------------------------------------------------------------------------------------------


def sgd(eta_y: float = 0.9, eta_z: float = 0.2, t_end: float = 10, **settings) -> Evidence:
    classes = SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)
    data = ss.simulate(
        classes, eta_y=eta_y, eta_z=eta_z, seed=0, steps=math.ceil(t_end * snap(classes, eta_y)), record="log:40",
        variables=["z", "attention", "y"], dtype="float64", device="cpu", **settings,
    )  # fmt: skip
    return from_trajectory(data, classes)


def test_sgd_with_noise():
    claims = judged(sgd())
    assert {claim.status for claim in claims.values()} == {"not applicable"}
    assert [claims[name].observed for name in NAMES] == ["fails", "fails", "fails", "holds"]
    assert claims[TIME].measured / sgd().t_snap == pytest.approx(2.3, abs=0.3)
    assert claims[TIME].interval is not None  # of one run: from its own noise
    assert [claims[name].kind for name in NAMES] == ["measured"] * 4
    assert 0.01 < deviation(claims[RATES]) < 0.06  # step size
    assert "long sequences" in claims[GROWTH].why


def test_sgd_without_noise_is_close_to_the_flow():
    quiet, exact = judged(sgd(context=math.inf, batch_size=None)), judged(flow_of("strong", 0.9, 0.2))
    assert [quiet[name].observed for name in NAMES] == [exact[name].observed for name in NAMES]
    assert quiet[TIME].measured == pytest.approx(exact[TIME].measured, rel=0.1)
    assert quiet[GROWTH].measured == pytest.approx(exact[GROWTH].measured, rel=0.1)


def test_large_steps_are_too_few():
    claims = judged(sgd(eta_y=8.0, eta_z=0.8, t_end=30, context=math.inf, batch_size=None))
    assert "too few steps" in claims[RATES].why


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
    claims = all_of(from_flow(ODD[kind], eta_y=0.9, eta_z=0.02, t_end=60.0, n_times=30))
    assert [claim.name for claim in claims] == list(NAMES)
    for claim in claims:
        # the algebra of the rates holds wherever there is growth to speak of
        assert claim.status == "not applicable" or (claim.name, claim.status) == (RATES, "holds")
        assert claim.why or claim.status == "holds"
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
    frequent, rare = growth(evidence)[-1]
    assert rare > 4 * frequent
    assert judged(evidence)[GROWTH].status == "not applicable"
