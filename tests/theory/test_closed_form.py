"""h, u, γ and Γ against 50-digit arithmetic and ODE integration; B_n against the premise it is derived from."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad, solve_ivp

from refusals import refused
from scansnap import theory

VOCAB = [2, 3, 7, 50, 1000, 10**6]
RATES = {"eta_y": 0.5, "n_classes": 3, "vocab_size": 200}
BOTH_RATES = dict(RATES, eta_z=0.1)

whole_range = {
    "t": st.just(0.0) | st.floats(1e-200, 1e12),  # below, doubles themselves lose digits
    "eta_y": st.floats(1e-4, 1e3),
    "n_classes": st.integers(1, 10**4),
    "vocab_size": st.integers(2, 10**6),
}


def exact_u(target: float, vocab_size: int) -> float:
    """The root of e^u + (M − 1)u = target + 1 by bisection with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        x, m = Decimal(target), Decimal(vocab_size)
        low, high = Decimal(0), min(x / m, (1 + x).ln())  # e^u − 1 ≥ u and (M − 1)u ≥ 0
        for _ in range(120):
            middle = (low + high) / 2
            if middle.exp() - 1 + (m - 1) * middle < x:
                low = middle
            else:
                high = middle
        return float((low + high) / 2)


@pytest.mark.parametrize("vocab_size", VOCAB)
def test_u_and_h_have_full_double_precision(vocab_size: int) -> None:
    s = np.concatenate([np.geomspace(1e-9, 1e12, 43), np.linspace(0.5, 30, 8)])
    for eta_y in (0.015625, 1.0, 8.0):  # powers of two: the target M η_Y s differs by one rounding only
        expected = np.array([exact_u(vocab_size * eta_y * x, vocab_size) for x in s])
        error = np.abs(theory.u(s, eta_y=eta_y, vocab_size=vocab_size) / expected - 1).max()
        assert error < 1e-14, f"relative error {error:.1e} at M = {vocab_size}, eta_y = {eta_y}"
        np.testing.assert_allclose(theory.h(s, eta_y=eta_y, vocab_size=vocab_size), expected / vocab_size, rtol=1e-14)


def test_h_solves_its_differential_equation() -> None:
    """Independent of the implicit equation: dh/ds = η_Y/(M − 1 + e^{Mh}) integrated in time."""
    s = np.geomspace(0.01, 1e4, 30)
    for eta_y, m in ((0.1, 50), (2.0, 2), (1.0, 1000)):
        flow = solve_ivp(
            lambda _, h, m=m, eta_y=eta_y: eta_y / (m - 1 + np.exp(m * h)),
            (0, s[-1]), [0.0], t_eval=s, method="DOP853", rtol=1e-12, atol=1e-16,
        )  # fmt: skip
        np.testing.assert_allclose(flow.y[0], theory.h(s, eta_y=eta_y, vocab_size=m), rtol=1e-9)


def test_everything_starts_at_zero_exactly() -> None:
    assert theory.h(0, eta_y=1, vocab_size=2) == 0
    assert theory.u(0.0, eta_y=0.3, vocab_size=10**6) == 0
    assert theory.gamma(0, **RATES) == 0
    assert theory.gamma_integral(0, **BOTH_RATES) == 0
    assert theory.growth(0, **BOTH_RATES, c0=0.01) == 0
    assert theory.chi(0, **BOTH_RATES, f_dominant=0.3) == (1, 1)


def test_tiny_times_are_linear() -> None:
    s = np.array([1e-300, 1e-30, 1e-12])
    np.testing.assert_allclose(theory.u(s, eta_y=0.5, vocab_size=1000), 0.5 * s, rtol=1e-11)


def test_gamma_agrees_with_its_definition() -> None:
    t = np.geomspace(1e-3, 1e6, 40)
    m, k = RATES["vocab_size"], RATES["n_classes"]
    h = theory.h(t / k, eta_y=0.5, vocab_size=m)
    np.testing.assert_allclose(theory.gamma(t, **RATES), (m - 1) ** 2 * h / (m - 1 + np.exp(m * h)), rtol=1e-13)


