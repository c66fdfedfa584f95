"""The drive of classes with clocks of their own: against 30 digits, the decoder flow, the flow and the response."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from refusals import refused
from scansnap import theory
from scansnap.dynamics.flow.decoder import decoder_flow

RATES = {"eta_y": 0.9, "eta_z": 0.9e-5}


def true_pair(t: float, p: float, p_other: float, m: int, rho: float) -> float:
    """∫ γβ_nn' du_n over (η_Y/η_Z = 1): the two clocks from their equation, in 30 digits."""
    with mpmath.workdps(30):
        eta, share = mpmath.mpf(0.9), mpmath.mpf(p_other) / mpmath.mpf(p)

        def gap(s: mpmath.mpf) -> mpmath.mpf:
            x = mpmath.mpf(theory.u(float(s), eta_y=0.9, vocab_size=m))
            for _ in range(2):  # from 15 digits to 60
                x -= (mpmath.expm1(x) + (m - 1) * x - m * eta * s) / (mpmath.exp(x) + m - 1)
            return x

        end = gap(mpmath.mpf(p) * t)

        def inside(x: mpmath.mpf) -> mpmath.mpf:
            y = gap((mpmath.expm1(x) + (m - 1) * x) / (m * eta) * share)
            slope = share * (m - 1 + mpmath.exp(x)) / (m - 1 + mpmath.exp(y))  # du_n'/du_n
            return y * mpmath.expm1(rho * y) + mpmath.exp(rho * x) * (end - x) * slope

        return float(mpmath.quad(inside, mpmath.linspace(0, end, 5)) / m)


def test_a_pair_in_thirty_digits() -> None:
    """From the linear start to far past t₀."""
    for t in (0.5, 20.0, 2e4):
        found = theory.class_drive(t, eta_y=0.9, eta_z=0.9, p_class=[0.7, 0.2], vocab_size=500, overlap=0.3).pair
        assert found[0, 1] == pytest.approx(true_pair(t, 0.7, 0.2, 500, 0.3), rel=1e-12), t
        assert found[1, 0] == pytest.approx(true_pair(t, 0.2, 0.7, 500, 0.3), rel=1e-12), t


