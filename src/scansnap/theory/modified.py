"""The algebra of the paper's proof of Theorem 1: the decoder under the modified update (Eq. 26, appendix D).

The proof replaces Ẏ = η_Y f_n r_nᵀ by Ẏ = η_Y (f_n − F E′e_n) r_nᵀ with frozen attention, r_n = e_n − α_n. With

    FᵀF = I + E,  (I + E)⁻¹ = I − E′,  ζ_n = (M e_n − 1)/(M − 1),  q₁ = ζ_n·ζ_n = M/(M−1),  q₀ = ζ_n·ζ_k = −M/(M−1)²

row n of W = FᵀY then learns alone: after N_n draws of class n it is w_n = (M−1) h_n ζ_n, h_n = h*(N_n) (Lemma 5), so

    Y = F (I − E′)(I + Θ) W̄,     W̄_n = (M−1) h(N̄) ζ_n,   1 + θ_n = h_n/h(N̄)                            (Theorem 5)
    r_n = (M−1)/(M−1+e^{M h_n}) ζ_n = (1 + σ_n) (M−1)/(M−1+e^{M h(N̄)}) ζ_n                          (Corollary 1)
    g_n = Y r_n = γ (ι_n f_n − Σ_{n'≠n} β_nn' f_n'),   γ = (M−1)² h(N̄)/(M−1+e^{M h(N̄)})         (Eqs. 84 and 85)
    ι_n = (1+σ_n)[q₁(1+θ_n)(1 − E′_nn) − q₀ Σ_{k≠n}(1+θ_k) E′_kn]                                         (Eq. 86)
    β_nn' = (1+σ_n)[q₁(1+θ_n) E′_nn' − q₀((1+θ_n') − Σ_{k≠n}(1+θ_k) E′_kn')]                  (Eq. 88, corrected)

Equation 88 is printed with + q₀((1+θ_n') + Σ …). Since E(I − E′) = E′, the sum ξ_n = γ Σ β_nn' f_n·f_n' collapses to

    ξ_n = (1+σ_n) γ [−q₁(1+θ_n) E′_nn + |q₀| Σ_{k≠n}(1+θ_k) E′_nk],       −E′_nn = ‖F E′e_n‖²                  (ours)

so that ξ_n/γ = q₁‖F E′e_n‖² + O(1/M): the squared length of the term by which Eq. 26 differs from gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError, check_float, check_integer
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result
from scansnap.theory.closed_form import h, h_recursion
from scansnap.theory.closed_form import u as gap

_UNIT = 1e-6  # f_nᵀf_n from 1


def overlap_complement(overlap: ArrayLike) -> FloatArray:
    """E′ with (I + E)⁻¹ = I − E′ (Lemma 14), for overlaps FᵀF = I + E.

    Appendix D.1 prints the opposite sign, E′ = (I + E)⁻¹ − I; Lemma 3 and all later equations need this one.

    Parameters
    ----------
    overlap
        f_nᵀf_n', shape (K, K).

    Returns
    -------
    numpy.ndarray
        E′, shape (K, K).

    Examples
    --------
    >>> overlap_complement([[1.0, 0.5], [0.5, 1.0]]).round(4)
    array([[-0.3333,  0.6667],
           [ 0.6667, -0.3333]])
    """
    size = _checked_overlap(overlap)
    return np.asarray(np.linalg.solve(size, size - np.eye(len(size))))  # (I + E)⁻¹E: no cancellation where E is small


@dataclass(frozen=True)
class ModifiedDecoder:
    """The decoder of `modified_decoder`. K classes, M tokens.

    Attributes
    ----------
    e, e_prime
        E and E′, shape (K, K).
    h
        h_n, shape (K,); row n of W = FᵀY is (M − 1) h_n ζ_n.
    theta, sigma
        θ_n and σ_n, shape (K,).
    gamma
        γ at N̄.
    error
        The factor of ζ_n in r_n = e_n − α_n, shape (K,).
    iota, beta, xi
        ι_n (K,), β_nn' (K, K) with zero diagonal, and ξ_n (K,).
    beta_printed
        β_nn' as Eq. 88 is printed, shape (K, K).
    force
        q₁‖F E′e_n‖², shape (K,): ξ_n/γ up to O(1/M) and sampling.

    Examples
    --------
    >>> decoder = modified_decoder([[1.0, 0.1], [0.1, 1.0]], [50, 50], eta_y=0.5, vocab_size=1000)
    >>> bool((decoder.xi > 0).all()), (decoder.beta[0, 1] > decoder.beta_printed[0, 1]).item()
    (True, True)
    """

    e: FloatArray
    e_prime: FloatArray
    h: FloatArray
    theta: FloatArray
    sigma: FloatArray
    gamma: float
    error: FloatArray
    iota: FloatArray
    beta: FloatArray
    beta_printed: FloatArray
    xi: FloatArray
    force: FloatArray

    def gradient_coefficients(self, beta: FloatArray | None = None) -> FloatArray:
        """(K, K) coefficients of g_n along f_n': γι_n on the diagonal, −γβ_nn' beside it; of another β if given."""
        beta = self.beta if beta is None else beta
        return np.asarray(self.gamma * (np.diag(self.iota) - beta))


def modified_decoder(
    overlap: ArrayLike, visits: ArrayLike, *, eta_y: float, vocab_size: int, steps: bool = True
) -> ModifiedDecoder:
    """The decoder after ``visits`` draws of each class under the modified update, from Y(0) = 0.

    Exact for any overlaps, numbers of classes and draws: only the gradient flow differs.

    Parameters
    ----------
    overlap
        FᵀF = I + E of unit vectors f_n, shape (K, K).
    visits
        N_n, how often each class was drawn, shape (K,); p_n t for the flow.
    eta_y, vocab_size
        Rate of Y; number of tokens M.
    steps
        True for gradient steps, h*(N_n); False for the flow, h(N_n).

    Returns
    -------
    ModifiedDecoder

    Examples
    --------
    >>> decoder = modified_decoder([[1.0, 0.1], [0.1, 1.0]], [50.0, 50.0], eta_y=0.5, vocab_size=1000, steps=False)
    >>> decoder.xi.round(6).tolist(), (decoder.force * decoder.gamma).round(6).tolist()
    ([0.006002, 0.006002], [0.005943, 0.005943])
    """
    e_prime = overlap_complement(overlap)
    size = _checked_overlap(overlap)
    k, m = len(size), check_integer("vocab_size", vocab_size, least=max(2, len(size)))
    eta_y = check_float("eta_y", eta_y, above=0)
    (n_visits,) = to_arrays(s=visits)
    if n_visits.shape != (k,) or (steps and (n_visits != np.rint(n_visits)).any()):
        raise InputError("visits", visits, f"{k} {'integers' if steps else 'numbers'}, one per class")
    e = size - np.eye(k)
    mean = n_visits.mean()
    if steps:
        mean = np.ceil(mean)
        own = h_recursion(int(n_visits.max()), eta_y=eta_y, vocab_size=m)[n_visits.astype(int)]
    else:
        own = np.asarray(h(n_visits, eta_y=eta_y, vocab_size=m))
    common = float(h(mean, eta_y=eta_y, vocab_size=m))
    theta = own / common - 1 if common > 0 else np.zeros(k)  # (K,)
    error, common_error = (1 / (1 + np.exp(m * value) / (m - 1)) for value in (own, common))  # (M−1)/(M−1+e^{Mh})
    sigma = error / common_error - 1
    q1, q0 = m / (m - 1), -m / (m - 1) ** 2
    weight = e_prime * (1 + theta)  # (K, K)  E′_nk (1+θ_k); E′ is symmetric
    others = weight.sum(1)[None] - weight.T  # (K, K)  [n, n'] = Σ_{k≠n} (1+θ_k) E′_kn'
    scale = (1 + sigma)[:, None]
    own_term = q1 * (1 + theta)[:, None] * e_prime
    off = 1 - np.eye(k)
    beta = scale * (own_term - q0 * ((1 + theta)[None] - others)) * off
    printed = scale * (own_term + q0 * ((1 + theta)[None] + others)) * off
    rest = np.diagonal(others)  # (K,)  Σ_{k≠n} (1+θ_k) E′_kn
    length = (e * e_prime).sum(1)  # (K,)  (E E′)_nn = −E′_nn = ‖F E′e_n‖², from terms of one sign where E is small
    gamma = (m - 1) * common * common_error
    return ModifiedDecoder(
        e=e, e_prime=e_prime, h=own, theta=theta, sigma=sigma, gamma=float(gamma), error=error,
        iota=(1 + sigma) * (q1 * (1 + theta) * (1 + length) - q0 * rest), beta=beta, beta_printed=printed,
        xi=(1 + sigma) * gamma * (q1 * (1 + theta) * length - q0 * rest), force=q1 * length,
    )  # fmt: skip


def visits_at(u: ArrayLike, *, eta_y: ArrayLike, vocab_size: ArrayLike) -> Result:
    """The number of visits s at which the gap is u, the inverse of `scansnap.theory.u` (Lemma 6, Eq. 45).

    Parameters
    ----------
    u, eta_y, vocab_size
        Logit gap M h; rate of Y; number of tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> from scansnap.theory import u
    >>> round(float(visits_at(u(100, eta_y=1.0, vocab_size=50), eta_y=1.0, vocab_size=50)), 9)
    100.0
    """
    u_, eta_y_, m = to_arrays(u=u, eta_y=eta_y, vocab_size=vocab_size)
    return to_result((np.expm1(u_) + (m - 1) * u_) / (m * eta_y_))


def step_lead(s: ArrayLike, *, eta_y: ArrayLike, vocab_size: ArrayLike) -> Result:
    """By how many visits gradient steps are ahead of the flow: c with h(s + c) ≈ h*(s), c = ½ ln y.

    y = (M − 1 + e^u)/M. Late it is ½ ln(η_Y s), which has no bound (Remark 2 says that it has one), and
    h* − h = (η_Y/2M) ln y/y, at most η_Y/(2eM), where y = e. From the modified equation of Euler's method; what is
    left is at most 0.05 η_Y up to η_Y = 1.

    Parameters
    ----------
    s, eta_y, vocab_size
        Visits of a class; rate of Y; number of tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> step_lead(3e6, eta_y=0.5, vocab_size=1000)
    7.1104...
    """
    s_, eta_y_, m = to_arrays(s=s, eta_y=eta_y, vocab_size=vocab_size)
    u_ = np.asarray(gap(s_, eta_y=eta_y_, vocab_size=m))
    return to_result(np.log1p(np.expm1(u_) / m) / 2)


def visits_to_error(epsilon: ArrayLike, *, eta_y: ArrayLike, vocab_size: ArrayLike) -> Result:
    """Visits of a class until ‖e_n − α_n‖ = ε with the flow's h (Corollary 1).

    At e^u = (M−1)(√q₁/ε − 1); it is at most (1/ε + ln(M/ε))/η_Y, where the corollary prints a product of the two
    terms.

    Parameters
    ----------
    epsilon
        ε, below the error √((M−1)/M) at the start.
    eta_y, vocab_size
        Rate of Y; number of tokens M.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> visits_to_error([0.1, 0.01, 0.001], eta_y=0.5, vocab_size=1000).round(1).tolist()
    [36.2, 220.9, 2024.6]
    """
    e, eta_y_, m = to_arrays(epsilon=epsilon, eta_y=eta_y, vocab_size=vocab_size)
    if (e**2 >= (m - 1) / m).any():
        raise InputError("epsilon", float(e.max()), "a float below the error at the start, √((M−1)/M)")
    return visits_at(np.log(m - 1) + np.log(np.sqrt(m / (m - 1)) / e - 1), eta_y=eta_y_, vocab_size=m)


def _checked_overlap(overlap: ArrayLike) -> FloatArray:
    try:
        size = np.array(overlap, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("overlap", overlap, "a square table of numbers") from None
    if size.ndim != 2 or size.shape[0] != size.shape[1] or not size.size or not np.isfinite(size).all():
        raise InputError("overlap", f"shape {size.shape}", "a square table of finite numbers")
    if np.abs(np.diagonal(size) - 1).max() > _UNIT or np.abs(size - size.T).max() > _UNIT:
        raise InputError("overlap", overlap, "a symmetric table with ones on the diagonal")
    if np.linalg.eigvalsh(size)[0] < _UNIT:
        raise InputError("overlap", overlap, "overlaps of linearly independent f_n")
    return size