def test_gamma_peaks_just_before_the_end_of_scanning() -> None:
    t = np.linspace(0.5, 1.5, 1001)  # in units of t_scan
    for m in (100, 1000, 10**6):
        rates = {"eta_y": 0.2, "n_classes": 4, "vocab_size": m}
        peak = t[np.argmax(theory.gamma(t * theory.t_scan(**rates), **rates))]
        assert 0.8 < peak < 0.9, f"peak at {peak:.3f} t_scan for M = {m}"


def test_gamma_integral_is_the_integral_of_gamma() -> None:
    for t in (0.1, 3.0, 40.0, 500.0):
        area, _ = quad(lambda x: theory.gamma(x, **RATES), 0, t, epsabs=0, epsrel=1e-11, limit=200)
        assert theory.gamma_integral(t, **BOTH_RATES) == pytest.approx(0.1 * area, rel=1e-9)


@pytest.mark.parametrize(("c0", "exponent"), [(1.0, 4.0), (0.02, 4.0), (30.0, 2.0), (0.5, 5.5)])
def test_growth_follows_from_its_premise(c0: float, exponent: float) -> None:
    """Integrate ż = −η_Z γ e^{qz}/C₀ and Ḃ = η_Z ξ side by side: B = growth and B = −z."""
    t = np.geomspace(0.1, 2000, 30)

    def premise(time: float, state: np.ndarray) -> list[float]:
        xi = theory.gamma(time, **RATES) * np.exp(exponent * state[0]) / c0
        return [-0.1 * xi, 0.1 * xi]

    z, b = solve_ivp(premise, (0, t[-1]), [0, 0], t_eval=t, method="DOP853", rtol=1e-11, atol=1e-14).y
    expected = theory.growth(t, **BOTH_RATES, c0=c0, exponent=exponent)
    np.testing.assert_allclose(b, expected, rtol=1e-7)
    np.testing.assert_allclose(-z, expected, rtol=1e-7)


@pytest.mark.parametrize("p", [[0.5, 0.5], [0.1, 0.2]])
def test_the_classes_of_a_query_share_its_growth(p: list[float]) -> None:
    """Integrate ż = −Σ p_n η_Z γ e^{4z}/C₀ with Ḃ_n = η_Z p_n ξ: −z = Σ B_n, and each class has p_n/P of it."""
    t, c0, total = np.geomspace(0.1, 2000, 30), 0.3, sum(p)

    def premise(time: float, state: np.ndarray) -> list[float]:
        xi = theory.gamma(time, **RATES) * np.exp(4 * state[0]) / c0
        return [-0.1 * total * xi, *(0.1 * share * xi for share in p)]

    z, *b = solve_ivp(premise, (0, t[-1]), [0, 0, 0], t_eval=t, method="DOP853", rtol=1e-11, atol=1e-14).y
    found = [theory.growth(t, **BOTH_RATES, c0=c0, p_class=share, p_query=total) for share in p]
    np.testing.assert_allclose(found, b, rtol=1e-7)
    np.testing.assert_allclose(np.sum(found, 0), -z, rtol=1e-7)
    upper = theory.chi(t, **BOTH_RATES, f_dominant=0.5, c0=c0, p_class=p[0], p_query=total)[1]
    np.testing.assert_allclose(upper, np.exp(2 * found[0]))
    early = theory.growth_early(1e-3, **BOTH_RATES, c0=c0, p_class=p[1], p_query=total)
    assert early == pytest.approx(theory.growth(1e-3, **BOTH_RATES, c0=c0, p_class=p[1], p_query=total), rel=1e-3)
    late = theory.growth_late(1e9, **BOTH_RATES, c0=c0, p_class=p[1], p_query=total)
    assert late == pytest.approx(theory.growth(1e9, **BOTH_RATES, c0=c0, p_class=p[1], p_query=total), rel=1e-3)


def test_printed_growth_is_off_by_a_constant() -> None:
    t = np.geomspace(0.1, 1e5, 20)
    for c0, q in ((0.1, 4.0), (5.0, 3.0)):
        printed = theory.growth(t, **BOTH_RATES, c0=c0, exponent=q, form="printed")
        corrected = theory.growth(t, **BOTH_RATES, c0=c0, exponent=q)
        np.testing.assert_allclose(printed - corrected, np.log(c0) / q, rtol=1e-12)
    np.testing.assert_allclose(
        theory.growth(t, **BOTH_RATES, form="printed"), theory.growth(t, **BOTH_RATES), rtol=1e-12, atol=1e-15
    )


