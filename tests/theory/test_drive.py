"""The drive against 50-digit arithmetic, the frozen decoder against its flow, both against the flow of attention."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

import scansnap as ss
from refusals import refused
from scansnap import theory
from scansnap.dynamics.flow.decoder import decoder_flow
from scansnap.theory.frozen import SymmetricFamily, exp_beyond_linear

FAMILY = {"n_classes": 3, "vocab_size": 200, "overlap": 0.4}
RATES = dict(FAMILY, eta_y=0.5, eta_z=0.1)
FAMILIES = [(2, 2014, 0.24), (2, 44, 0.82), (10, 50, 0.5), (5, 5, 0.3), (3, 10**5, 0.02), (4, 30, 0.0), (1, 7, 0.3)]


def family(k: int, m: int, rho: float) -> dict[str, float]:
    return {"n_classes": k, "vocab_size": m, "overlap": rho}


def relative(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(np.asarray(found) / np.asarray(true) - 1).max())


@pytest.mark.parametrize("rho", [0.0, 1e-9, 1e-3, 0.24, 0.9, 0.999])
def test_leading_order_has_full_precision(rho: float) -> None:
    u = np.concatenate([np.geomspace(1e-12, 690, 60), np.linspace(0.1, 3, 7) / max(rho, 0.01)]).clip(max=690)
    expected: list[list[float]] = []
    with mpmath.workdps(50):
        r = mpmath.mpf(rho)
        for x in map(mpmath.mpf, u):
            e = mpmath.exp(r * x)
            grown = (e - 1) / r if rho else x
            expected.append([(x * e + grown - x) / 200, 2 * r * (x * e + grown - x) / 200,
                             2 * r * (2 * e + r * x * e - 1) / 200])  # fmt: skip
        expected = [[float(value) for value in row] for row in expected]
    for function, true in zip((theory.beta, theory.drive, theory.drive_rate), np.array(expected).T, strict=True):
        found = function(u, n_classes=3, vocab_size=200, overlap=rho)
        np.testing.assert_allclose(found, true, rtol=2e-13, atol=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_exp_beyond_linear(sign: int) -> None:
    x = sign * np.concatenate([np.geomspace(1e-150, 600, 80), np.linspace(0.4, 0.6, 21)])
    with mpmath.workdps(400):
        true = [float(mpmath.expm1(value) - value) for value in map(mpmath.mpf, x)]
    np.testing.assert_allclose(exp_beyond_linear(x), true, rtol=2e-15, atol=0)


def test_growth_drive_is_the_integral_of_the_drive() -> None:
    """Both forms, in their clocks; and by mpmath where the terms of the formula nearly cancel."""
    for t in (0.5, 30.0, 3e3):
        u = theory.u(t / 3, eta_y=0.5, vocab_size=200)
        area = quad(lambda x: theory.drive(x, **FAMILY), 0, u, epsabs=0, epsrel=1e-12)[0]
        assert theory.growth_drive(t, **RATES) == pytest.approx(0.2 * area, rel=1e-11)
        x = theory.frozen_decoder(t, eta_y=0.5, **FAMILY).x
        area = quad(lambda x: theory.drive(x, **FAMILY, form="exact"), 0, x, epsabs=0, epsrel=1e-12)[0]
        assert theory.growth_drive(t, **RATES, form="exact") == pytest.approx(0.2 * area, rel=1e-11)
    for rho in (1e-12, 1e-3, 0.5):
        t = np.geomspace(1e-6, 1e6, 25)
        found = theory.growth_drive(t, **dict(RATES, overlap=rho))
        with mpmath.workdps(50):
            r = mpmath.mpf(rho)
            gaps = map(mpmath.mpf, theory.u(t / 3, eta_y=0.5, vocab_size=200))
            true = [float((x * mpmath.expm1(r * x) - r * x * x / 2) * 2 / 200 / 5) for x in gaps]
        np.testing.assert_allclose(found, true, rtol=1e-13)


@pytest.mark.parametrize(("k", "m", "rho"), FAMILIES)
def test_frozen_decoder_is_the_decoder_flow(k: int, m: int, rho: float) -> None:
    """Every field against the integrated flow of A, from the linear start to far past t₀."""
    t = np.geomspace(1e-2, 1e5, 40)
    overlaps = np.full((k, k), rho) + (1 - rho) * np.eye(k)
    flow = decoder_flow(np.linalg.cholesky(overlaps).T, None, 0.7, t, m, rtol=1e-13, atol=1e-16)
    state = theory.frozen_decoder(t, eta_y=0.7, **family(k, m, rho))
    a, alpha = flow.a.values, np.exp(-flow.loss.values)
    assert relative(state.own, a[:, 0, 0]) < 1e-12
    np.testing.assert_allclose(state.alpha, alpha, rtol=1e-12, atol=1e-15)  # the flow has α as 1 − (1 − α)
    assert relative(state.gamma_iota, flow.g.values[:, 0, 0]) < 1e-10  # the flow's own 1 − α cancels
    if m > k:
        assert relative(state.rest, a[:, 0, -1]) < 1e-12
        assert relative(state.gap, flow.gap.values[:, 0]) < 1e-12
    if k > 1:
        assert relative(state.other, a[:, 0, 1]) < 2e-12
        assert relative(state.gamma_beta, -flow.g.values[:, 0, 1]) < 1e-10
        inner = np.einsum("tj,tj->t", a[:, 0, :k], a[:, 1, :k]) + (m - k) * a[:, 0, -1] ** 2
        np.testing.assert_allclose(state.growth, -(k - 1) * rho * inner / 2, rtol=1e-10, atol=1e-300)
        wrong = theory.frozen_decoder(t, eta_y=0.7, **family(k, m, rho + 0.01))
        assert relative(wrong.gamma_beta, -flow.g.values[:, 0, 1]) > 1e-3


@pytest.mark.parametrize(("k", "m", "rho"), [(2, 2014, 0.24), (7, 10**6, 0.003), (10, 12, 0.97), (50, 3000, 0.5)])
def test_the_path_of_the_decoder_keeps_its_digits(k: int, m: int, rho: float) -> None:
    """y is smaller than x by a factor of M/ρx. 60 digits: q by bisection of x(q), then y = (q − ρx)/κ."""
    x = np.geomspace(1e-9, 600, 25)
    with mpmath.workdps(60):
        r = mpmath.mpf(rho)
        kappa, scale, end = 1 + r * (k - 2), 1 + r * (m - 1), r * m / (1 - r)

        def clock(tau: mpmath.mpf) -> mpmath.mpf:
            return (m - k + 1) / scale * mpmath.log1p(-end * mpmath.expm1(-tau)) + m * kappa / (1 - r) / scale * tau

        tau = [mpmath.findroot(lambda s, x=x_: clock(s) - x, float(t_)) for x_, t_ in
               zip(map(mpmath.mpf, x), SymmetricFamily(*np.array([k, m, rho])).tau(x), strict=True)]  # fmt: skip
        q = [mpmath.log1p(-end * mpmath.expm1(-s)) for s in tau]
        y = [float((q_ - r * x_) / kappa) for q_, x_ in zip(q, map(mpmath.mpf, x), strict=True)]
    now = SymmetricFamily(*np.array([k, m, rho])).at(x)
    np.testing.assert_allclose(now.q, [float(value) for value in q], rtol=1e-12)
    np.testing.assert_allclose(now.y, y, rtol=1e-12)


def test_exact_rate_is_the_derivative() -> None:
    u, h = np.linspace(0.5, 60, 40), 1e-4
    for k, m, rho in FAMILIES[:5]:
        sizes = family(k, m, rho)
        around = [theory.drive(u + step * h, **sizes, form="exact") for step in (-2, -1, 1, 2)]
        slope = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * h)
        np.testing.assert_allclose(theory.drive_rate(u, **sizes, form="exact"), slope, rtol=1e-8, atol=1e-12)


def test_leading_order_is_reached_as_one_over_m() -> None:
    """At fixed u the error falls like 1/M, to (κ/ρ + K − 1)e^{ρu}/M where ρu ≫ 1; it is out of hand at u ≫ ln(ρM)/ρ."""
    m = np.array([1e7, 1e8, 1e9])
    for k, rho in ((2, 0.3), (5, 0.1), (20, 0.6)):
        for u, least in ((3.0, 0.0), (8 / rho, 0.9)):
            exact = theory.drive(u, n_classes=k, vocab_size=m, overlap=rho, form="exact")
            error = theory.drive(u, n_classes=k, vocab_size=m, overlap=rho) / exact - 1
            assert np.polyfit(np.log(m), np.log(error), 1)[0] == pytest.approx(-1, abs=0.03)
            size = error * m / np.exp(rho * u) / ((1 + rho * (k - 2)) / rho + k - 1)
            assert ((least < size) & (size < 1)).all(), size
    rho = 0.3
    late = 2 * np.log(rho * 1e4) / rho
    assert theory.drive(late, **family(2, 10**4, rho)) > 100 * theory.drive(late, **family(2, 10**4, rho), form="exact")


def test_exact_drive_saturates() -> None:
    for k, rho in ((2, 0.3), (6, 0.5)):
        kappa = 1 + rho * (k - 2)
        limit = (k - 1) * rho**2 * (1 + kappa) / kappa**2
        assert theory.drive_rate(300.0, **family(k, 10**7, rho), form="exact") == pytest.approx(limit, rel=1e-4)
        assert theory.drive_rate(5.0, **family(k, 10**7, rho), form="exact") < 0.99 * limit
        assert theory.drive_rate(300.0, **family(k, 10, rho), form="exact") != pytest.approx(limit, rel=0.01)  # M → ∞


def test_expansions_tend_to_the_growth() -> None:
    t = np.array([1e-2, 1e-3])
    error = theory.growth_drive_early(t, **RATES) / theory.growth_drive(t, **RATES) - 1
    np.testing.assert_allclose(error, -0.4 * 0.5 * t / 3, rtol=0.02)  # −ρu
    many = dict(RATES, vocab_size=10**6)
    ratio = theory.growth_drive_late([1e20, 1e80], **many) / theory.growth_drive([1e20, 1e80], **many)
    np.testing.assert_allclose(ratio, 1, atol=1e-2)
    exact = theory.growth_drive([1e60, 1e250], **many, form="exact")
    error = np.abs(theory.growth_drive_late([1e60, 1e250], **many, form="exact") / exact - 1)
    assert error[1] < 0.07
    assert error[1] < 0.4 * error[0]
    with refused("t", 0.0):
        theory.growth_drive_late(0, **RATES)


def test_without_overlap_the_gap_is_lemma_3s() -> None:
    """K = 1, or any K at ρ = 0, is the orthonormal limit: the same gap, β = 1/M, nothing drives attention."""
    t = np.geomspace(1e-3, 1e6, 30)
    for k, rho in ((1, 0.5), (8, 0.0)):
        state = theory.frozen_decoder(t, eta_y=0.5, **family(k, 300, rho))
        np.testing.assert_allclose(state.gap, theory.u(t / k, eta_y=0.5, vocab_size=300), rtol=1e-13)
        assert (state.growth == 0).all()
    np.testing.assert_allclose(state.gamma_beta / state.gamma_iota, 1 / 299, rtol=1e-12)


def test_the_drive_is_what_the_flow_does_at_a_large_ratio() -> None:
    """`textbook`, η_Y/η_Z = 10⁵: every token to 3e-4 at 10 t₀. Not with another ρ, and not at ratio 1."""
    classes = ss.SequenceClasses.textbook()
    k, m, distinct = classes.n_classes, classes.vocab_size, classes.distinct(0)
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    rho = float(f[0] @ f[1])
    t = np.array([0.1, 1, 10]) * theory.t_snap(eta_y=0.9, n_classes=k, vocab_size=m)

    measured = {
        ratio: ss.flow(classes, 0.9, 0.9 / ratio, t, rtol=1e-10, variables=("z",)).z.values[:, 0, distinct]
        for ratio in (1e5, 1.0)
    }

    def off(ratio: float, rho: float, form: str) -> np.ndarray:
        rates = {"eta_y": 0.9, "eta_z": 0.9 / ratio, "form": form}
        b = theory.growth_drive(t, **rates, **family(k, m, rho))
        return np.abs(b[:, None] * f[0, distinct] ** 2 / measured[ratio] - 1).max(1)

    assert (off(1e5, rho, "exact") < [1e-5, 1e-4, 3e-4]).all()
    assert (off(1e5, rho, "leading") < [5e-4, 0.01, 0.02]).all()
    assert off(1e5, rho, "leading")[2] > 0.01  # what 1/M leaves out, at M = 2014
    assert (off(1e5, rho + 0.01, "exact") > 0.04).all()
    assert (off(1.0, rho, "exact") > [0.1, 5, 10]).all()


def test_scalars_give_floats_and_arrays_broadcast() -> None:
    for function in (theory.beta, theory.drive, theory.drive_rate):
        for form in ("leading", "exact"):
            assert type(function(1, **FAMILY, form=form)) is float
            table = function([[1.0], [2.0]], n_classes=[2, 3, 4], vocab_size=200, overlap=0.4, form=form)
            assert table.shape == (2, 3)
            assert table[1, 1] == pytest.approx(function(2.0, **FAMILY, form=form), rel=1e-14)
    assert type(theory.growth_drive(1, **RATES)) is float
    assert type(theory.growth_drive(1, **RATES, form="exact")) is float
    assert type(theory.frozen_decoder(1, eta_y=1, **FAMILY).gap) is float
    assert theory.frozen_decoder([1, 2], eta_y=[[1], [2]], **FAMILY).gap.shape == (2, 2)
    assert theory.frozen_decoder([], eta_y=1, **FAMILY).gap.shape == (0,)


def test_everything_starts_at_zero() -> None:
    for form in ("leading", "exact"):
        assert theory.beta(0, **FAMILY, form=form) == 0
        assert theory.drive(0, **FAMILY, form=form) == 0
        assert theory.growth_drive(0, **RATES, form=form) == 0
        assert theory.drive_rate(0, **FAMILY, form=form) == pytest.approx(2 * 0.4 / 200)
    state = theory.frozen_decoder(0, eta_y=1, **FAMILY)
    assert (state.x, state.own, state.other, state.gap, state.gamma_beta) == (0, 0, 0, 0, 0)
    assert state.alpha == pytest.approx(1 / 200)


@given(
    t=st.floats(1e-8, 1e30), later=st.floats(1.0, 10.0), k=st.integers(1, 1000), more=st.integers(1, 10**6),
    rho=st.floats(0, 0.999),
)  # fmt: skip
def test_nothing_overflows_and_the_growth_rises(t: float, later: float, k: int, more: int, rho: float) -> None:
    sizes, times = family(k, k + more, rho), np.array([t, t * later])
    state = theory.frozen_decoder(times, eta_y=1.0, **sizes)
    for values in (state.x, state.gap, state.gap_other, state.growth):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        assert values[1] >= values[0] * (1 - 1e-11)
    assert (state.other <= 0).all()
    gap = theory.u(times / k, eta_y=1.0, vocab_size=k + more)
    assert (state.x >= gap * (1 - 1e-12)).all()  # e^w ≤ e^x: overlap can only slow the softmax
    for form in ("leading", "exact"):
        assert (theory.drive_rate(gap, **sizes, form=form) >= 0).all()
        assert np.isfinite(theory.growth_drive(times, eta_y=1.0, eta_z=0.1, **sizes, form=form)).all()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.drive(701, **FAMILY), "u"),
        (lambda: theory.beta(1, **dict(FAMILY, overlap=1)), "overlap"),
        (lambda: theory.drive_rate(1, **FAMILY, form="printed"), "form"),
        (lambda: theory.frozen_decoder(1, eta_y=1, n_classes=9, vocab_size=8, overlap=0.1), "n_classes"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, field: str) -> None:
    with refused(field):
        call()
