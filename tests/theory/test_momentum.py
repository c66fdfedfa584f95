"""Momentum and finite steps: the lags against the recursion they stand for, and against SGD without noise."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import scansnap as ss
from scansnap import theory

FAMILY = {"n_classes": 2, "vocab_size": 2014}


def heavy_ball(eta: float, mu: float, steps: int, k: int, m: int) -> np.ndarray:
    """The gap of Lemma 5 by steps with momentum."""
    u, v, path = 0.0, 0.0, [0.0]
    for _ in range(steps):
        v = mu * v + m / (m - 1 + math.exp(u)) / k
        u += eta * v
        path.append(u)
    return np.array(path)


def test_the_lag_is_exact_for_a_constant_direction() -> None:
    for mu in (0.0, 0.5, 0.9):
        moved, v, path = 0.0, 0.0, [0.0]
        for _ in range(60):
            v = mu * v + 1
            moved += (1 - mu) * v
            path.append(moved)
        t = np.arange(61)
        np.testing.assert_allclose(t - theory.momentum_lag(t, momentum=mu), path, atol=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9])
def test_the_gap_to_first_order(mu: float) -> None:
    """At the same η̃_Y t from 1 to 40 the flow is off by a share of the rate, the lags leave its square."""
    plain, lagged = [], []
    rates = np.array([0.08, 0.04, 0.02])  # η̃_Y
    for rate in rates:
        eta, steps = rate * (1 - mu), round(40 / rate)
        path = heavy_ball(eta, mu, steps, 2, 2014)
        t = np.arange(round(1 / rate), steps + 1)
        found = theory.momentum_gap(t, eta_y=eta, momentum=mu, **FAMILY)
        lagged.append(np.abs(found - path[t]).max())
        plain.append(np.abs(theory.u(t / 2, eta_y=rate, vocab_size=2014) - path[t]).max())
    for errors, slope in ((plain, 1), (lagged, 2)):
        found = np.polyfit(np.log(rates), np.log(errors), 1)[0]
        assert found == pytest.approx(slope, abs=0.2), errors
    assert lagged[-1] < 0.03 * plain[-1]


def test_plain_steps_are_lemma_5s() -> None:
    h = theory.h_recursion(400, eta_y=0.3, vocab_size=500)
    t = np.arange(401)
    found = theory.momentum_gap(t, eta_y=0.3, n_classes=1, vocab_size=500, momentum=0.0)
    flow = theory.u(t, eta_y=0.3, vocab_size=500)
    assert np.abs(found - 500 * h).max() < 0.1 * np.abs(flow - 500 * h).max()


def frozen_steps(eta: float, mu: float, steps: int, k: int, m: int, rho: float) -> np.ndarray:
    """B_n η_Y/η_Z of the exact decoder of frozen attention by steps with momentum (theory/frozen.py has its rates)."""
    state, v, path = np.zeros(3), np.zeros(3), [0.0]  # x, y and what has been summed up of γβ
    for _ in range(steps):
        x, y, _ = state
        e, own = math.expm1(rho * x + (1 + rho * (k - 2)) * y), math.exp(x + rho * (k - 1) * y)
        total = m - k + own + (k - 1) * (1 + e)
        v = mu * v + np.array([(k - 1) * e + m, -e, x * (1 + e) - y * (e + m - k + 1)]) / (k * total)
        state = state + eta * v
        path.append((k - 1) * rho * state[2])
    return np.array(path)


@pytest.mark.parametrize("mu", [0.0, 0.9])
def test_attention_to_first_order(mu: float) -> None:
    """What momentum and steps take from B_n at η̃_Y t from 10 to 60: the flow misses it, the lags leave its square."""
    rates = np.array([0.08, 0.04, 0.02] if mu else [0.8, 0.4, 0.2])
    sizes = {"n_classes": 2, "vocab_size": 10**7, "overlap": 0.24}
    left, size = [], []
    for rate in rates:
        eta, steps = rate * (1 - mu), round(60 / rate)
        t = np.arange(steps // 6, steps + 1)
        true = frozen_steps(eta, mu, steps, 2, 10**7, 0.24)[t]
        found = theory.momentum_growth(t, eta_y=eta, eta_z=eta, momentum=mu, **sizes)
        flow = theory.growth_drive(t, eta_y=rate, eta_z=rate, **sizes)
        left.append(np.abs(found / true - 1).max())
        size.append(np.abs(flow / true - 1).max())
    assert np.polyfit(np.log(rates), np.log(size), 1)[0] == pytest.approx(1, abs=0.25), size
    assert np.polyfit(np.log(rates), np.log(left), 1)[0] == pytest.approx(2, abs=0.25), left
    assert left[-1] < 0.1 * size[-1]


def test_sgd_with_momentum() -> None:
    """`textbook` in expected steps, μ = 0.9, η̃_Y = 0.1, ratio 10⁵: B_n at ½, 1 and 2 t₀ over the flow's at η̃."""
    classes = ss.SequenceClasses.textbook()
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    token, sizes = classes.distinct(0)[-1], dict(FAMILY, overlap=float(f[0] @ f[1]))
    t = np.array([150, 300, 600])
    z = ss.simulate(
        classes, eta_y=0.01, eta_z=1e-7, momentum=0.9, steps=600, context=math.inf, batch_size=None,
        dtype="float64", record=t.tolist(), variables=["z"], device="cpu",
    ).z.values[0, :, 0, token]  # fmt: skip
    flow = ss.flow(classes, 0.1, 1e-6, t.astype(float), rtol=1e-10, variables=("z",)).z.values[:, 0, token]
    np.testing.assert_allclose(z / flow, [0.7030, 0.8863, 0.9170], atol=1e-4)
    found = theory.momentum_growth(t, eta_y=0.01, eta_z=1e-7, momentum=0.9, **sizes)
    found = found / theory.growth_drive(t, eta_y=0.1, eta_z=1e-6, **sizes)
    assert (np.abs(found - z / flow) < [0.03, 0.01, 0.003]).all(), found


