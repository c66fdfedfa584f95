"""Momentum, and finite steps: what heavy-ball SGD does beside the flow at the rates η/(1 − μ), to first order.

A step is v ← μv + d, θ ← θ + ηv. For slow d this is θ̇ = η̃F with η̃ = η/(1 − μ), and two lags stand beside it:

    the start     v = 0 takes 1/(1 − μ) steps to fill: all is late by ℓ(1 − μ^t) steps, ℓ = μ/(1 − μ)
    inertia       (1 − μ)θ̇ + ½(1 + μ)θ̈ = ηF, so θ̇ = η̃(F − τ dF/dt), τ = (1 + μ)/(2(1 − μ)) = ℓ + ½ steps

Without momentum τ = ½ is that of the steps themselves. In one dimension the second is a delay, too, by τ ln(F/F₀), as
one sees by putting it in. The gap has F ∝ 1/(M − 1 + e^u), which falls, so that

    u_μ(t) = u(t − ℓ(1 − μ^t) + τ ln((M − 1 + e^u)/M)) at the rate η̃

begins late and ends early: the two lags are even where (M − 1 + e^u)/M is e^{ℓ/τ}, below e. Attention sums up D du,
with D as late against du as F is, and in D the vote ∫e^{ρu}du is such a sum itself. With u_μ as the clock

    B = (η̃_Z/η̃_Y) [∫ D du − τ ∫ {D′(x) + ((K − 1)ρ/M) ρe^{ρx} (u − x)} ẋ dx]

so that it begins 2ℓ + ½ steps late, two fillings in series. What is left out is of second order in η̃_Y τ/K: the lags
matter for t up to some ℓ, and all through where η_Y/(K(1 − μ)²) is not small, as in the paper's own runs (μ = 0.9,
η_Y = 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result
from scansnap.theory.closed_form import u as logit_gap
from scansnap.theory.drive import drive_rate
from scansnap.theory.frozen import exp_beyond_linear, panels


def momentum_lag(t: ArrayLike, *, momentum: ArrayLike) -> Result:
    """ℓ(1 − μ^t), how many steps the start takes from a motion of constant direction: exactly, at every step t.

    Parameters
    ----------
    t, momentum
        Time in steps; momentum μ.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> momentum_lag(100, momentum=0.9)
    8.9997...
    """
    t_, mu = to_arrays(t=t, momentum=momentum)
    return to_result(mu / (1 - mu) * (1 - mu**t_))


def momentum_gap(
    t: ArrayLike, *, eta_y: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike, momentum: ArrayLike
) -> Result:
    """u after t steps of SGD with momentum μ (0: plain steps) at the rate η_Y, to first order in η_Y/(1 − μ)².

        u(t − ℓ(1 − μ^t) + τ ln((M − 1 + e^u)/M)) at the rate η_Y/(1 − μ),    ℓ = μ/(1 − μ),  τ = ℓ + ½

    with the gap of the first two terms in the logarithm. For μ = 0 it is `scansnap.theory.h_recursion` times M.

    Parameters
    ----------
    t, eta_y, n_classes, vocab_size, momentum
        Time in steps; rate of Y; numbers of classes K and tokens M; momentum μ.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> momentum_gap(100, eta_y=1.0, n_classes=10, vocab_size=50, momentum=0.9)
    8.7365...
    """
    t_, eta, k, m, mu = to_arrays(t=t, eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size, momentum=momentum)
    return to_result(_gap(t_, eta / (1 - mu), k, m, mu))


def momentum_growth(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, momentum: ArrayLike,
) -> Result:  # fmt: skip
    """B_n after t steps with momentum μ: `scansnap.theory.growth_drive` (drive alone, leading order), lagging.

    Exact at the start, where the gap is a line: step by step its double sum is
    Σ_{j<t} (1 − μ^{t−j})(j − ℓ(1 − μ^j)) = t²/2 − (2ℓ + ½)t + 3ℓ² + 2ℓ − …, with terms in μ^t.

    Parameters
    ----------
    t, eta_y, eta_z, n_classes, vocab_size, overlap, momentum
        Time in steps; rates of Y and Z; numbers of classes K and tokens M; cosine ρ of two f_n; momentum μ.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> momentum_growth(100, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3, momentum=0.9)
    0.5526...
    """
    t_, eta, eta_z_, k, m, rho, mu = np.broadcast_arrays(*to_arrays(
        t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap, momentum=momentum
    ))  # fmt: skip
    rate = eta / (1 - mu)
    u = _gap(t_, rate, k, m, mu)
    lag = mu / (1 - mu)
    share, weights = panels()
    at = u[..., None] * share
    speed = (rate * m / k)[..., None] / (m[..., None] - 1 + np.exp(at))  # u̇
    sizes = [value[..., None] for value in (k, m, rho)]
    slope = np.asarray(drive_rate(at, n_classes=sizes[0], vocab_size=sizes[1], overlap=sizes[2]))
    slope = slope + (sizes[0] - 1) * sizes[2] ** 2 / sizes[1] * np.exp(sizes[2] * at) * (u[..., None] - at)
    late = (lag + 0.5) * u * ((slope * speed) @ weights)
    whole = (k - 1) / m * u * (exp_beyond_linear(rho * u) + rho * u / 2)  # ∫ D du
    # what the sums of the start have beyond the two terms, D being D′(0) u and u = u̇₀ (t − ℓ(1 − μ^t))
    x = t_ - lag * (1 - mu**t_)
    start = (k - 1) * rho / m * (rate / k) ** 2 * (_double_sum(t_, mu, lag) - (x**2 / 2 - (lag + 0.5) * x))
    return to_result(eta_z_ / eta * (whole - late + start))


def _gap(t: FloatArray, rate: FloatArray, k: FloatArray, m: FloatArray, mu: FloatArray) -> FloatArray:
    lag = mu / (1 - mu)
    x = t - lag * (1 - mu**t)
    u = np.asarray(logit_gap(x / k, eta_y=rate, vocab_size=m))
    ahead = (lag + 0.5) * np.log1p(np.expm1(u) / m)
    return np.asarray(logit_gap((x + ahead) / k, eta_y=rate, vocab_size=m))


def _double_sum(t: FloatArray, mu: FloatArray, lag: FloatArray) -> FloatArray:
    """Σ_{j<t} (1 − μ^{t−j})(j − ℓ(1 − μ^j)), as a function of any t."""
    gone = mu**t
    geometric = lag * (1 - gone)  # Σ μ^{t−j}
    rising = t * geometric - mu * (1 - (t + 1) * gone + t * gone * mu) / (1 - mu) ** 2  # Σ j μ^{t−j}
    return np.asarray(
        t * (t - 1) / 2 - lag * t + lag * (1 - gone) / (1 - mu) - rising + lag * geometric - lag * t * gone
    )
