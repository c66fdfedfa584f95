"""Insight (c) and its limit: does a faster decoder leave attention denser?

Section 6 of the paper concludes that a larger η_Y, at the same η_Z and time, makes attention less sparse. On the flow
the sign of ∂B_n/∂ln η_Y depends on the time and on ν = η_Y/η_Z. The gap u = u(η_Y t/K) responds with

    u_η = ∂u/∂ln η_Y = (e^u − 1 + (M − 1)u)/(e^u + M − 1)

Setting: K classes, K′ of each query, equal overlaps ρ, n equal distinct tokens in a class, m_c equal common tokens.
Conservation leaves one mode of the memory equation (`scansnap.theory.memory_tokens`), of stiffness κ = λη_Z/η_Y:

    λ = ρ(1 − ρ)(K′/m_c + 1/n),    z = (1 − ρ)/(nλ) · Z(u, κ),    ∂z/∂ln η_Y ∝ u_η ∂Z/∂u − κ ∂Z/∂κ

    before t₀           z grows as η_Y η_Z t²: the slope ∂ln z/∂ln η_Y is +1
    after t₀, ν ≫ ν*    the drive alone, z ∝ (η_Z/η_Y) u e^{ρu}: the slope tends to −(1 − ρ), insight (c)
    after t₀, ν < ν*    the memory holds attention at dz/du = D′/u, which has no η_Z/η_Y in it, while u still grows with
                        η_Y: the slope is positive, the opposite of insight (c)

ν* is where the slope is 0. It tends to λu/(1 − ρ) for ρu ≫ 1, slowly. Limits: first order in z, leading order in 1/M.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError, check_choice
from scansnap.theory.arguments import FloatArray, Result, positive_t, to_arrays, to_result
from scansnap.theory.closed_form import u as logit_gap
from scansnap.theory.memory import SymmetricTokens, mode_gain, mode_speed, mode_stiffness_slope

Measure = Literal["dominant", "entropy"]
MEASURES = ("dominant", "entropy")

_BISECTIONS = 50
_RANGE = 1e8  # ν is searched up to this times that at which the decoder has learned


def decoder_slope(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, n_distinct: ArrayLike, n_common: ArrayLike = 1, n_queries: ArrayLike = 1,
) -> Result:  # fmt: skip
    """∂ln B_n/∂ln η_Y at fixed η_Z and t: negative where a faster decoder leaves attention denser.

    Parameters
    ----------
    t, eta_y, eta_z
        Time in steps of batch size 1, > 0; learning rates of Y, the decoder, and of Z, attention.
    n_classes, vocab_size
        Number of classes K, of all queries; number of tokens M.
    overlap
        Cosine ρ of two f_n.
    n_distinct, n_common, n_queries
        Number of distinct tokens of a class, equally frequent; number of common tokens, equally frequent; number of
        queries, with equally many classes each.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> family = {"n_classes": 2, "vocab_size": 2000, "overlap": 0.24, "n_distinct": 5}
    >>> slopes = decoder_slope(1e4, eta_y=[0.02, 20.0], eta_z=0.02, **family)  # η_Y/η_Z = 1 and 1000
    >>> slopes.round(2)
    array([ 0.15, -0.69])
    """
    t_, eta_y_, eta_z_, *family = np.broadcast_arrays(*to_arrays(
        t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap,
        n_distinct=n_distinct, n_common=n_common, n_queries=n_queries,
    ))  # fmt: skip
    k, m, rho, *_ = family
    z, slope = _mode(positive_t(t_), eta_y_, _stiffness(*family) * eta_z_ / eta_y_, k, m, rho)
    return to_result(slope / z)


def crossover(
    t: ArrayLike, *, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike, overlap: ArrayLike,
    n_distinct: ArrayLike, n_common: ArrayLike = 1, n_queries: ArrayLike = 1,
) -> Result:  # fmt: skip
    """ν*, the ratio η_Y/η_Z above which a larger η_Y leaves attention denser, and below which it leaves it sparser.

    η_Z and t are fixed and η_Y varies: the largest B_n of all decoder rates is at η_Y = ν* η_Z. ``docs/theory.md`` has
    its distance from the exact flow.

    Parameters
    ----------
    t, eta_z
        Time in steps of batch size 1, > 0; learning rate of Z, attention.
    n_classes, vocab_size
        Number of classes K, of all queries; number of tokens M.
    overlap
        Cosine ρ of two f_n.
    n_distinct, n_common, n_queries
        Number of distinct tokens of a class, equally frequent; number of common tokens, equally frequent; number of
        queries, with equally many classes each.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> from scansnap.theory import t_snap
    >>> t = 10 * t_snap(eta_y=5.0, n_classes=2, vocab_size=2000)
    >>> round(crossover(t, eta_z=1.0, n_classes=2, vocab_size=2000, overlap=0.24, n_distinct=5), 2)
    3.95
    """
    t_, eta_z_, *family = np.broadcast_arrays(*to_arrays(
        t=t, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap, n_distinct=n_distinct,
        n_common=n_common, n_queries=n_queries,
    ))  # fmt: skip
    k, m, rho, *_ = family
    stiffness, time = _stiffness(*family), positive_t(t_) * eta_z_

    def rising(ratio: FloatArray) -> FloatArray:
        return _mode(time, ratio, stiffness / ratio, k, m, rho)[1]

    return to_result(_largest_ratio(rising, time, k, m))


def crossover_tokens(
    t: ArrayLike, *, eta_z: float, n_classes: int, vocab_size: int, f_distinct: ArrayLike,
    f_common: ArrayLike | None = None, measure: Measure = "dominant",
) -> Result:  # fmt: skip
    """ν* of one query whose classes have unequal distinct tokens, by the memory equation; broadcasts over t.

    Parameters
    ----------
    t, eta_z
        Time in steps of batch size 1, > 0; learning rate of Z, attention.
    n_classes, vocab_size
        Numbers of classes K and tokens M.
    f_distinct
        f_l of the distinct tokens, the same in every class.
    f_common
        f_l of the common tokens; by default there is one, with f_c² = 1 − Σ f_l².
    measure
        ``dominant``: the ratio of the largest z of the most frequent distinct token. ``entropy``: that of the least
        entropy of attention over the distinct tokens.

    Returns
    -------
    float or numpy.ndarray
        A float where ``t`` is a number; NaN where no ratio is the largest (the entropy of equal tokens).

    Examples
    --------
    >>> from scansnap.theory import t_snap
    >>> t = 3 * t_snap(eta_y=5.0, n_classes=2, vocab_size=2000)
    >>> f = [0.3, 0.4, 0.5, 0.5]
    >>> round(crossover_tokens(t, eta_z=1.0, n_classes=2, vocab_size=2000, f_distinct=f), 2)
    6.08
    """
    t_, eta_z_, k, m = to_arrays(t=t, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size)
    tokens, time = SymmetricTokens.of(f_distinct, f_common), np.asarray(positive_t(t_) * eta_z_)
    own = tokens.f[: tokens.n]
    if check_choice("measure", measure, MEASURES) == "dominant":
        weight = (np.arange(tokens.n) == np.argmax(own)).astype(float)
    else:
        share = own / own.sum()
        weight = share * (np.log(share) - share @ np.log(share))  # −∂H/∂z_l

    def rising(ratio: FloatArray) -> FloatArray:
        return np.asarray(token_changes(time, ratio, 1.0, k, m, tokens)[1][..., : tokens.n] @ weight)

    if np.abs(weight).max() < 1e-12:
        return to_result(np.full(time.shape, np.nan))
    return to_result(_largest_ratio(rising, time, k, m))


def token_changes(
    t: FloatArray, eta_y: FloatArray | float, eta_z: FloatArray | float, k: FloatArray, m: FloatArray,
    tokens: SymmetricTokens,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """z_l and ∂z_l/∂ln η_Y of the tokens of a class, distinct ones first; (…, tokens) each."""
    lam, part = tokens.push_modes(k)
    eta_y_ = np.asarray(eta_y)[..., None]
    each = np.broadcast_arrays(np.asarray(t)[..., None], eta_y_, lam * eta_z / eta_y_, k, m, tokens.rho)
    z, slope = _mode(*each)
    return z @ part, slope @ part


def _stiffness(
    k: FloatArray, m: FloatArray, rho: FloatArray, n: FloatArray, common: FloatArray, queries: FloatArray
) -> FloatArray:
    """λ = ρ(1 − ρ)(K′/m_c + 1/n)."""
    if (rho == 0).any():
        raise InputError("overlap", 0.0, "a float > 0", "classes without overlap do not move attention")
    return np.asarray(rho * (1 - rho) * (k / queries / common + 1 / n))


def _mode(
    t: FloatArray, eta_y: FloatArray, kappa: FloatArray, k: FloatArray, m: FloatArray, rho: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Z and ∂Z/∂ln η_Y = u_η ∂Z/∂u − κ ∂Z/∂κ of a mode with κ ∝ 1/η_Y."""
    u = np.asarray(logit_gap(t / k, eta_y=eta_y, vocab_size=m))
    response = (np.expm1(u) + (m - 1) * u) / (np.exp(u) + m - 1)  # u_η
    speed = mode_speed("leading", u, kappa, k, m, rho)
    slope = response * speed - mode_stiffness_slope(u, kappa, k, m, rho)
    return mode_gain("leading", u, kappa, k, m, rho), slope


def _largest_ratio(
    rising: Callable[[FloatArray], FloatArray], time: FloatArray, k: FloatArray, m: FloatArray
) -> FloatArray:
    """The ratio at which ``rising`` turns from positive to not, by bisection in ln ν; NaN where it does not."""
    learned = k * np.log(m) / time
    low, high = np.log(learned) - np.log(1e4), np.log(learned) + np.log(_RANGE)
    turns = (rising(np.exp(low)) > 0) & (rising(np.exp(high)) < 0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = rising(np.exp(middle)) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(turns, np.exp((low + high) / 2), np.nan)