def test_growth_at_the_snap_depends_on_the_ratio_of_rates_only() -> None:
    """Figure 9: with ν = η_Y/η_Z fixed the dots at (t₀, B_n(t₀)) lie at one height."""
    eta_z = np.array([0.5, 1, 2, 4, 8])
    for nu, m in ((10.0, 100), (1.0, 10**4)):
        rates = {"eta_y": nu * eta_z, "n_classes": 1, "vocab_size": m}
        at_snap = theory.growth(theory.t_snap(**rates), eta_z=eta_z, **rates)
        np.testing.assert_allclose(at_snap, at_snap[0], rtol=1e-12)


def test_chi_bounds_and_relative_gain() -> None:
    t = np.array([0.0, 1.0, 100.0])
    lower, upper = theory.chi(t, **BOTH_RATES, f_dominant=0.5)
    b = theory.growth(t, **BOTH_RATES)
    np.testing.assert_allclose(upper, np.exp(2 * b))
    np.testing.assert_allclose(lower, np.exp(b / 2))
    np.testing.assert_allclose(theory.relative_gain(3.0, upper), 3 * upper)
    assert theory.relative_gain(-0.5, 1.5) == -0.75
    assert theory.relative_gain(r0=2, chi=1) == 2
    # Theorem 3 from its proof: ż_l = f_l² ξ for two tokens with a common norm gives r(t) = r(0) χ_l(t).
    c = np.array([0.6, 0.3])
    z = solve_ivp(lambda _, z: (c * np.exp(z)) ** 2 * 0.4, (0, 3), [0, 0], method="DOP853", rtol=1e-12, atol=1e-14).y[
        :, -1
    ]
    gain = (c[0] * np.exp(z[0])) ** 2 / (c[1] * np.exp(z[1])) ** 2 - 1
    assert gain == pytest.approx(theory.relative_gain(3.0, np.exp(2 * z[0])), rel=1e-9)


def test_a_bound_beyond_doubles_is_infinite() -> None:
    lower, upper = theory.chi(1e12, **BOTH_RATES, f_dominant=0.1, c0=1e-12, exponent=0.01)
    assert upper == np.inf
    assert np.isfinite(lower)


def test_recursion_is_the_gradient_step() -> None:
    """Against the definition with plain exponentials, and shapes: steps first, then the rates."""
    h, expected = 0.0, [0.0]
    for _ in range(200):
        h += 0.7 / (50 - 1 + np.exp(50 * h))
        expected.append(h)
    np.testing.assert_allclose(theory.h_recursion(200, eta_y=0.7, vocab_size=50), expected, rtol=1e-12)
    many = theory.h_recursion(5, eta_y=[0.1, 0.7, 2], vocab_size=[[50], [9]])
    assert many.shape == (6, 2, 3)
    np.testing.assert_allclose(many[:, 0, 1], expected[:6])
    assert theory.h_recursion(0, eta_y=1, vocab_size=5).tolist() == [0.0]
    assert np.isfinite(theory.h_recursion(50, eta_y=1e6, vocab_size=[2, 10**6])).all()


@pytest.mark.parametrize("eta_y", [0.05, 0.5, 0.99])
@pytest.mark.parametrize("vocab_size", [2, 50, 1000])
def test_recursion_stays_close_to_the_closed_form(eta_y: float, vocab_size: int) -> None:
    """Lemma 7: 0 ≤ h* − h ≤ 2η_Y/M, and the gap vanishes."""
    steps = 20_000
    gap = theory.h_recursion(steps, eta_y=eta_y, vocab_size=vocab_size) - theory.h(
        np.arange(steps + 1), eta_y=eta_y, vocab_size=vocab_size
    )
    assert (gap >= -1e-15).all()
    assert (gap <= 2 * eta_y / vocab_size).all()
    assert gap[-1] < 0.02 * gap.max()