def test_equal_clocks_are_the_drive() -> None:
    t = np.geomspace(1e-3, 1e6, 12)
    found = theory.class_drive(t, eta_y=0.5, eta_z=0.1, p_class=np.full(4, 0.25), vocab_size=3000, overlap=0.2)
    true = theory.growth_drive(t, eta_y=0.5, eta_z=0.1, n_classes=4, vocab_size=3000, overlap=0.2)
    np.testing.assert_allclose(found.growth, np.repeat(true[:, None], 4, axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.gap[:, 0], theory.u(t / 4, eta_y=0.5, vocab_size=3000), rtol=1e-14)


def family(p_class: list[float], m: int) -> tuple[ss.SequenceClasses, np.ndarray]:
    """Two common tokens and three distinct ones for each class; and their f."""
    k = len(p_class)
    p = np.zeros((k, m))
    p[:, :2] = [0.5, 0.3]
    for n in range(k):
        p[n, 2 + 3 * n : 5 + 3 * n] = [0.3, 0.6, 1.0 + 0.2 * n]  # overlaps differ from pair to pair
    p /= p.sum(1, keepdims=True)
    classes = ss.SequenceClasses(p, query=[m - 1] * k, next_token=m - 2 - np.arange(k), p_class=p_class)
    return classes, p / np.linalg.norm(p, axis=1, keepdims=True)


@pytest.mark.parametrize("p_class", [[0.8, 0.2], [0.5, 0.3, 0.2]])
def test_against_the_flow_and_the_response(p_class: list[float]) -> None:
    """M = 5000, η_Y/η_Z = 10⁵: every token to 3e-4 at 0.1 t₀ and 2% at 10 t₀; not with equal clocks."""
    m, k = 5000, len(p_class)
    classes, f = family(p_class, m)
    t = np.array([0.1, 1, 10]) * theory.t_snap(eta_y=0.9, n_classes=k, vocab_size=m)
    z = ss.flow(classes, **RATES, t=t, rtol=1e-10, variables=("z",)).z.values[:, 0]
    drive = ss.response(classes, **RATES, t=t).drive.values[:, 0]
    used = np.flatnonzero(classes.p_context.any(0))

    def logits(p: list[float]) -> np.ndarray:
        overlap = f @ f.T
        pair = theory.class_drive(t, **RATES, p_class=p, vocab_size=m, overlap=overlap).pair
        along = np.einsum("tnk,nk,nl->tl", pair, overlap * (1 - np.eye(k)), f**2)
        return (along - np.einsum("tnk,nl,kl->tl", pair, f, f))[:, used]

    for true in (z[:, used], drive[:, used]):
        off = np.abs(logits(p_class) / true - 1).max(1)
        assert (off < [3e-4, 0.01, 0.02]).all(), off
    equal = np.abs(logits([1 / k] * k) / z[:, used] - 1).max(1)
    assert (equal > 0.1).all()


def test_both_ways_together_are_in_the_decoder() -> None:
    """b_nn' + b_n'n = −(η_Z/η_Y) a_n·a_n' on the integrated decoder: exact there, here to a relative e^{ρu}/(ρM)."""
    m, p, rho = 10**6, np.array([0.6, 0.3, 0.1]), 0.25
    t = np.geomspace(1, 3e3, 6)
    gram = np.full((3, 3), rho) + (1 - rho) * np.eye(3)
    a = decoder_flow(np.linalg.cholesky(gram).T, p, 0.9, t, m, rtol=1e-12, atol=1e-16).a.values
    inner = np.einsum("tnj,tkj->tnk", a[..., :3], a[..., :3]) + (m - 3) * a[:, :, None, -1] * a[:, None, :, -1]
    found = theory.class_drive(t, eta_y=0.9, eta_z=0.9, p_class=p, vocab_size=m, overlap=gram)
    both = found.pair + np.swapaxes(found.pair, 1, 2)
    away = ~np.eye(3, dtype=bool)
    reach = np.exp(rho * found.gap.max(1)) / (rho * m)
    off = np.abs(-both[:, away] / inner[:, away] - 1).max(1)
    assert (off < 2 * reach + 1e-5).all(), (off, reach)


def test_early_and_late() -> None:
    """u_n u_n'/(2M) at first; late the frequent class moves the rare one (p_n'/p_n)^ρ times as far."""
    rates = {"eta_y": 1.0, "eta_z": 1.0, "vocab_size": 10**4, "overlap": 0.4}
    early = theory.class_drive(1e-3, **rates, p_class=[0.9, 0.01])
    np.testing.assert_allclose(early.pair[0, 1], early.gap.prod() / 2e4, rtol=1e-3)
    np.testing.assert_allclose(early.pair[0, 1], early.pair[1, 0], rtol=1e-3)
    late = theory.class_drive(1e120, **rates, p_class=[0.9, 0.01])
    assert late.pair[1, 0] / late.pair[0, 1] == pytest.approx(90**0.4, rel=0.05)


@given(
    t=st.floats(1e-6, 1e12), p=st.lists(st.floats(1e-4, 1), min_size=2, max_size=4), m=st.integers(10, 10**6),
    rho=st.floats(0, 0.95),
)  # fmt: skip
def test_it_rises_and_is_finite(t: float, p: list[float], m: int, rho: float) -> None:
    share = np.array(p) / (1.001 * sum(p))
    found = theory.class_drive([t, 1.5 * t], eta_y=1.0, eta_z=0.1, p_class=share, vocab_size=m, overlap=rho)
    assert np.isfinite(found.pair).all()
    away = ~np.eye(len(p), dtype=bool)
    assert (found.pair[0][away] > 0).all()
    assert (found.pair[1] >= found.pair[0] * (1 - 1e-9)).all()


def test_shapes_and_bad_input() -> None:
    rates = {"eta_y": 1.0, "eta_z": 0.1, "vocab_size": 99}
    assert theory.class_drive([[1.0], [2.0]], **rates, p_class=[0.5, 0.4], overlap=0.1).pair.shape == (2, 1, 2, 2)
    assert (theory.class_drive(0, **rates, p_class=[0.5, 0.4], overlap=0.1).pair == 0).all()
    for call, field in (
        (lambda: theory.class_drive(1, **rates, p_class=[0.5, 0.6], overlap=0.1), "p_class"),
        (lambda: theory.class_drive(1, **rates, p_class=[0.5, 0.5], overlap=[[1, 0.2], [0.1, 1]]), "overlap"),
    ):  # fmt: skip
        with refused(field):
            call()
