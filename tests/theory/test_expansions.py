"""The expansions tend to the exact values at the rate they should; the times are what the paper says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from refusals import refused
from scansnap import theory

RATES = {"eta_y": 0.5, "n_classes": 10, "vocab_size": 1000}
BOTH_RATES = dict(RATES, eta_z=0.2)
EARLY = {"eta_y": 0.5, "n_classes": 10}


def slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def test_times_scale_as_printed() -> None:
    assert theory.t_scan(**RATES) == pytest.approx(10 * np.log(1000) / 0.5)
    assert theory.t_snap(**RATES) == pytest.approx(2 * theory.t_scan(**RATES))
    assert theory.t_snap(**RATES, delta=0.3) == pytest.approx(2.6 * theory.t_scan(**RATES))
    assert theory.t_snap(eta_y=[0.5, 1, 2, 5], n_classes=10, vocab_size=1000).shape == (4,)
    assert type(theory.t_snap(**RATES)) is float


@pytest.mark.parametrize("vocab_size", [4, 10, 100, 1000, 10**6])
def test_snap_delta_is_where_the_exponential_takes_over(vocab_size: int) -> None:
    root = brentq(lambda u: u - np.log(vocab_size - 1) - np.log(u), 1 + 1e-9, 10 * np.log(vocab_size), xtol=1e-14)
    delta = theory.snap_delta(vocab_size)
    assert (1 + delta) * np.log(vocab_size) == pytest.approx(root, rel=1e-12)
    # At t₀ with this δ the gap has passed the root, by less than one unit (Lemma 9).
    at_snap = theory.u(
        theory.t_snap(eta_y=1, n_classes=1, vocab_size=vocab_size, delta=delta), eta_y=1, vocab_size=vocab_size
    )
    assert root <= at_snap < root + 1


def test_snap_delta_has_the_order_the_theorem_states() -> None:
    m = np.array([1e2, 1e4, 1e8, 1e16, 1e64])
    ratio = theory.snap_delta(m) / (np.log(np.log(m)) / np.log(m))
    assert (np.diff(ratio) < 0).all()
    assert ratio[0] == pytest.approx(1.215, abs=1e-3)
    assert ratio[-1] == pytest.approx(1, abs=0.01)


def test_tiny_vocabularies_have_no_delta() -> None:
    assert theory.snap_delta(2) == 0
    np.testing.assert_array_equal(theory.snap_delta([2, 3, 3.7]), 0)
    assert theory.snap_delta(4) > 0


def test_gamma_early_is_the_first_order() -> None:
    """Exact/early → ((M−1)/M)² as t → 0, with an error that vanishes linearly in t."""
    limit = (999 / 1000) ** 2
    t = np.geomspace(1e-4, 1e-1, 10)
    deviation = 1 - theory.gamma(t, **RATES) / theory.gamma_early(t, **EARLY) / limit
    assert (deviation > 0).all()
    assert slope(t, deviation) == pytest.approx(1, abs=0.02)
    assert deviation[0] < 1e-7


def test_gamma_early_overstates_at_the_end_of_scanning() -> None:
    """At t₀′ the limit M → ∞ is 1/(1 + Ω) with Ω e^Ω = 1, approached as 1/ln M."""
    m = np.array([1e2, 1e3, 1e6, 1e12, 1e100])
    t = theory.t_scan(eta_y=1, n_classes=1, vocab_size=m)
    ratio = theory.gamma(t, eta_y=1, n_classes=1, vocab_size=m) / theory.gamma_early(t, eta_y=1, n_classes=1)
    assert (np.diff(ratio) > 0).all()
    assert ratio[1] == pytest.approx(0.584, abs=1e-3)
    assert ratio[-1] == pytest.approx(1 / 1.5671433, abs=2e-3)


def test_gamma_late_is_the_last_order() -> None:
    """Exact/late → ((M−1)/M)² as t → ∞, with an error of order u/(η_Y s): slope −1 up to logarithms."""
    limit = (999 / 1000) ** 2
    t = theory.t_snap(**RATES) * np.geomspace(1e2, 1e8, 13)
    deviation = theory.gamma(t, **RATES) / theory.gamma_late(t, **RATES) / limit - 1
    assert (deviation > 0).all()
    assert slope(t, deviation) == pytest.approx(-1, abs=0.1)
    assert deviation[-1] < 1e-7
    scale = theory.u(t / 10, eta_y=0.5, vocab_size=1000) / (0.5 * t / 10)
    assert ((deviation > 0.5 * scale) & (deviation < scale)).all()


def test_gamma_late_is_half_of_gamma_at_the_snap() -> None:
    m = np.array([1e2, 1e3, 1e6, 1e12])
    rates = {"eta_y": 1, "n_classes": 1, "vocab_size": m}
    t = theory.t_snap(**rates)
    np.testing.assert_allclose(
        theory.gamma(t, **rates) / theory.gamma_late(t, **rates), [1.744, 1.980, 2.116, 2.117], atol=1e-3
    )


@pytest.mark.parametrize("form", ["corrected", "printed"])
@pytest.mark.parametrize("c0", [0.5, 3.0])
def test_growth_expansions_tend_to_growth(form: str, c0: float) -> None:
    options = dict(BOTH_RATES, c0=c0, form=form)
    early = np.geomspace(1e-3, 1e-2, 5) * theory.t_scan(**RATES)
    difference = theory.growth_early(early, **options) - theory.growth(early, **options)
    assert (difference > 0).all()
    assert slope(early, difference) == pytest.approx(3, abs=0.1)  # Γ's next term is t³
    late = np.geomspace(1e2, 1e8, 7) * theory.t_snap(**RATES)
    difference = theory.growth_late(late, **options) - theory.growth(late, **options)
    assert (difference > 0).all()
    assert slope(late, difference) == pytest.approx(-1, abs=0.1)


def test_growth_expansions_are_the_printed_ones() -> None:
    """Equation 14 typed in as it stands in the paper."""
    t, eta_y, eta_z, k, m, c0 = 37.0, 0.5, 0.2, 10, 1000, 0.3
    early = 0.25 * np.log(c0 + 2 * (m - 1) ** 2 / (k * m**2) * eta_y * eta_z * t**2)
    late = 0.25 * np.log(c0 + 2 * k * (m - 1) ** 2 / m**2 * eta_z / eta_y * np.log(m * eta_y * t / k) ** 2)
    assert theory.growth_early(t, **BOTH_RATES, c0=c0, form="printed") == pytest.approx(early, rel=1e-14)
    assert theory.growth_late(t, **BOTH_RATES, c0=c0, form="printed") == pytest.approx(late, rel=1e-14)
    assert theory.growth_early(0, **BOTH_RATES, c0=c0) == 0


@given(share=st.floats(1e-6, 1), eta_y=st.floats(1e-3, 10), k=st.integers(1, 1000), m=st.integers(2, 10**6))
def test_early_growth_bounds_growth_within_its_stated_error(share: float, eta_y: float, k: int, m: int) -> None:
    rates = {"eta_y": eta_y, "n_classes": k, "vocab_size": m}
    t = share * theory.t_scan(**rates)
    gap = theory.u(t / k, eta_y=eta_y, vocab_size=m)
    expanded = eta_y * 0.1 / k * ((m - 1) / m * t) ** 2 / 2
    exact = theory.gamma_integral(t, **rates, eta_z=0.1)
    assert (1 - np.exp(gap) / m) * expanded * (1 - 1e-12) <= exact <= expanded * (1 + 1e-12)
    assert theory.growth(t, **rates, eta_z=0.1) <= theory.growth_early(t, **rates, eta_z=0.1) * (1 + 1e-12)


@given(share=st.floats(1, 1e9), eta_y=st.floats(1e-3, 10), k=st.integers(1, 1000), m=st.integers(2, 10**6))
def test_late_growth_bounds_growth_from_above(share: float, eta_y: float, k: int, m: int) -> None:
    """e^u ≤ M η_Y s once (M − 1)u ≥ 1, which t ≥ t₀ ensures for every M (at M = 2 just so: u(t₀) = 1.01)."""
    rates = {"eta_y": eta_y, "n_classes": k, "vocab_size": m}
    t = share * theory.t_snap(**rates)
    assert theory.growth(t, **rates, eta_z=0.1) <= theory.growth_late(t, **rates, eta_z=0.1) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.gamma_late([1.0, 0.0], **RATES), "t"),
        (lambda: theory.growth_late(0, **BOTH_RATES), "t"),
        (lambda: theory.gamma_early(-2, **EARLY), "t"),
        (lambda: theory.t_snap(**RATES, delta=-0.1), "delta"),
        (lambda: theory.t_scan(eta_y=0, n_classes=1, vocab_size=9), "eta_y"),
        (lambda: theory.snap_delta(1.5), "vocab_size"),
        (lambda: theory.growth_early(1, **BOTH_RATES, form="late"), "form"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, field: str) -> None:
    with refused(field):
        call()