def test_scalars_give_floats_and_arrays_broadcast() -> None:
    assert type(theory.h(1, eta_y=1, vocab_size=10)) is float
    assert type(theory.gamma(np.float32(1), **RATES)) is float
    assert type(theory.growth(np.array(1.0), **BOTH_RATES)) is float
    assert all(type(bound) is float for bound in theory.chi(1.0, **BOTH_RATES, f_dominant=1))
    assert type(theory.relative_gain(1, 1)) is float
    t, eta_y, k = np.array([1.0, 5.0]), np.array([[0.1], [1.0], [3.0]]), np.array([2, 4])
    table = theory.gamma(t, eta_y=eta_y, n_classes=k, vocab_size=100)
    assert table.shape == (3, 2)
    assert table[2, 1] == theory.gamma(5.0, eta_y=3.0, n_classes=4, vocab_size=100)
    assert theory.growth(1.0, **BOTH_RATES, c0=[0.1, 1.0]).shape == (2,)
    assert theory.gamma([], **RATES).shape == (0,)


@given(**whole_range, later=st.floats(1, 10))
def test_h_and_growth_rise_and_nothing_overflows(
    t: float, eta_y: float, n_classes: int, vocab_size: int, later: float
) -> None:
    rates = {"eta_y": eta_y, "n_classes": n_classes, "vocab_size": vocab_size}
    times = np.array([t, t * later])
    gap = theory.u(times / n_classes, eta_y=eta_y, vocab_size=vocab_size)
    speed = theory.gamma(times, **rates)
    b = theory.growth(times, **rates, eta_z=0.1, c0=0.01)
    for values in (gap, speed, b):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    assert gap[1] >= gap[0] * (1 - 1e-13)
    assert b[1] >= b[0] * (1 - 1e-13)
    assert (speed <= eta_y * times / n_classes * (1 + 1e-13)).all()  # the early form is an upper bound


@given(**whole_range)
def test_u_solves_the_implicit_equation(t: float, eta_y: float, n_classes: int, vocab_size: int) -> None:
    s = t / n_classes
    gap = theory.u(s, eta_y=eta_y, vocab_size=vocab_size)
    assert np.expm1(gap) + (vocab_size - 1) * gap == pytest.approx(vocab_size * eta_y * s, rel=1e-13, abs=0)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.h(-1.0, eta_y=1, vocab_size=9), "s"),
        (lambda: theory.u([0, np.nan], eta_y=1, vocab_size=9), "s"),
        (lambda: theory.h(1, eta_y=[1, 0, -2], vocab_size=9), "eta_y"),
        (lambda: theory.h(1, eta_y=1, vocab_size=1), "vocab_size"),
        (lambda: theory.h("1", eta_y=1, vocab_size=9), "s"),
        (lambda: theory.h(True, eta_y=1, vocab_size=9), "s"),
        (lambda: theory.h([[1], [1, 2]], eta_y=1, vocab_size=9), "s"),
        (lambda: theory.h(1e200, eta_y=1e200, vocab_size=9), "vocab_size · eta_y · s"),
        (lambda: theory.h([1, 2], eta_y=[1, 2, 3], vocab_size=9), "s"),
        (lambda: theory.gamma(1, eta_y=1, n_classes=0, vocab_size=9), "n_classes"),
        (lambda: theory.gamma_integral(1, **RATES, eta_z=np.inf), "eta_z"),
        (lambda: theory.growth(1, **BOTH_RATES, c0=0), "c0"),
        (lambda: theory.growth(1, **BOTH_RATES, exponent=-4), "exponent"),
        (lambda: theory.growth(1, **BOTH_RATES, p_class=0.5, p_query=[0.4, 0.6]), "p_class"),
        (lambda: theory.growth(1, **BOTH_RATES, p_query=0), "p_query"),
        (lambda: theory.growth(1, **BOTH_RATES, form="exact"), "form"),
        (lambda: theory.chi(1, **BOTH_RATES, f_dominant=1.5), "f_dominant"),
        (lambda: theory.relative_gain(-1, 2), "r0"),
        (lambda: theory.h_recursion(-1, eta_y=1, vocab_size=9), "steps"),
        (lambda: theory.h_recursion(2.0, eta_y=1, vocab_size=9), "steps"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, field: str) -> None:
    with refused(field):
        call()