@pytest.mark.parametrize("mu", [0.5, 0.9])
def test_the_start_is_exact(mu: float) -> None:
    """While the gap is a line, every step: two fillings in series, from the first moves of attention on."""
    t = np.arange(1, 40)
    rate = 1e-9
    b = theory.momentum_growth(t, eta_y=rate, eta_z=rate, n_classes=2, vocab_size=100, overlap=0.3, momentum=mu)
    y = z = v = w = 0.0
    path = []
    for _ in t:
        v, w = mu * v + 1, mu * w + y
        y, z = y + v, z + w
        path.append(z)
    scale = 0.3 / 100 * (rate / 2) ** 2
    np.testing.assert_allclose(b, scale * np.array(path), rtol=1e-6, atol=1e-6 * scale)


def test_the_growth_in_thirty_digits() -> None:
    """Its integrals, by mpmath, in the clock that the function takes."""
    mu, eta, k, m, rho = 0.8, 0.05, 3, 400, 0.35
    for t in (20.0, 150.0, 5e3):
        u = theory.momentum_gap(t, eta_y=eta, n_classes=k, vocab_size=m, momentum=mu)
        with mpmath.workdps(30):
            top, lag, rate = (
                mpmath.mpf(u),
                mpmath.mpf(mu) / (1 - mpmath.mpf(mu)),
                mpmath.mpf(eta) / (1 - mpmath.mpf(mu)),
            )
            scale = (k - 1) * mpmath.mpf(rho) / m

            def late(x: mpmath.mpf, top=top, rate=rate) -> mpmath.mpf:
                grown = mpmath.exp(rho * x)
                inside = 2 * grown + rho * x * grown - 1 + rho * grown * (top - x)
                return inside * rate * m / k / (m - 1 + mpmath.exp(x))

            whole = scale / rho * (top * mpmath.expm1(rho * top) - rho * top**2 / 2)
            tail = scale * (lag + 0.5) * mpmath.quad(late, mpmath.linspace(0, top, 9))
            fall = [mpmath.mpf(mu) ** j for j in range(int(t) + 1)]
            sums = mpmath.fsum((1 - fall[int(t) - j]) * (j - lag * (1 - fall[j])) for j in range(int(t)))
            x = t - lag * (1 - mpmath.mpf(mu) ** t)
            start = scale * (rate / k) ** 2 * (sums - (x**2 / 2 - (lag + 0.5) * x))
            true = float((whole - tail + start) * 2)
        found = theory.momentum_growth(
            t, eta_y=eta, eta_z=2 * eta, n_classes=k, vocab_size=m, overlap=rho, momentum=mu
        )  # fmt: skip
        assert found == pytest.approx(true, rel=1e-11)


def test_shapes() -> None:
    given = {"eta_y": 0.1, "n_classes": 2, "vocab_size": 50, "momentum": 0.9}
    assert type(theory.momentum_gap(3, **given)) is float
    assert theory.momentum_gap([1, 2], **given | {"momentum": [[0.1], [0.2], [0.3]]}).shape == (3, 2)
    assert theory.momentum_growth([[1], [2]], eta_z=[0.1, 0.2, 0.3], overlap=0.2, **given).shape == (2, 3)
    assert theory.momentum_growth(0, eta_z=0.1, overlap=0.2, **given) == 0
    assert theory.momentum_gap(0, **given) == 0


def test_the_similarity_of_the_heavy_ball_equation() -> None:
    """Momentum and rates enter through (1 + μ)η/2(1 − μ)² and the time over ½(1 + μ)/(1 − μ) alone."""
    classes, found = ss.SequenceClasses.syn_medium(1), []
    for mu in (0.9, 0.8, 0.5):
        unit = 0.5 * (1 + mu) / (1 - mu)
        rate = 30 * (1 - mu) / unit  # η̂ = 30
        data = ss.flow(classes, 2 * rate, rate, [5 * unit], momentum=mu, rtol=1e-9, variables="attention")
        found.append(data.attention.values)
    np.testing.assert_allclose(found[1], found[0], atol=1e-7)
    np.testing.assert_allclose(found[2], found[0], atol=1e-7)
    other = ss.flow(classes, 2 * rate, 1.2 * rate, [5 * unit], momentum=mu, variables="attention").attention.values
    assert np.abs(other - found[0]).max() > 1e-3
