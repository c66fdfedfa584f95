"""How fast the decoder learns: h, the logit gap u = M h, and the speed γ it gives to attention.

Lemmas 5–7, Lemma 9 and Theorem 1 in the limit of orthonormal f_n: K sequence classes drawn uniformly, Y(0) = 0,
attention frozen while the decoder learns (η_Y ≫ η_Z). t counts batch-size-1 steps, so one class has been seen
s = t/K times. With overlapping classes the formulas are approximations;
`scansnap.claims.assumptions` says how far a setting is from the limit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import wrightomega

from scansnap.checks import InputError, check_integer
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result

_NEWTON_STEPS = 3  # the start is good to 1e-15 absolute; the first step makes that relative, two are spare
_LARGEST = 1e300  # of M η_Y s; e^u ≤ 1 + M η_Y s, so below it nothing can overflow


def u(s: ArrayLike, *, eta_y: ArrayLike, vocab_size: ArrayLike) -> Result:
    """The logit gap u = M h between the right next token and every other one, after s visits of a class.

    ``u`` is always this closed form; ``gap`` is the same difference of logits measured on a run.

        e^u + (M − 1) u = M η_Y s + 1          (Lemma 6, Eq. 45, with u = M h)

    Solved by u = a − ω(a − ln(M−1)), a = (M η_Y s + 1)/(M − 1), ω the Wright omega function, then polished by
    Newton steps. Accurate to a few units in the last place for every s ≥ 0 and M ≥ 2 with M η_Y s ≤ 1e300.

    Parameters
    ----------
    s, eta_y, vocab_size
        Visits of a class; rate of Y; number of tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> u(100, eta_y=1.0, vocab_size=50)
    8.4311...
    """
    return to_result(_u(*to_arrays(s=s, eta_y=eta_y, vocab_size=vocab_size)))


def h(s: ArrayLike, *, eta_y: ArrayLike, vocab_size: ArrayLike) -> Result:
    """h(s), the continuous-time solution of dh/ds = η_Y / (M − 1 + e^{Mh}), h(0) = 0 (Lemma 6, Eqs. 44–45).

    The decoder's logits for class n are (M − 1) h for its own next token and −h for all others. The step-wise
    value is `h_recursion`, which exceeds h by at most 2η_Y/M when η_Y < 1 (Lemma 7).

    Parameters
    ----------
    s, eta_y, vocab_size
        Visits of a class; rate of Y; number of tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> h(100, eta_y=1.0, vocab_size=50)
    0.1686...
    """
    s_, eta_y_, m = to_arrays(s=s, eta_y=eta_y, vocab_size=vocab_size)
    return to_result(_u(s_, eta_y_, m) / m)


def h_recursion(steps: int, *, eta_y: ArrayLike, vocab_size: ArrayLike) -> FloatArray:
    """h after 0, 1, …, ``steps`` gradient steps: h ← h + η_Y/(M − 1 + e^{Mh}) from h = 0 (Lemma 5, Eq. 33).

    The step is the first axis of the result; the shape of ``eta_y`` and ``vocab_size`` follows.

    Parameters
    ----------
    steps
        Number of gradient steps.
    eta_y, vocab_size
        Rate of Y; number of tokens M.

    Returns
    -------
    numpy.ndarray
        By step first.

    Examples
    --------
    >>> round(float(h_recursion(3, eta_y=0.5, vocab_size=10)[-1]), 4)
    0.1399
    """
    steps = check_integer("steps", steps)
    eta_y_, m = np.broadcast_arrays(*to_arrays(eta_y=eta_y, vocab_size=vocab_size))
    u_ = np.zeros((steps + 1, *m.shape))
    for step in range(steps):
        decay = np.exp(-u_[step])  # e^{−u} instead of e^u: a step of η_Y = 1000 must not overflow
        u_[step + 1] = u_[step] + m * eta_y_ * decay / (1 + (m - 1) * decay)
    return u_ / m


def gamma(t: ArrayLike, *, eta_y: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike) -> Result:
    """The speed γ(t) of attention (Theorem 1, Eq. 85, in continuous time): g_n = γ (ι_n f_n − Σ β_nn' f_n').

        γ(t) = (M − 1)² h / (M − 1 + e^{Mh}),  h = h(t/K)

    It rises like η_Y t/K, peaks a little before t₀′ (at 0.8 to 0.9 t₀′ for M from 100 to 10⁶) and falls like
    ln t/t (`gamma_early`, `gamma_late`).

    Parameters
    ----------
    t, eta_y, n_classes, vocab_size
        Time in steps; rate of Y; numbers of classes K and tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> gamma(100, eta_y=1.0, n_classes=10, vocab_size=50)
    0.9263...
    """
    t_, eta_y_, k, m = to_arrays(t=t, eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size)
    u_ = _u(t_ / k, eta_y_, m)
    return to_result((m - 1) / m * u_ / (1 + np.exp(u_) / (m - 1)))


def gamma_integral(
    t: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike
) -> Result:
    """Γ(t) = η_Z ∫₀ᵗ γ dt′ = (η_Z/η_Y) K (M − 1)² h(t/K)²/2 (Appendix F, Eq. 128).

    Exact for the γ of `gamma`: along the flow γ dt = (K/η_Y)(M − 1)² h dh.

    Parameters
    ----------
    t, eta_y, eta_z, n_classes, vocab_size
        Time in steps; rates of Y and Z; numbers of classes K and tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> gamma_integral(100, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50)
    14.2852...
    """
    t_, eta_y_, eta_z_, k, m = to_arrays(t=t, eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size)
    return to_result(eta_z_ / eta_y_ * k * ((m - 1) / m * _u(t_ / k, eta_y_, m)) ** 2 / 2)


def _u(s: FloatArray, eta_y: FloatArray, m: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):  # refused in the next lines, in words
        target = m * eta_y * s
    if (target > _LARGEST).any():
        raise InputError("vocab_size · eta_y · s", float(target.max()), f"at most {_LARGEST:g}")
    a = (target + 1) / (m - 1)
    omega = wrightomega(a - np.log(m - 1))
    # ω satisfies ω + ln ω = a − ln(M−1), so both branches are the same number. a − ω cancels when ω is large.
    u_ = np.where(omega > 1, np.log(m - 1) + np.log(np.maximum(omega, 1)), a - omega)
    # Near u = 0 both branches cancel; expm1 keeps the digits that they lost.
    for _ in range(_NEWTON_STEPS):
        u_ = u_ - (np.expm1(u_) + (m - 1) * u_ - target) / (np.exp(u_) + m - 1)
    return u_
