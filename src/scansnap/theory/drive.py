"""The drive: what moves attention as long as it has hardly moved, to leading order in 1/M.

The symmetric family: K classes of one query, drawn uniformly, with equal overlaps ρ = f_nᵀf_n' (one common token of
f_c² = ρ, and distinct ones). With the attention frozen Y = Σ_n f_n a_nᵀ, ȧ_n = η_Y p_n r_n, r_n = e_n − α_n, and the
part of g_n = Y r_n that moves attention is −Σ_{n'≠n} γβ f_n', γβ = −a_n'·r_n. With the logit gap u as the clock
(`scansnap.theory.u` at s = t/K), per unit of it:

    γβ(u) = [u e^{ρu} + (e^{ρu} − 1)/ρ − u]/M           D(u) = (K − 1) ρ γβ(u)

The first term is the share that class n' has of the softmax's error, e^{ρu}/M, the other two the vote that a_n' has
gathered against n. Distinct tokens move as dz_l/du = (η_Z/η_Y) f_l² D, the common one as −(η_Z/η_Y) K (1 − ρ) D, so

    B_n = (η_Z/η_Y) ∫ D du = (η_Z/η_Y) (K − 1)/M [u (e^{ρu} − 1) − ρu²/2]

This is the B_n of Theorem 3 as η_Y/η_Z → ∞; it takes the place of Theorem 4's, whose premise fails. Limits: D is too
large by a relative (κ/ρ + K − 1) e^{ρu}/M, κ = 1 + ρ(K − 2), where ρu ≫ 1 (by less before). So leading order is not
good at all times: it ends at u ≈ ln(ρM)/ρ, where the others' logits saturate and the power t^ρ becomes ln² t.
``form="exact"`` has no such end: it is the frozen decoder at any M (`scansnap.theory.frozen`), in the clock
A − C, the difference of the entries of a_n at its own next token and at one that is nobody's. The memory of the decoder
(`scansnap.theory.memory`) is in neither.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import check_choice
from scansnap.theory.arguments import FloatArray, Result, positive_t, to_arrays, to_result
from scansnap.theory.closed_form import u as logit_gap
from scansnap.theory.frozen import SymmetricFamily, exp_beyond_linear, frozen_decoder

Form = Literal["leading", "exact"]
FORMS = ("leading", "exact")


def beta(
    u: ArrayLike, *, n_classes: ArrayLike, vocab_size: ArrayLike, overlap: ArrayLike, form: Form = "leading"
) -> Result:
    """γβ_nn' per unit of the clock u. Leading order: [u e^{ρu} + (e^{ρu} − 1)/ρ − u]/M, from u/M at ρ = 0.

    Parameters
    ----------
    u, n_classes, vocab_size, overlap, form
        Logit gap M h; numbers of classes K and tokens M; cosine ρ of two f_n; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> beta(2.0, n_classes=10, vocab_size=50, overlap=0.3)
    0.0876...
    """
    u_, k, m, rho = to_arrays(u=u, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap)
    if check_choice("form", form, FORMS) == "exact":
        return to_result(SymmetricFamily(k, m, rho).at(u_).beta)
    return to_result((u_ * np.exp(rho * u_) + u_ * _mean_growth(rho * u_)) / m + 0 * k)


def beta_rate(
    u: ArrayLike, *, n_classes: ArrayLike, vocab_size: ArrayLike, overlap: ArrayLike, form: Form = "leading"
) -> Result:
    """The derivative of `beta` by u. Leading order: [2e^{ρu} + ρu e^{ρu} − 1]/M.

    Parameters
    ----------
    u, n_classes, vocab_size, overlap, form
        Logit gap M h; numbers of classes K and tokens M; cosine ρ of two f_n; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> beta_rate(2.0, n_classes=10, vocab_size=50, overlap=0.3)
    0.0747...
    """
    u_, k, m, rho = to_arrays(u=u, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap)
    if check_choice("form", form, FORMS) == "exact":
        return to_result(SymmetricFamily(k, m, rho).at(u_).beta_rate)
    growth = np.exp(rho * u_)
    return to_result((growth + np.expm1(rho * u_) + rho * u_ * growth) / m + 0 * k)


def drive(
    u: ArrayLike, *, n_classes: ArrayLike, vocab_size: ArrayLike, overlap: ArrayLike, form: Form = "leading"
) -> Result:
    """D(u) = (K − 1) ρ γβ = ξ_n per unit of the clock. Early (K − 1)ρu/M, late (leading) (K − 1)ρu e^{ρu}/M.

    The exact one goes on linearly in u: see `drive_rate`.

    Parameters
    ----------
    u, n_classes, vocab_size, overlap, form
        Logit gap M h; numbers of classes K and tokens M; cosine ρ of two f_n; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> drive(2.0, n_classes=10, vocab_size=50, overlap=0.3)
    0.2367...
    """
    u_, k, m, rho = to_arrays(u=u, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap)
    return to_result((k - 1) * rho * np.asarray(beta(u_, n_classes=k, vocab_size=m, overlap=rho, form=form)))


def drive_rate(
    u: ArrayLike, *, n_classes: ArrayLike, vocab_size: ArrayLike, overlap: ArrayLike, form: Form = "leading"
) -> Result:
    """D′(u) = ((K − 1)ρ/M) [2e^{ρu} + ρu e^{ρu} − 1]. Both forms are positive at every u, so that D only rises.

    The exact one tends to (K − 1)ρ²(1 + κ)/κ², κ = 1 + ρ(K − 2), as M → ∞ and u ≫ ln(ρM)/ρ.

    Parameters
    ----------
    u, n_classes, vocab_size, overlap, form
        Logit gap M h; numbers of classes K and tokens M; cosine ρ of two f_n; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> drive_rate(2.0, n_classes=10, vocab_size=50, overlap=0.3)
    0.2018...
    """
    k, rho = to_arrays(n_classes=n_classes, overlap=overlap)
    rate = np.asarray(beta_rate(u, n_classes=k, vocab_size=vocab_size, overlap=rho, form=form))
    return to_result((k - 1) * rho * rate)


def growth_drive(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, form: Form = "leading",
) -> Result:  # fmt: skip
    """B_n(t) = η_Z p_n ∫ξ_n dt of attention that does not move: what Theorem 3's B_n is as η_Y/η_Z → ∞.

        leading   (η_Z/η_Y) (K − 1)/M [u (e^{ρu} − 1) − ρu²/2],   u = u(t/K)
        exact     −½ (η_Z/η_Y) (K − 1) ρ a_n·a_n'                 since d(a_n·a_n')/dt = −2 η_Y p γβ

    p_n = 1/K is in it, unlike in the paper's.

    Parameters
    ----------
    t, eta_y, eta_z
        Time in steps; rates of Y and Z.
    n_classes, vocab_size, overlap, form
        Numbers of classes K and tokens M; cosine ρ of two f_n; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> growth_drive(100, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3)
    0.3257...
    """
    t_, eta_y_, eta_z_, k, m, rho = to_arrays(
        t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap
    )
    if check_choice("form", form, FORMS) == "exact":
        state = frozen_decoder(t_, eta_y=eta_y_, n_classes=k, vocab_size=m, overlap=rho)
        return to_result(eta_z_ / eta_y_ * state.growth)
    u_ = np.asarray(logit_gap(t_ / k, eta_y=eta_y_, vocab_size=m))
    # u(e^{ρu} − 1) − ρu²/2 = u [(e^{ρu} − 1 − ρu) + ρu/2]: nothing cancels
    return to_result(eta_z_ / eta_y_ * (k - 1) / m * u_ * (exp_beyond_linear(rho * u_) + rho * u_ / 2))


def growth_drive_early(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike,
) -> Result:  # fmt: skip
    """B_n ≈ (K − 1)ρ η_Y η_Z t²/(2K²M), to a relative ρη_Y t/K: the gap is η_Y t/K and every β is 1/M.

    Parameters
    ----------
    t, eta_y, eta_z, n_classes, vocab_size, overlap
        Time in steps; rates of Y and Z; numbers of classes K and tokens M; cosine ρ of two f_n.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> growth_drive_early(5, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3)
    0.000674...
    """
    t_, eta_y_, eta_z_, k, m, rho = to_arrays(
        t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap
    )
    return to_result((k - 1) * rho / m * eta_z_ * eta_y_ * (t_ / k) ** 2 / 2)


def growth_drive_late(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, form: Form = "leading",
) -> Result:  # fmt: skip
    """B_n after t₀, with u ≈ ln(M η_Y t/K); t = 0 is refused, and before M η_Y t/K = 1 it means nothing.

        leading   (η_Z/η_Y) (K − 1)/M · u e^{ρu}                    a power t^ρ, while 1/ρ ≪ u ≪ ln(ρM)/ρ
        exact     (η_Z/η_Y) (K − 1) ρ²(1 + κ)/κ² · u²/2, κ = 1 + ρ(K − 2)      ln² t, for u ≫ ln(ρM)/ρ, M → ∞

    In the second the gap of the logits is λ(A − C) with λ = (1 − ρ)(1 + ρ(K − 1))/κ, so that its u is
    ln(M η_Y t/K)/λ.

    Parameters
    ----------
    t, eta_y, eta_z
        Time in steps; rates of Y and Z.
    n_classes, vocab_size, overlap, form
        Numbers of classes K and tokens M; cosine ρ of two f_n; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> growth_drive_late(1000, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3)
    1.9736...
    """
    t_, eta_y_, eta_z_, k, m, rho = to_arrays(
        t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap
    )
    u_ = np.log(m * eta_y_ * positive_t(t_) / k)
    if check_choice("form", form, FORMS) == "exact":
        kappa = 1 + rho * (k - 2)
        u_ = u_ * kappa / ((1 - rho) * (1 + rho * (k - 1)))
        return to_result(eta_z_ / eta_y_ * (k - 1) * rho**2 * (1 + kappa) / kappa**2 * u_**2 / 2)
    return to_result(eta_z_ / eta_y_ * (k - 1) / m * u_ * np.exp(rho * u_))


def _mean_growth(x: FloatArray) -> FloatArray:
    """(e^x − 1 − x)/x, which is 0 at x = 0."""
    safe = np.where(x > 0, x, 1.0)
    return np.where(x > 0, exp_beyond_linear(x) / safe, 0.0)
