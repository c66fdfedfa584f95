"""Finite sequences: the drift of order 1/T that sampled contexts add to the T → ∞ flow.

A context has N = T − 1 tokens with counts k ~ multinomial(N, P(·|n)), and f̂ ∝ k e^z. With k_l = N P_l (1 + η_l),
E η_l η_j = (δ_lj/P_l − 1)/N. f̂ does not change when all η are equal, so the −1 has no effect to this order, and for
any G made of f̂ E G − G = (1/2N) Σ_l ∂²G/∂η_l²/P_l + O(1/N²); third moments of η are of that order already. With
ω_l = f_l²/P_l, S₀ = Σω, S₁ = Σωf²,

    b = N E[f̂ − f] = f ∘ [(3S₁ − S₀)/2 − ω]
    C = N Cov f̂   = diag ω − (ω∘f)fᵀ − f(ω∘f)ᵀ + S₁ ffᵀ               Cf = 0,  tr C = S₀ − S₁ = −2 fᵀb

The rest is the second-order expansion of Lemma 1's gradients f̂ r̂ᵀ and f̂∘(g − f̂ f̂ᵀg), with x = Yᵀf̂, r̂ = e_n − softmax x,
in which C also makes the logits fluctuate by YᵀCY. The small parameter is f_l/(N P_l), what one occurrence of a token
adds to f, and not 1/(N P_l): at z = 0 it is 1/(N‖P‖) for every token, however rare.

`SampledFlow` has the T → ∞ rates and the drift for any classes at any state. In the symmetric family, to leading
order in 1/M, the drift is that of a decoder along E f̂ (`sampling_push`):

    dz_l/du = (η_Z/η_Y) u w_l,      w_l = f_l² tr C/N − C_ll/N

which lifts frequent tokens and lowers rare ones, common or distinct alike: see `fall_below`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import dawsn, log_softmax

from scansnap.checks import InputError, check_float
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import attention_of
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result
from scansnap.theory.drive import Form, drive
from scansnap.theory.frozen import panels
from scansnap.theory.memory import SymmetricTokens, TokenMemory

_START = 1e-9  # of the clock: D/u tends to (K − 1)ρ/M


@dataclass(frozen=True)
class DriftRates:
    """Rates of Y by row and column, and of z by query and token."""

    y: FloatArray
    z: FloatArray


class SampledFlow:
    """The expected change of Y and z in one SGD step of batch size 1: the limit T → ∞, and the term of order 1/T.

    z has shape (Q, M), with queries in the order of ``classes.queries``.

    Parameters
    ----------
    classes
        The classes.
    eta_y, eta_z
        Rates of Y and Z in 1/step.
    lump
        Whether Y has one column per class and one column for all outputs that are no next token, which stay equal
        from Y = 0 on. Otherwise Y has one column for each of the M outputs.

    Examples
    --------
    >>> classes = SequenceClasses.textbook()
    >>> sampled = SampledFlow(classes, eta_y=1.0, eta_z=0.1)
    >>> rates = sampled.flow(np.zeros(sampled.y_shape), np.zeros(sampled.z_shape))
    >>> bool(abs(rates.y).max() > 0), bool(abs(rates.z).max() > 0)
    (True, False)
    """

    def __init__(self, classes: SequenceClasses, eta_y: float, eta_z: float, *, lump: bool = True) -> None:
        classes.need_one_class_per_next_token("the drift")
        self.eta_y, self.eta_z = check_float("eta_y", eta_y, above=0), check_float("eta_z", eta_z, least=0)
        k, m = classes.n_classes, classes.vocab_size
        rows = [classes.support(n) for n in range(k)]
        size = max(len(tokens) for tokens, _ in rows)
        self.token, self.p = np.zeros((k, size), dtype=np.int64), np.zeros((k, size))  # (K, S), P = 0 where unused
        for n, (tokens, p) in enumerate(rows):
            self.token[n, : len(tokens)], self.p[n, : len(tokens)] = tokens, p
        self.row = np.searchsorted(classes.queries, classes.query)  # (K,)
        self.p_class = np.asarray(classes.p_class)
        if lump:
            self.target = np.arange(k)
            self.multiplicity = np.append(np.ones(k), m - k)[: k + (m > k)]
        else:
            self.target, self.multiplicity = np.asarray(classes.next_token), np.ones(m)
        self.y_shape, self.z_shape = (m, len(self.multiplicity)), (len(classes.queries), m)

    def flow(self, y: ArrayLike, z: ArrayLike) -> DriftRates:
        """Return Ẏ and ż in the limit T → ∞: Lemma 1 in expectation over the classes."""
        at = self._at(y, z)
        dy = at.f[..., None] * at.r[:, None]
        return self._sum(dy, at.f * (at.g - at.f * at.h[:, None]))

    def drift(self, y: ArrayLike, z: ArrayLike, *, context: float) -> DriftRates:
        """Return the term of order 1/T that is added to `flow`; T = ``context`` counts the query."""
        n = check_float("context", context, least=2) - 1
        at = self._at(y, z)
        f, r, alpha, rows = at.f, at.r, at.alpha, at.rows
        noise = Noise.of(f, self.p)
        b, spread = noise.bias, noise.times(rows)  # (K, S), (K, S, J)  C Y
        mean = _dot(rows, alpha)  # (K, S)  Y α
        # the logits' second moments: the diagonal of Cx = YᵀCY, Cx α and αᵀ Cx α
        diagonal = (rows * spread).sum(1)  # (K, J)
        along = (rows * noise.times(mean[..., None])).sum(1)
        of_mean = (alpha * along).sum(1, keepdims=True)
        within = (alpha * diagonal).sum(1, keepdims=True) - of_mean  # Σ_j α_j Var x_j − Var Σ_j α_j x_j
        shift = (rows * b[..., None]).sum(1)  # (K, J)  Yᵀ b
        dr = -alpha * (shift - (alpha * shift).sum(1, keepdims=True) + (diagonal - 2 * along + of_mean - within) / 2)
        mixed = alpha[:, None] * (spread - _dot(spread, alpha)[..., None])  # (K, S, J)  C Y A = −E δf δrᵀ
        dy = b[..., None] * r[:, None] + f[..., None] * dr[:, None] - mixed
        turn = r - alpha * (at.x - (alpha * at.x).sum(1, keepdims=True))  # (K, J)  the gradient of h = x·r
        dh = (shift * r).sum(1) + (at.x * dr).sum(1) - within[:, 0]
        own = b * at.g + f * _dot(rows, dr) - (mixed * rows).sum(2)
        back = (2 * f * b + noise.variance) * at.h[:, None] + f**2 * dh[:, None]
        back += 2 * f * noise.times(_dot(rows, turn)[..., None])[..., 0]
        return self._sum(dy / n, (own - back) / n)

    def _at(self, y: ArrayLike, z: ArrayLike) -> _Point:
        y_, z_ = np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64)
        for field, table, shape in (("y", y_, self.y_shape), ("z", z_, self.z_shape)):
            if table.shape != shape:
                raise InputError(field, f"of shape {table.shape}", f"of shape {shape}")
        c = attention_of(self.p, z_[self.row[:, None], self.token])
        f = c / np.linalg.norm(c, axis=1, keepdims=True)
        rows = y_[self.token]  # (K, S, J)
        x = (rows * f[..., None]).sum(1)  # (K, J)
        alpha = np.exp(log_softmax(x + np.log(self.multiplicity), axis=1))
        r = -alpha
        own = np.arange(len(r)), self.target
        r[own] = 0.0
        r[own] = -r.sum(1)  # 1 − α_n without cancellation
        return _Point(f, rows, x, alpha, r, _dot(rows, r), (x * r).sum(1))

    def _sum(self, dy: FloatArray, dz: FloatArray) -> DriftRates:
        y, z = np.zeros(self.y_shape), np.zeros(self.z_shape)
        np.add.at(y, self.token, self.eta_y * self.p_class[:, None, None] * dy / self.multiplicity)
        np.add.at(z, (self.row[:, None], self.token), self.eta_z * self.p_class[:, None] * dz)
        return DriftRates(y, z)


@dataclass(frozen=True)
class _Point:
    f: FloatArray  # (K, S)
    rows: FloatArray  # (K, S, J) of Y
    x: FloatArray  # (K, J) logits
    alpha: FloatArray  # (K, J), of all the outputs of a column together
    r: FloatArray  # (K, J), likewise
    g: FloatArray  # (K, S)  Y r
    h: FloatArray  # (K,)  fᵀ g


@dataclass(frozen=True)
class Noise:
    """N times the bias and the covariance of f̂, to leading order in 1/N; classes and tokens (…, S)."""

    f: FloatArray
    weight: FloatArray  # ω
    bias: FloatArray  # b
    variance: FloatArray  # the diagonal of C

    @classmethod
    def of(cls, f: FloatArray, p: FloatArray) -> Noise:
        weight = np.divide(f**2, p, out=np.zeros_like(f), where=p > 0)
        s0, s1 = weight.sum(-1, keepdims=True), (weight * f**2).sum(-1, keepdims=True)
        return cls(f, weight, f * ((3 * s1 - s0) / 2 - weight), weight * (1 - 2 * f**2) + s1 * f**2)

    def times(self, table: FloatArray) -> FloatArray:
        """C applied to (…, S, J) along S."""
        f, weighted = self.f[..., None], (self.weight * self.f)[..., None]
        along, aside = (f * table).sum(-2, keepdims=True), (weighted * table).sum(-2, keepdims=True)
        s1 = (weighted * f).sum(-2, keepdims=True)
        return np.asarray(self.weight[..., None] * table - weighted * along - f * aside + s1 * f * along)


def _dot(rows: FloatArray, vector: FloatArray) -> FloatArray:
    """(K, S, J) · (K, J) → (K, S)."""
    return np.asarray((rows @ vector[..., None])[..., 0])


def sampling_push(f: ArrayLike, *, context: ArrayLike, p: ArrayLike | None = None) -> Result:
    """w_l = (f_l² tr C − C_ll)/N of the tokens (last axis) of a class: ż_l = η_Z p_n γι w_l to leading order in 1/M.

    It is what a decoder along E f̂, Y = (f + b/N)aᵀ, does to attention: f_l b_l − f_l² fᵀb from its direction, and
    −f_l b_l − C_ll + f_l² tr C/2 from the sampling of the present context. Σ_l w_l = 0. ``p`` is P(·|n) where z ≠ 0;
    left out, P ∝ f, and with s = Σf, q = Σf³

        N w_l = s f_l [f_l (s − 2q) − 1 + 2f_l²]

    Parameters
    ----------
    f
        Attention f_l.
    context
        Sequence length T, the query included.
    p
        P(l|n) where z is not 0.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> round(float(sampling_push([0.6, 0.8], context=128)[0]), 4)
    -0.0021
    """
    f_, length = to_arrays(f=f)[0], to_arrays(context=context)[0]
    p_ = f_ / f_.sum(-1, keepdims=True) if p is None else to_arrays(p=p)[0]
    noise = Noise.of(f_, np.broadcast_to(p_, f_.shape))
    push = f_**2 * noise.variance.sum(-1, keepdims=True) - noise.variance
    return to_result(push / (length[..., None] - 1))


def drift_tokens(
    u: ArrayLike, *, eta_y: float, eta_z: float, n_classes: int, f_distinct: ArrayLike,
    f_common: ArrayLike | None = None, context: float,
) -> TokenMemory:  # fmt: skip
    """What length T = ``context`` adds to z of the symmetric family, held back by the memory as the drive's effect is.

    ε w_l u per unit of the clock is a constant source of the equation of `scansnap.theory.memory`: in each of its
    modes, with σ² = ελ/2 and F the Dawson function, v = 2σ F(σu)/λ and z = (2/λ) ∫₀^{σu} F, times the mode's share
    of w: at first ε w_l u²/2, late a logarithm of u. To leading order in 1/M, 1/T and z; it adds to
    `scansnap.theory.memory_tokens`.

    Parameters
    ----------
    u, eta_y, eta_z, n_classes
        Logit gap M h; rates of Y and Z; number of classes K.
    f_distinct
        f_l of the distinct tokens.
    f_common
        f_l of the common tokens; by default there is one.
    context
        Sequence length T, the query included.

    Returns
    -------
    TokenMemory

    Examples
    --------
    >>> value = drift_tokens(2.0, eta_y=1.0, eta_z=0.1, n_classes=10, f_distinct=[0.5, 0.6], context=128).z[0]
    >>> round(float(value), 4)
    -0.0003
    """
    (u_,) = to_arrays(u=u)
    eta_y_, eta_z_, k = to_arrays(eta_y=eta_y, eta_z=eta_z, n_classes=n_classes)
    tokens = SymmetricTokens.of(f_distinct, f_common)
    lam, part = tokens.modes(k, np.asarray(sampling_push(tokens.f, context=context)))
    sigma = np.sqrt(eta_z_ / eta_y_ * lam / 2)
    reach = u_[..., None] * sigma
    return TokenMemory(2 * _dawson_integral(reach) @ part, 2 * sigma * dawsn(reach) @ part)


def fall_below(
    u: ArrayLike, *, n_classes: int, vocab_size: int, f_distinct: ArrayLike, f_common: ArrayLike | None = None,
    context: float, form: Form = "leading",
) -> Result:  # fmt: skip
    """The P_l (T − 1) below which a distinct token falls when the gap is u, because of the finite length.

    Drive and drift together are dz_l/du = (η_Z/η_Y)[f_l² D(u) + u w_l]; with P ∝ f that is 0 at

        f* = 2/(c + √(c² + 8)),    c = s − 2q + N D(u)/(s u),    s = Σf, q = Σf³,    P* = f*/s

    Where sampling outweighs the drive, T ≪ s²u/D ~ M/((K − 1)ρ‖P‖²), P* ≈ 1/(s² − 2sq), some ‖P‖²: tokens rarer than
    that fall whatever the length. For longer sequences N P* → u/D(u): M/((K − 1)ρ) occurrences at first, fewer as D/u
    grows; late (``form="exact"``) κ²/((K − 1)ρ²(1 + κ)). It is not P_l T of order 1. The memory is left out.

    Parameters
    ----------
    u, n_classes, vocab_size, form
        Logit gap M h; numbers of classes K and tokens M; ``leading`` in 1/M or ``exact``.
    f_distinct
        f_l of the distinct tokens.
    f_common
        f_l of the common tokens; by default there is one.
    context
        Sequence length T, the query included.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> fall_below(2.0, n_classes=10, vocab_size=50, f_distinct=[0.5, 0.6], context=128)
    5.0334...
    """
    (u_,), (length,), (k, m) = (
        to_arrays(u=u),
        to_arrays(context=context),
        to_arrays(n_classes=n_classes, vocab_size=vocab_size),
    )
    tokens = SymmetricTokens.of(f_distinct, f_common)
    s, q = tokens.f.sum(), (tokens.f**3).sum()
    at, sizes = np.maximum(u_, _START), {"n_classes": k, "vocab_size": m, "overlap": tokens.rho}
    ratio = np.asarray(drive(at, **sizes, form=form)) / at
    c = s - 2 * q + (length - 1) * ratio / s
    return to_result((length - 1) / s * 2 / (c + np.sqrt(c**2 + 8)))


def _dawson_integral(y: FloatArray) -> FloatArray:
    """∫₀ʸ F, in y = sinh θ."""
    share, weights = panels()
    theta = np.arcsinh(y)
    at = theta[..., None] * share
    return np.asarray((dawsn(np.sinh(at)) * np.cosh(at)) @ weights * theta)
