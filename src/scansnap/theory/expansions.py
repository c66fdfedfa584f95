"""The two phases: early (scanning) and late (snapping) expansions, and the times between them.

The expansions are what the paper prints (Theorem 1b, Lemma 9, Theorem 4). They are leading order in M and in
ln M, so they show scaling, not values: compare with the exact `gamma` and `growth`.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from scansnap.theory.arguments import FloatArray, Result, positive_t, to_arrays, to_result
from scansnap.theory.token_growth import Premise, growth_from


def t_scan(*, eta_y: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike) -> Result:
    """t₀′ = K ln M/η_Y, the end of the pure scanning regime (Theorem 4, Eq. 14).

    Up to here the early expansions give the order of magnitude. At t₀′ itself e^u ≈ 0.567 M, and γ is already
    down to 1/1.567 ≈ 64% of `gamma_early` for M → ∞ (58% at M = 1000).

    Parameters
    ----------
    eta_y, n_classes, vocab_size
        Rate of Y; numbers of classes K and tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> t_scan(eta_y=1.0, n_classes=10, vocab_size=50)
    39.1202...
    """
    eta_y_, k, m = to_arrays(eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size)
    return to_result(k * np.log(m) / eta_y_)


def t_snap(*, eta_y: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike, delta: ArrayLike = 0.0) -> Result:
    """t₀ = 2(1 + δ) K ln M/η_Y, the moment of snapping (Theorem 4, Eq. 14).

    The theorem gives δ only in order of magnitude, Θ(ln ln M/ln M). The default δ = 0 is the leading order, the
    time the paper quotes as t₀ ≈ 2K ln M/η_Y (Section 6, insight a). The value its proof uses is
    ``delta=snap_delta(vocab_size)``, which moves t₀ later by 40% at M = 100 and 20% at M = 10⁶.

    Parameters
    ----------
    eta_y, n_classes, vocab_size
        Rate of Y; numbers of classes K and tokens M.
    delta
        δ, 0 to leading order.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> t_snap(eta_y=1.0, n_classes=10, vocab_size=50)
    78.2404...
    """
    eta_y_, k, m, delta_ = to_arrays(eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size, delta=delta)
    return to_result(2 * (1 + delta_) * k * np.log(m) / eta_y_)


def snap_delta(vocab_size: ArrayLike) -> Result:
    """The δ of t₀ that the proof defines (ω₁ of Lemma 8): (1 + δ) ln M is the larger root of e^u = (M − 1) u.

    From that gap on, e^{Mh} outweighs (M − 1) M h in the equation of h. In closed form the root is
    u = −W₋₁(−1/(M − 1)). δ is 0 for M < 1 + e, where e^u always outweighs and there is no root.

    Parameters
    ----------
    vocab_size
        Number of tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> snap_delta(1000)
    0.3198...
    """
    (m,) = to_arrays(vocab_size=vocab_size)
    branch = np.maximum(m - 1, np.e)  # W₋₁ is real only up to M − 1 = e
    root = -lambertw(-1 / branch, k=-1).real
    return to_result(np.where(m - 1 < np.e, 0.0, np.maximum(root / np.log(m) - 1, 0.0)))


def gamma_early(t: ArrayLike, *, eta_y: ArrayLike, n_classes: ArrayLike) -> Result:
    """γ ≈ η_Y t/K for t ≤ t₀′ (Theorem 1b). As t → 0 the exact γ is ((M − 1)/M)² times this.

    Parameters
    ----------
    t, eta_y, n_classes
        Time in steps; rate of Y; number of classes K.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> gamma_early(5, eta_y=1.0, n_classes=10)
    0.5
    """
    t_, eta_y_, k = to_arrays(t=t, eta_y=eta_y, n_classes=n_classes)
    return to_result(eta_y_ * t_ / k)


def gamma_late(t: ArrayLike, *, eta_y: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike) -> Result:
    """γ ≈ K ln(M η_Y t/K)/(η_Y t) for t ≥ t₀ (Lemma 9, Eq. 57); t = 0 is refused.

    As t → ∞ the exact γ tends to ((M − 1)/M)² times this, slowly: the relative error is about u/(η_Y t/K), and at
    t₀ the exact value is still twice as large. Before M η_Y t/K = 1 the expansion is negative and means nothing.

    Parameters
    ----------
    t, eta_y, n_classes, vocab_size
        Time in steps; rate of Y; numbers of classes K and tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> gamma_late(1000, eta_y=1.0, n_classes=10, vocab_size=50)
    0.0851...
    """
    t_, eta_y_, k, m = to_arrays(t=t, eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size)
    s = positive_t(t_) / k
    return to_result(np.log(m * eta_y_ * s) / (eta_y_ * s))


def growth_early(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    **premise: Unpack[Premise],
) -> Result:  # fmt: skip
    """B_n for t < t₀′ (Theorem 4, Eq. 14, first branch): `growth` with h ≈ η_Y t/(MK), so

        qΓ ≈ q (M − 1)²/(2KM²) η_Y η_Z t²        (with q = 4 the printed 2(M − 1)²/(KM²) η_Y η_Z t²)

    The exact Γ is smaller, by less than a relative e^u/M.

    Parameters
    ----------
    t, eta_y, eta_z, n_classes, vocab_size
        Time in steps; rates of Y and Z; numbers of classes K and tokens M.
    **premise
        ``c0``, ``exponent``, ``form``, ``p_class`` and ``p_query``; see `growth`.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> growth_early(5, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50)
    0.0980...
    """
    return growth_from(_early, t, (eta_y, eta_z, n_classes, vocab_size), **premise)


def growth_late(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    **premise: Unpack[Premise],
) -> Result:  # fmt: skip
    """B_n for t ≥ t₀ (Theorem 4, Eq. 14, second branch): `growth` with h ≈ ln(M η_Y t/K)/M, so

        qΓ ≈ q K (M − 1)²/(2M²) (η_Z/η_Y) ln²(M η_Y t/K)

    B_n grows like ln ln t: attention is almost frozen, never quite. t = 0 is refused, and before M η_Y t/K = 1
    the expansion falls with t and means nothing.

    Parameters
    ----------
    t, eta_y, eta_z, n_classes, vocab_size
        Time in steps; rates of Y and Z; numbers of classes K and tokens M.
    **premise
        ``c0``, ``exponent``, ``form``, ``p_class`` and ``p_query``; see `growth`.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> growth_late(1000, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50)
    1.2360...
    """
    return growth_from(_late, t, (eta_y, eta_z, n_classes, vocab_size), **premise)


def _early(t: FloatArray, eta_y: FloatArray, eta_z: FloatArray, k: FloatArray, m: FloatArray) -> FloatArray:
    return eta_y * eta_z / k * ((m - 1) / m * t) ** 2 / 2


def _late(t: FloatArray, eta_y: FloatArray, eta_z: FloatArray, k: FloatArray, m: FloatArray) -> FloatArray:
    u = np.log(m * eta_y * positive_t(t) / k)
    return eta_z / eta_y * k * ((m - 1) / m * u) ** 2 / 2
