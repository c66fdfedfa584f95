"""How far attention moves: growth exponent B_n, growth factor χ_l and relative gain (Theorems 3 and 4)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError, choice
from scansnap.theory.closed_form import gamma_integral
from scansnap.theory.inputs import FloatArray, Result, read, result

Form = Literal["corrected", "printed"]
FORMS = ("corrected", "printed")
_ROUNDING = 1e-9  # of a sum of probabilities


def growth(
    t: ArrayLike,
    *,
    eta_y: ArrayLike,
    eta_z: ArrayLike,
    n_classes: ArrayLike,
    vocab_size: ArrayLike,
    c0: ArrayLike = 1.0,
    exponent: ArrayLike = 4.0,
    form: Form = "corrected",
    p_class: ArrayLike = 1.0,
    p_query: ArrayLike = 1.0,
) -> Result:
    """The growth exponent B_n(t) of Theorem 4, for all t in one formula.

    Premise (Eq. 13, an estimate for a single common token, one query shared by all classes and a constant
    normaliser ρ₀; C₀ = ρ₀⁴/K): the common token's logit z obeys ż = −C₀⁻¹ η_Z γ e^{qz}, z(0) = 0, and
    ξ_n = C₀⁻¹ γ e^{qz}. The paper has q = 4; it is ``exponent`` here because exact flows show other values.
    With Γ = η_Z ∫γ (:func:`gamma_integral`):

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
    """
    t_, eta_y_, eta_z_, k, m, c0_, q, *p = read(
        t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, c0=c0, exponent=exponent,
        p_class=p_class, p_query=p_query,
    )  # fmt: skip
    choice("form", form, FORMS)
    total = gamma_integral(t_, eta_y=eta_y_, eta_z=eta_z_, n_classes=k, vocab_size=m)
    return result(from_integral(total, c0_, q, form, *p))


def from_integral(
    total: FloatArray, c0: FloatArray, q: FloatArray, form: Form, p_class: FloatArray, p_query: FloatArray
) -> FloatArray:
    """B_n from Γ, exact or expanded: (p_n/P)(1/q) ln(1 + qPΓ/C₀), or as printed (p_n/P)(1/q) ln(C₀ + qPΓ)."""
    if (p_class > p_query * (1 + _ROUNDING)).any():
        over = np.broadcast_arrays(p_class, p_query)[0][p_class > p_query * (1 + _ROUNDING)]
        raise InputError("p_class", float(over.max()), "at most p_query: a class is one of its query's")
    reach = q * p_query * total
    return p_class / p_query * (np.log(c0 + reach) if form == "printed" else np.log1p(reach / c0)) / q


def chi(
    t: ArrayLike,
    *,
    eta_y: ArrayLike,
    eta_z: ArrayLike,
    n_classes: ArrayLike,
    vocab_size: ArrayLike,
    f_dominant: ArrayLike,
    c0: ArrayLike = 1.0,
    exponent: ArrayLike = 4.0,
    form: Form = "corrected",
    p_class: ArrayLike = 1.0,
    p_query: ArrayLike = 1.0,
) -> tuple[Result, Result]:
    """Bounds (lower, upper) of the growth factor χ_{l₀}(t) = e^{2(z_ml₀(t) − z_ml₀(0))} (Theorem 3, Eq. 12).

        e^{2 f² B_n} ≤ χ_{l₀} ≤ e^{2 B_n},   f = f_{nl₀}(0) = ``f_dominant``

    l₀ is the dominant distinct token of the class: the one with the largest attention at t = 0. Valid while
    every common token of the class falls; B_n is :func:`growth`, with its limits and its ``p_class`` and
    ``p_query``: left at 1 they leave out p_n, as the paper does. The printed form can be
    negative at small t (C₀ < 1), and the bounds are then in the wrong order. A bound too large for a double is
    inf.
    """
    b = growth(
        t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size, c0=c0, exponent=exponent,
        form=form, p_class=p_class, p_query=p_query,
    )  # fmt: skip
    (f,) = read(f_dominant=f_dominant)
    with np.errstate(over="ignore"):
        return result(np.exp(2 * f**2 * b)), result(np.exp(2 * np.asarray(b)))


def relative_gain(r0: ArrayLike, chi: ArrayLike) -> Result:
    """r_{l/l'|n}(t) = r(0) χ_l(t), the relative gain c_l²/c_l'² − 1 of one distinct token over another (Eq. 11).

    Exact as long as ż_ml/f_nl² is the same for both tokens; in exact flows that holds while η_Y ≫ η_Z. For the
    weaker of the two tokens r(0) < 0, and its χ stays below 1/|r(0)|.
    """
    r0_, chi_ = read(r0=r0, chi=chi)
    return result(r0_ * chi_)
