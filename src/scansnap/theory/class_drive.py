"""The drive when every class has its own time scale: unequal p_n, and overlaps that differ from pair to pair.

Attention frozen, Y = Σ f_n a_nᵀ, to leading order in 1/M. Class n has been seen s = p_n t times, and its gap is Lemma
3's u_n = u(p_n t): in the logits of class n the next token of n' has only ρu_n', ρ = ρ_nn' = f_nᵀf_n'. So per unit of
u_n the error r_n is e_n, less e^{ρu_n'}/M on each n' and 1/M on the rest, and with γβ_nn' = −a_n'·r_n

    γβ_nn' = [u_n' e^{ρu_n'} + ∫ e^{ρu_n} du_n' − u_n']/M

that is the share that n' has of the error of class n, the vote of a_n' against n, and the rest's part in both: two
time scales enter. With b_nn' = (η_Z/η_Y) ∫ γβ_nn' du_n and its inner integral done by parts, U_n being u_n at the end,

    b_nn' = (η_Z/(η_Y M)) [∫ u_n'(e^{ρu_n'} − 1) du_n + ∫ e^{ρu_n} (U_n − u_n) du_n']

    B_n = Σ_n'≠n ρ_nn' b_nn'           z_ml = Σ_{n ∈ ψ⁻¹(m)} f_nl Σ_n'≠n b_nn' (ρ_nn' f_nl − f_n'l)

for any token, distinct or common, and any queries. Equal time scales give `scansnap.theory.growth_drive`. While
e^u ≪ M the gaps are linear in t, and b_nn' begins as (η_Z/η_Y) u_n u_n'/(2M), the same both ways; at any time and any M

    b_nn' + b_n'n = −(η_Z/η_Y) a_n·a_n'       exactly,

since d(a_n·a_n')/dt = η_Y (p_n a_n'·r_n + p_n' a_n·r_n'). Late the gaps differ by ln(p_n'/p_n), and b_nn' is near
(η_Z/(η_Y M ρ)) u_n' e^{ρu_n'}: the frequent class moves the attention of the rare one (p_n'/p_n)^ρ times as far as the
other way round. As in `scansnap.theory.drive` leading order ends at u ≈ ln(ρM)/ρ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError
from scansnap.theory.arguments import FloatArray, to_arrays
from scansnap.theory.closed_form import u as logit_gap
from scansnap.theory.frozen import panels

_ROUNDING = 1e-9  # of a sum of probabilities


@dataclass(frozen=True)
class ClassDrive:
    """The drive of the attention of K classes, as `class_drive` computes it. The first axes are those of the times.

    Attributes
    ----------
    gap
        Logit gap u_n, shape (…, K).
    pair
        b_nn', shape (…, K, K), 0 on the diagonal.
    growth
        B_n = Σ ρ_nn' b_nn', shape (…, K).

    Examples
    --------
    >>> drive = class_drive([10, 100], eta_y=1.0, eta_z=0.1, p_class=[0.25, 0.75], vocab_size=50, overlap=0.3)
    >>> drive.gap.shape, drive.pair.shape
    ((2, 2), (2, 2, 2))
    """

    gap: FloatArray
    pair: FloatArray
    growth: FloatArray


def class_drive(
    t: ArrayLike, *, eta_y: float, eta_z: float, p_class: ArrayLike, vocab_size: float, overlap: ArrayLike
) -> ClassDrive:
    """What drives the attention of K classes with probabilities ``p_class`` and overlaps ρ_nn'; by quadrature.

    ``overlap`` is one number for all pairs or a symmetric table (K, K), whose diagonal is ignored.

    Parameters
    ----------
    t, eta_y, eta_z, vocab_size, overlap
        Time in steps; rates of Y and Z; number of tokens M; cosine ρ of two f_n.
    p_class
        Class probabilities p_n.

    Returns
    -------
    ClassDrive

    Examples
    --------
    >>> value = class_drive(100, eta_y=1.0, eta_z=0.1, p_class=[0.25, 0.75], vocab_size=50, overlap=0.3).growth[0]
    >>> round(float(value), 4)
    0.1597
    """
    (t_,) = to_arrays(t=t)
    eta_y_, eta_z_, m = to_arrays(eta_y=eta_y, eta_z=eta_z, vocab_size=vocab_size)
    (p,), (rho,) = to_arrays(p_class=p_class), to_arrays(overlap=_off_diagonal(overlap))
    if p.ndim != 1 or p.sum() > 1 + _ROUNDING:
        raise InputError("p_class", p_class, "a row of numbers with a sum of at most 1")
    k = len(p)
    if rho.shape not in ((), (k, k)) or not np.array_equal(rho, rho.T):
        raise InputError("overlap", overlap, f"a number or a symmetric table of {k} by {k}")
    rho = np.broadcast_to(rho, (k, k)) * (1 - np.eye(k))
    gap = np.asarray(logit_gap(t_[..., None] * p, eta_y=eta_y_, vocab_size=m))  # (…, K)
    share, weights = panels()
    pair = np.zeros((*gap.shape, k))
    for n in range(k):  # one class at a time: all pairs at once would be K² times 240 numbers
        own = gap[..., n, None] * share  # (…, nodes): the gap of n up to its end
        visits = (np.expm1(own) + (m - 1) * own) / (m * eta_y_)  # s of n at that gap
        their_gap = np.asarray(logit_gap(visits[..., None, :] * (p / p[n])[:, None], eta_y=eta_y_, vocab_size=m))
        bent = rho[n, :, None] * their_gap  # (…, K, nodes)
        pair[..., n, :] += (their_gap * np.expm1(bent)) @ weights * gap[..., n, None]  # ∫ u_n'(e^{ρu_n'} − 1) du_n
        # ∫ e^{ρu_n'} (U_n' − u_n') du_n, which is the second term of b_n'n
        pair[..., :, n] += (np.exp(bent) * (gap[..., None] - their_gap)) @ weights * gap[..., n, None]
    pair *= eta_z_ / (eta_y_ * m) * (1 - np.eye(k))
    return ClassDrive(gap, pair, (rho * pair).sum(-1))


def _off_diagonal(overlap: ArrayLike) -> ArrayLike:
    """The overlap of a class with itself is 1, which is none between classes."""
    table = np.asarray(overlap)
    if table.ndim == 2 and table.shape[0] == table.shape[1] and table.dtype.kind in "iuf":
        return np.asarray(table * (1 - np.eye(len(table))))
    return overlap
