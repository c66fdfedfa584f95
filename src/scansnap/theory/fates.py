"""Which tokens gain attention and which lose it, from the overlaps of the classes: drive, memory, residual connection.

Classes of equal probability, with the logit gap u as the clock, ε = η_Z/η_Y, ρ_nn' = f_nᵀf_n' and γβ(u, ρ) of
`scansnap.theory.beta`. While attention has hardly moved dz/du = ε b, with the push

    b_ml = Σ_{n ∈ ψ⁻¹(m)} Σ_{n'≠n} γβ(ρ_nn') f_nl (ρ_nn' f_nl − f_n'l)

With one query the decoder's memory of earlier attention adds, to first order in z, with v = dz/du,

    dv/du = ε [b′(u) − u A v],     A = Σ_n (diag f_n² − f_n² f_n²ᵀ)

so that v → A⁺b′/u once u ≫ √(2/ελ) for every eigenvalue λ > 0 of A: then ε has no part in the sign. Early every
distinct token rises, b_l = f_nl² Σ γβρ_nn'. Late it falls if (A⁺b′)_l < 0: the memory acts on z_l − Σ_j f_j² z_j, which
rises for the distinct tokens of a class that has most of its attention on a falling common token. With one common token
c, n_k distinct tokens in class k and D′_n = Σ_n' (γβ)′ρ_nn', all distinct tokens of class n have the same

    V_n = v_c + D′_n/(u f_nc²),     v_c = −Σ_k n_k D′_k/f_kc² / (u (1 + Σ_k n_k)) < 0

    K = 2:  V_1 < 0   ⇔   (f_1c/f_0c)² > 1 + 1/n_0

With the residual connection f̄_n = (f_n + e_m)/√2 the overlaps are ρ̄_nn' = (ρ_nn' + 1[ψ(n) = ψ(n')])/2, and the push is
½ Σ Σ γβ(ρ̄_nn') f_nl (ρ_nn' f_nl − f_n'l): the query enters through γβ alone, which in time favours its own classes.

Limits: leading order in 1/M ends at u ≈ ln(ρM)/ρ; ``form="exact"`` goes on, exact for two classes and pair by pair for
more. The memory is of first order in z.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from scansnap.checks import InputError
from scansnap.checks.arrays import IntArray
from scansnap.theory.arguments import FloatArray, to_arrays
from scansnap.theory.drive import Form, beta, beta_rate
from scansnap.theory.memory import TokenMemory

_LARGEST_GAP, _GRID = 300.0, 4000  # of gaps; there the largest exponent has decided
_ROUNDING = 1e-6  # of lengths; files and single precision have this many digits


def token_push(
    u: ArrayLike, *, f: ArrayLike, vocab_size: float, query: ArrayLike | None = None, residual: bool = False,
    form: Form = "leading",
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """The parts of the push b on every token, by query: dz/du = (η_Z/η_Y)(up − down) while attention has hardly moved.

    Parameters
    ----------
    u, vocab_size, form
        Logit gap M h; number of tokens M; ``leading`` in 1/M or ``exact``.
    f
        f_n of every class over its tokens, rows of length 1, shape (K, L).
    query
        Index of the query of each class, from 0 on, shape (K,); by default there is one query.
    residual
        Whether the output is LN(LN(c) + e_m). No query may be a context token.

    Returns
    -------
    tuple of numpy.ndarray
        ``up`` and ``down``, shape (…, Q, L) each. Only common tokens have a part that pushes down.

    Examples
    --------
    >>> f = np.sqrt([[0.2, 0.8, 0.0], [0.2, 0.0, 0.8]])  # the first token is common
    >>> up, down = token_push(2.0, f=f, vocab_size=1000)
    >>> (up - down).round(5)
    array([[-0.0011 ,  0.00055,  0.00055]])
    """
    (u_,) = to_arrays(u=u)
    f_, row = _classes(f), np.zeros(len(np.asarray(f)), dtype=int) if query is None else np.asarray(query)
    same = row[:, None] == row
    overlap = (_overlap(f_) + same) / 2 * (1 - np.eye(len(f_))) if residual else _overlap(f_)
    weight = beta(u_[..., None, None], n_classes=2, vocab_size=vocab_size, overlap=overlap, form=form)
    up, down = _push(np.asarray(weight), f_, row)
    return (up / 2, down / 2) if residual else (up, down)


def rise_time(
    *, eta_y: float, f: ArrayLike, vocab_size: float, query: ArrayLike | None = None, residual: bool = True
) -> FloatArray:
    """The time from which on every token is pushed up, by query: 0 from the start, ∞ never; in steps of batch size 1.

    Parameters
    ----------
    eta_y, vocab_size
        Rate of Y; number of tokens M.
    f
        f_n of every class over its tokens, rows of length 1, shape (K, L).
    query
        Index of the query of each class, from 0 on, shape (K,); by default there is one query.
    residual
        Whether the output is LN(LN(c) + e_m). No query may be a context token.

    Returns
    -------
    numpy.ndarray
        Shape (Q, L).

    Examples
    --------
    >>> f = np.sqrt([[0.1, 0.2, 0.7, 0, 0, 0], [0.1, 0, 0, 0.9, 0, 0],  # token 1 is of one class in each of two queries
    ...              [0.1, 0.2, 0, 0, 0.7, 0], [0.1, 0, 0, 0, 0, 0.9]])
    >>> time = rise_time(eta_y=0.9, f=f, vocab_size=3000, query=[0, 0, 1, 1])
    >>> time[0, :3].round(1)
    array([ inf, 20.2,  0. ])
    """
    (m,), (rate,) = to_arrays(vocab_size=vocab_size), to_arrays(eta_y=eta_y)
    u = np.geomspace(1e-3, _LARGEST_GAP, _GRID)
    up, down = token_push(u, f=f, vocab_size=vocab_size, query=query, residual=residual)
    with np.errstate(all="ignore"):  # tokens without any push, or without one down
        lead = np.nan_to_num(np.log(up / down), nan=-np.inf)
        below = lead <= 0
        last = _GRID - 1 - np.argmax(below[::-1], axis=0)  # the last gap at which the token is not pushed up
        after = np.minimum(last + 1, _GRID - 1)
        first, second = (np.take_along_axis(lead, at[None], 0)[0] for at in (last, after))
        share = np.nan_to_num(first / (first - second), posinf=0.0, neginf=0.0)
    gap = u[last] * (u[after] / u[last]) ** share
    visits = np.asarray(np.expm1(gap) + (m - 1) * gap) / (m * rate)
    time = np.where(last == _GRID - 1, np.inf, len(np.asarray(f)) * visits)
    return np.where(below.any(0), time, 0.0)


def memory_by_token(
    u: ArrayLike, *, eta_y: float, eta_z: float, f: ArrayLike, vocab_size: float, form: Form = "leading"
) -> TokenMemory:
    """z and v = dz/du of every token of one query, by the memory equation for any overlaps.

    Parameters
    ----------
    u, eta_y, eta_z, vocab_size, form
        Logit gap M h; rates of Y and Z; number of tokens M; ``leading`` in 1/M or ``exact``.
    f
        f_n of every class over its tokens, rows of length 1, shape (K, L).

    Returns
    -------
    TokenMemory

    Examples
    --------
    >>> f = np.sqrt([[0.05, 0.95, 0.0], [0.6, 0.0, 0.4]])  # most of the second class is the common token
    >>> early, late = memory_by_token([1.0, 20.0], eta_y=1.0, eta_z=0.5, f=f, vocab_size=1e4).v
    >>> bool(early[2] > 0), bool(late[2] > 0)
    (True, False)
    """
    (u_,), (eta_y_, eta_z_, m) = to_arrays(u=u), to_arrays(eta_y=eta_y, eta_z=eta_z, vocab_size=vocab_size)
    f_, epsilon = _classes(f), float(eta_z_ / eta_y_)
    stiff, size = _stiffness(f_), f_.shape[1]
    jacobian = np.zeros((2 * size, 2 * size))
    jacobian[size:, :size] = np.eye(size)

    def rates(at: float, state: FloatArray) -> FloatArray:
        v = state[:size]
        return np.append(epsilon * (_push_rate(np.asarray(at), f_, m, form) - at * (stiff @ v)), v)

    def slopes(at: float, _: FloatArray) -> FloatArray:
        jacobian[:size, :size] = -epsilon * at * stiff
        return jacobian

    ends, where = np.unique(np.append(0.0, u_.ravel()), return_inverse=True)
    run = solve_ivp(
        rates, (0.0, max(float(ends[-1]), 1e-9)), np.zeros(2 * size), t_eval=ends, method="LSODA", jac=slopes,
        rtol=1e-9, atol=1e-13 * epsilon / float(m),
    )  # fmt: skip
    states = run.y.T[where[1:]].reshape(*u_.shape, 2, size)
    return TokenMemory(z=states[..., 1, :], v=states[..., 0, :])


def held_speed(u: ArrayLike, *, f: ArrayLike, vocab_size: float, form: Form = "leading") -> FloatArray:
    """v = A⁺b′(u)/u of every token of one query, once the memory holds them all. Its sign is the token's late fate.

    Parameters
    ----------
    u, vocab_size, form
        Logit gap M h; number of tokens M; ``leading`` in 1/M or ``exact``.
    f
        f_n of every class over its tokens, rows of length 1, shape (K, L).

    Returns
    -------
    numpy.ndarray
        Shape (…, L).

    Examples
    --------
    >>> f = np.sqrt([[0.05, 0.95, 0.0], [0.6, 0.0, 0.4]])
    >>> held_speed(20.0, f=f, vocab_size=1e4) > 0
    array([False,  True, False])
    """
    (u_,), (m,) = to_arrays(u=u), to_arrays(vocab_size=vocab_size)
    f_ = _classes(f)
    return np.asarray(_push_rate(u_, f_, m, form) @ np.linalg.pinv(_stiffness(f_), hermitian=True) / u_[..., None])


def held_speed_one_common(
    u: ArrayLike, *, f_common: ArrayLike, n_distinct: ArrayLike, vocab_size: float, form: Form = "leading"
) -> tuple[FloatArray, FloatArray]:
    """`held_speed` in closed form with one common token: v_c of the common one, V_n of the distinct ones of class n.

    Parameters
    ----------
    u, vocab_size, form
        Logit gap M h; number of tokens M; ``leading`` in 1/M or ``exact``.
    f_common
        f_nc of the common token in every class, shape (K,).
    n_distinct
        Number of distinct tokens of every class, shape (K,).

    Returns
    -------
    tuple of numpy.ndarray
        Shapes (…) and (…, K).

    Examples
    --------
    >>> common, distinct = held_speed_one_common(20.0, f_common=np.sqrt([0.05, 0.6]), n_distinct=[1, 1], vocab_size=1e4)
    >>> bool(common < 0), distinct > 0
    (True, array([ True, False]))
    """
    (u_,), (f_,), n = to_arrays(u=u), to_arrays(f=f_common), np.asarray(n_distinct)
    overlap = np.outer(f_, f_) * (1 - np.eye(len(f_)))
    rate = np.asarray(beta_rate(u_[..., None, None], n_classes=2, vocab_size=vocab_size, overlap=overlap, form=form))
    gain = (rate * overlap).sum(-1) / (f_**2 * u_[..., None])  # (…, K)
    common = -(n * gain).sum(-1) / (1 + n.sum())
    return common, common[..., None] + gain


def _push_rate(u: FloatArray, f: FloatArray, m: FloatArray, form: Form) -> FloatArray:
    """(…, L) b′(u) of one query."""
    rate = beta_rate(u[..., None, None], n_classes=2, vocab_size=m, overlap=_overlap(f), form=form)
    up, down = _push(np.asarray(rate), f, np.zeros(len(f), dtype=int))
    return (up - down)[..., 0, :]


def _push(weight: FloatArray, f: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
    """(…, Q, L) Σ_{n of the query} Σ_n' weight_nn' f_n∘(ρ_nn' f_n − f_n'), its positive and its negative part."""
    weight = weight * (1 - np.eye(len(f)))
    up, down = (weight * _overlap(f)).sum(-1)[..., None] * f**2, f * (weight @ f)  # (…, K, L)
    by_query = (np.arange(row.max() + 1)[:, None] == row).astype(np.float64)
    return by_query @ up, by_query @ down


def _stiffness(f: FloatArray) -> FloatArray:
    """(L, L) A, with eigenvalue 0 for the shift of all z."""
    return np.asarray(np.diag((f**2).sum(0)) - (f**2).T @ f**2)


def _overlap(f: FloatArray) -> FloatArray:
    """(K, K) ρ_nn', 0 on the diagonal."""
    return np.asarray(f @ f.T * (1 - np.eye(len(f))))


def _classes(f: ArrayLike) -> FloatArray:
    rows = np.asarray(f, dtype=np.float64)
    if rows.ndim != 2 or (rows < 0).any() or np.abs((rows**2).sum(1) - 1).max() > _ROUNDING:
        raise InputError("f", f, "a row of numbers ≥ 0 of length 1 for every class")
    return rows
