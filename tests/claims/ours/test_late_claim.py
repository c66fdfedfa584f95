"""The late laws on flows: they hold where they speak, and each fails on the flow of another one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.claims.ours import late
from scansnap.claims.ours.symmetric import SymmetricClasses, find_symmetry

RATES = {"eta_y": 0.9, "eta_z": 0.45}


def two_classes() -> ss.SequenceClasses:
    p = np.zeros((2, 44))
    p[:, 0] = p[0, 1] = p[1, 2] = 0.5
    return ss.SequenceClasses(p_context=p, query=[3, 3], next_token=[4, 5])


CLASSES = two_classes()
FAMILY = find_symmetry(CLASSES)
T0 = float(ss.theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=44))


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return from_flow(CLASSES, **RATES, t_end=1e25 * T0, rtol=1e-8, with_y=False)


@pytest.fixture(scope="module")
def speeds() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    return late.companions(CLASSES, FAMILY, **RATES, t_end=1e12 * T0)


def test_the_l2_law_holds_where_every_token_is_held(evidence: Evidence) -> None:
    claim = late.judge_l2(evidence, FAMILY)
    assert claim.status == "holds", claim
    assert 0.25 < claim.measured < 0.4
    assert "κ = −dz_c/d ln u is 0.1" in claim.quantity
    assert claim.measured != pytest.approx(ss.theory.late_exponent(0.12, n_classes=2), rel=0.15)  # first order is not


def test_without_a_norm_it_is_twice_ln_ln_t(speeds: tuple) -> None:
    claim = late.judge_none(*speeds[0], T0)
    assert claim.status == "holds", claim
    assert claim.measured == pytest.approx(2.03, abs=0.02)


def test_with_a_fixed_decoder_it_is_ln_t(speeds: tuple) -> None:
    claim = late.judge_fixed(*speeds[1], T0)
    assert claim.status == "holds", claim
    assert claim.measured == pytest.approx(1, abs=1e-3)


def test_each_fails_on_the_flow_of_another(evidence: Evidence, speeds: tuple) -> None:
    """The controls: no norm is not l2, a decoder that stands still not one that learns, and the reverse."""
    other = ss.flow(CLASSES, **RATES, t=evidence.t[1:], norm="none", variables=("z", "attention", "gap"))
    without = replace(evidence, t=other.t.values, z=other.z.values, attention=other.attention.values,
                      gap=other.gap.values)  # fmt: skip
    assert late.judge_l2(without, FAMILY).observed == "fails"
    assert late.judge_none(*speeds[1], T0).status == "fails"
    assert late.judge_fixed(*speeds[0], T0).status == "fails"
    l2 = ss.flow(CLASSES, **RATES, t=speeds[0][0], variables=("z_rate",))
    speed = late.speed_per_log(l2.z_rate.values, l2.t.values, FAMILY)
    assert late.judge_none(l2.t.values, speed, T0).status == "fails"
    assert late.judge_fixed(l2.t.values, speed, T0).status == "fails"


def test_the_exponent_does_not_ask_for_units() -> None:
    x = np.linspace(10, 40, 50)
    for kappa, b in ((2.0, 0.0), (2.0, -7.0), (0.3, 5.0)):
        assert late.loglog_exponent(x, kappa / (x - b)) == pytest.approx(kappa)
    assert late.loglog_exponent(x, np.ones_like(x)) > 1e6


def test_where_it_does_not_speak_it_says_so(evidence: Evidence) -> None:
    short = ss.verify(CLASSES, **RATES, checks=["late"])
    assert {claim.status for claim in short} == {"not applicable"}
    assert "late times begin at 1e+06 t₀" in short["late-none"].reason
    many = ss.verify(ss.SequenceClasses.syn_small(), **RATES, t_end=1e7 * T0, checks=["late"])
    assert all("there are 2 queries, not one" in claim.reason for claim in many)
    early = np.flatnonzero(evidence.t <= 1e10 * T0)
    parts = {name: getattr(evidence, name)[early] for name in ("t", "z", "attention", "gap")}
    claim = late.judge_l2(replace(evidence, **parts), FAMILY)
    assert claim.status == "not applicable"
    assert "memory" in claim.reason


def test_the_symmetric_family_is_recognised() -> None:
    assert isinstance(FAMILY, SymmetricClasses)
    assert (FAMILY.common, FAMILY.tokens[0, 0]) == (0, 1)
    assert isinstance(find_symmetry(ss.SequenceClasses.preset("textbook")), SymmetricClasses)
    assert isinstance(find_symmetry(ss.SequenceClasses.syn_medium(3)), str)
    p = CLASSES.p_context.copy()
    p[0, 0], p[0, 1] = 0.4, 0.6
    assert isinstance(find_symmetry(ss.SequenceClasses(p_context=p, query=[3, 3], next_token=[4, 5])), str)


@pytest.mark.integration
@pytest.mark.parametrize(("k", "m", "common", "ratio"), [(3, 60, 0.5, 2), (2, 500, 0.5, 10), (2, 80, 0.7, 3)])
def test_the_law_without_a_norm_in_families_its_bounds_were_not_chosen_on(
    k: int, m: int, common: float, ratio: float
) -> None:
    p = np.zeros((k, m))
    p[:, 0], p[np.arange(k), np.arange(1, k + 1)] = common, 1 - common
    classes = ss.SequenceClasses(p_context=p, query=[m - 1] * k, next_token=range(k + 1, 2 * k + 1))
    t0 = float(ss.theory.t_snap(eta_y=0.9, n_classes=k, vocab_size=m))
    family = find_symmetry(classes)
    assert isinstance(family, SymmetricClasses)
    free, fixed = late.companions(classes, family, 0.9, 0.9 / ratio, t_end=1e12 * t0)
    assert late.judge_none(*free, t0).status == "holds"
    with_y_fixed = late.judge_fixed(*fixed, t0)
    if common > 0.5:  # the votes of t₀ are for the common token: there the gap falls as −ln t, and the claim says so
        assert with_y_fixed.status == "fails"
        assert with_y_fixed.measured == pytest.approx(-1, abs=1e-3)
    else:
        assert with_y_fixed.status == "holds"
