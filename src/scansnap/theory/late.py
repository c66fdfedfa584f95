"""Late times: what the overlap does once the memory holds every token and the softmax has saturated.

The symmetric family far past both u* (`scansnap.theory.u_star`) and ln(ρM)/ρ, with M → ∞ and ρM ≫ 1. Then r_n is
along e_n − σ Σ_{n'≠n} e_n' (and the rest, each O(1/M)), and two things are balanced at every u, to all orders in z:

    the logit of another class's next token does not grow        f_c a − f_d d = 0
    drive and memory of the common and the distinct tokens       f_d a (1 − (K − 1)σ) = f_c (c + (K − 1)σ d)

with f_c = √ρ, f_d = √(1 − ρ) and what Y remembers: a = ∫f_c (1 − (K − 1)σ) du, c = ∫f_d du, d = ∫f_d σ du. They give
ρ and σ from a, c and d, so this is a flow of three numbers; divided by u it depends on ln u only. For small ρ it is

    d ln ρ/d ln u = −4(K − 1) ρ (1 − O(Kρ))      ⇒      ρ ≃ 1/(4(K − 1) ln u),   u ~ ln t

(for K = 2 the bracket is 1 − 5ρ + …). So no power of u is the last word: local exponents of ρ fall for ever, ρ as
1/ln ln t and z_c as −½ ln ln u, up to a factor KD/(KD + 1) for D distinct tokens. Attention on the common token
vanishes, too slowly for any run to see. First order around constant attention has 2(K − 1)ρ(1 − ρ)(1 + κ)/κ²,
κ = 1 + ρ(K − 2): the same for small ρ, a third too much at ρ = 0.1 and K = 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from scansnap.checks import InputError
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result


def late_overlap(log_u: ArrayLike, *, n_classes: float, overlap: float) -> Result:
    """ρ after the gap has grown by the factor e^{log_u} with attention held, from a constant past of ``overlap``.

    The past is forgotten as 1/u; where it began to be held is the caller's to say.

    Parameters
    ----------
    log_u, n_classes, overlap
        ln u; number of classes K; cosine ρ of two f_n.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> late_overlap(5.0, n_classes=10, overlap=0.3)
    0.00771...
    """
    (at,), (k, rho) = to_arrays(log_u=log_u), to_arrays(n_classes=n_classes, overlap=overlap)
    if k.ndim or rho.ndim or k < 2 or rho == 0:
        raise InputError("n_classes and overlap", (n_classes, overlap), "two numbers, at least 2 and above 0")
    sigma = rho / (1 + rho * (k - 2))
    f_d = np.sqrt(1 - rho)
    start = np.array([np.sqrt(rho) * (1 - (k - 1) * sigma), f_d, sigma * f_d])  # a, c and d, over u
    ends, where = np.unique(np.append(0.0, at.ravel()), return_inverse=True)
    run = solve_ivp(
        _rates, (0, max(ends[-1], 1e-9)), start, t_eval=ends, args=(float(k),), method="LSODA", rtol=1e-10, atol=1e-14
    )
    a, _, d = run.y
    return to_result((d**2 / (a**2 + d**2))[where[1:]].reshape(at.shape))


def late_exponent(overlap: ArrayLike, *, n_classes: ArrayLike) -> Result:
    """−d ln ρ/d ln u of attention that is held, to first order: 2(K − 1)ρ(1 − ρ)(1 + κ)/κ², κ = 1 + ρ(K − 2).

    Parameters
    ----------
    overlap, n_classes
        Cosine ρ of two f_n; number of classes K.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> late_exponent(overlap=0.3, n_classes=10)
    1.4387...
    """
    rho, k = to_arrays(overlap=overlap, n_classes=n_classes)
    kappa = 1 + rho * (k - 2)
    return to_result(2 * (k - 1) * rho * (1 - rho) * (1 + kappa) / kappa**2)


def _rates(_: float, state: FloatArray, k: float) -> FloatArray:
    a, c, d = state
    sigma = (a**2 - c * d) / ((k - 1) * (a**2 + d**2))
    f_c, f_d = np.array([d, a]) / np.hypot(a, d)
    return np.array([f_c * (1 - (k - 1) * sigma) - a, f_d - c, f_d * sigma - d])
