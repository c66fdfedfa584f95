"""How far attention moves: growth exponent B_n, growth factor χ_l and relative gain (Theorems 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError, check_choice
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result
from scansnap.theory.closed_form import gamma_integral

Form = Literal["corrected", "printed"]
FORMS = ("corrected", "printed")
_ROUNDING = 1e-9  # of a sum of probabilities


class Premise(TypedDict, total=False):
    """What Theorem 4 takes as given beside rates and sizes; the defaults are the paper's (see `growth`)."""

    c0: ArrayLike  # C₀, default 1
    exponent: ArrayLike  # q, default 4
    form: Form  # default "corrected"
    p_class: ArrayLike  # p_n, default 1
    p_query: ArrayLike  # P, default 1


def growth(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    **premise: Unpack[Premise],
) -> Result:  # fmt: skip
    """The growth exponent B_n(t) of Theorem 4, for all t in one formula.

    Premise (Eq. 13, an estimate for a single common token, one query shared by all classes and a constant
    normaliser ρ₀; C₀ = ρ₀⁴/K): the common token's logit z obeys ż = −C₀⁻¹ η_Z γ e^{qz}, z(0) = 0, and
    ξ_n = C₀⁻¹ γ e^{qz}. The paper has q = 4; it is ``exponent`` here because exact flows show other values.
    With Γ = η_Z ∫γ (`gamma_integral`):

        d(e^{−qz})/dt = q C₀⁻¹ η_Z γ      ⇒   e^{−qz} = 1 + qΓ/C₀
        η_Z ξ_n = η_Z γ/(C₀ + qΓ)         ⇒   ∫ dΓ/(C₀ + qΓ) = (1/q) ln(1 + qΓ/C₀) = −z

    That is η_Z ∫ξ_n dt, as the paper has it, and what is returned by default. One class gains p_n times as much,
    B_n = η_Z p_n ∫ξ_n dt: by the exact conservation Σ_l ż_ml = 0 the classes of a query share the common token's
    fall between them. With ``p_class`` = p_n, and ``p_query`` = P, the probability of all classes of the query
    (1 where they all share it), the common token falls as ż = −C₀⁻¹ P η_Z γ e^{qz}, and

        B_n(t) = (p_n/P) (1/q) ln(1 + q P Γ/C₀)

    ``form="printed"`` is the paper's (1/q) ln(C₀ + qΓ) (Eq. 129), which lacks the lower limit of the integral:
    it is off by the constant (1/q) ln C₀ and starts from it instead of 0. At C₀ = 1 the two agree.

    Limits: those of the premise.

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
    >>> growth(100, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50)
    1.0157...
    """
    return growth_from(_exact, t, (eta_y, eta_z, n_classes, vocab_size), **premise)


def _exact(t: FloatArray, eta_y: FloatArray, eta_z: FloatArray, k: FloatArray, m: FloatArray) -> FloatArray:
    return np.asarray(gamma_integral(t, eta_y=eta_y, eta_z=eta_z, n_classes=k, vocab_size=m))


def growth_from(
    integral: Callable[..., FloatArray], t: ArrayLike, rates_and_sizes: tuple[ArrayLike, ...], *,
    c0: ArrayLike = 1.0, exponent: ArrayLike = 4.0, form: Form = "corrected",
    p_class: ArrayLike = 1.0, p_query: ArrayLike = 1.0,
) -> Result:  # fmt: skip
    """B_n from Γ(t, η_Y, η_Z, K, M), exact or expanded: (p_n/P)(1/q) ln(1 + qPΓ/C₀), or printed …ln(C₀ + qPΓ)."""
    rates = dict(zip(("eta_y", "eta_z", "n_classes", "vocab_size"), rates_and_sizes, strict=True))
    t_, eta_y_, eta_z_, k, m, c0_, q, p_n, p = to_arrays(
        t=t, **rates, c0=c0, exponent=exponent, p_class=p_class, p_query=p_query
    )
    check_choice("form", form, FORMS)
    if (p_n > p * (1 + _ROUNDING)).any():
        over = np.broadcast_arrays(p_n, p)[0][p_n > p * (1 + _ROUNDING)]
        raise InputError("p_class", float(over.max()), "at most p_query: a class is one of its query's")
    reach = q * p * integral(t_, eta_y_, eta_z_, k, m)
    return to_result(p_n / p * (np.log(c0_ + reach) if form == "printed" else np.log1p(reach / c0_)) / q)


def chi(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    f_dominant: ArrayLike, **premise: Unpack[Premise],
) -> tuple[Result, Result]:  # fmt: skip
    """Bounds (lower, upper) of the growth factor χ_{l₀}(t) = e^{2(z_ml₀(t) − z_ml₀(0))} (Theorem 3, Eq. 12).

        e^{2 f² B_n} ≤ χ_{l₀} ≤ e^{2 B_n},   f = f_{nl₀}(0) = ``f_dominant``

    l₀ is the dominant distinct token of the class: the one with the largest attention at t = 0. Valid while
    every common token of the class falls; B_n is `growth`, with its limits and its ``p_class`` and
    ``p_query``: left at 1 they leave out p_n, as the paper does. The printed form can be
    negative at small t (C₀ < 1), and the bounds are then in the wrong order. A bound too large for a double is
    inf.

    Parameters
    ----------
    t, eta_y, eta_z, n_classes, vocab_size
        Time in steps; rates of Y and Z; numbers of classes K and tokens M.
    f_dominant
        f_nl₀(0) of the dominant distinct token.
    **premise
        ``c0``, ``exponent``, ``form``, ``p_class`` and ``p_query``; see `growth`.

    Returns
    -------
    tuple
        Lower and upper bound.

    Examples
    --------
    >>> chi(100, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, f_dominant=0.5)[0]
    1.6617...
    """
    b = growth(t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, **premise)
    (f,) = to_arrays(f_dominant=f_dominant)
    with np.errstate(over="ignore"):
        return to_result(np.exp(2 * f**2 * b)), to_result(np.exp(2 * np.asarray(b)))


def relative_gain(r0: ArrayLike, chi: ArrayLike) -> Result:
    """r_{l/l'|n}(t) = r(0) χ_l(t), the relative gain c_l²/c_l'² − 1 of one distinct token over another (Eq. 11).

    Exact as long as ż_ml/f_nl² is the same for both tokens; in exact flows that holds while η_Y ≫ η_Z. For the
    weaker of the two tokens r(0) < 0, and its χ stays below 1/|r(0)|.

    Parameters
    ----------
    r0
        Relative gain at t = 0.
    chi
        Growth factor χ.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> relative_gain(0.5, 2.0)
    1.0
    """
    r0_, chi_ = to_arrays(r0=r0, chi=chi)
    return to_result(r0_ * chi_)
