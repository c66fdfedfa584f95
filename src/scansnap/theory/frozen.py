"""The decoder with frozen attention, exactly: the symmetric family at any M, K and overlap.

By symmetry a_n of Y = Σ f_n a_nᵀ has three different entries: A at its own next token, B at those of the other K − 1
classes, C at each of the M − K others, with A + (K − 1)B + (M − K)C = 0. With x = A − C and y = B − C the logits of
class n are, above those of the M − K others, w = x + ρ(K − 1)y for its own next token and q = ρx + κy for another's,
κ = 1 + ρ(K − 2); and from ȧ_n = η_Y p (e_n − α_n), with E = e^q − 1, N = M − K + e^w + (K − 1)e^q and p = 1/K,

    ẋ = η_Y p ((K − 1)E + M)/N,     ẏ = −η_Y p E/N     ⇒     dq/dx = [ρM − (1 − ρ)E]/[(K − 1)E + M]

which is elementary. E rises to E∞ = ρM/(1 − ρ): from there on the others' logits stand still. With E = E∞(1 − e^{−τ})

    x = a q + b τ,     a = (M − K + 1)/m,  b = Mκ/((1 − ρ) m),  m = 1 + ρ(M − 1)
    y = −[E∞ (e^{−τ} − 1 + τ) + (e^q − 1 − q)]/m

One quadrature is left, the time: η_Y p t = x + ∫₀ˣ (e^w − 1)/((K − 1)E + M) dx. For K = 1 or ρ = 0 it is
that of `scansnap.theory.u`. Nothing is expanded, so the differences from
`scansnap.theory.drive` are its 1/M errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result
from scansnap.theory.closed_form import u as logit_gap

_SERIES = 0.5  # below it e^x − 1 − x is summed
_TERMS = 14  # 0.5¹⁴/16! is below the last place
_NEWTON_STEPS = 60  # of x = aq + bτ, from below, where it cannot overshoot; some ten are taken
_ROOT_STEPS = 80  # of t(x); bisection alone would need 60
_CLOSE = 1e-12  # a Newton step this small leaves an error of its square
_REACH = 44.0  # e^{−44} is nothing against 1
_PANELS, _NODES = 12, 20  # exact to rounding for e^x on panels of 44/12


def exp_beyond_linear(x: FloatArray) -> FloatArray:
    """e^x − 1 − x to full relative precision, of either sign."""
    small = np.abs(x) < _SERIES
    near = np.where(small, x, 0.0)
    term = np.ones_like(near)
    for n in range(_TERMS + 2, 2, -1):  # 1 + x/3 (1 + x/4 (1 + …))
        term = 1 + near / n * term
    return np.where(small, near**2 / 2 * term, np.expm1(x) - x)


def panels() -> tuple[FloatArray, FloatArray]:
    """Gauss–Legendre nodes and weights on equal panels of [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    share = (np.arange(_PANELS)[:, None] + (1 + nodes) / 2) / _PANELS
    return share.ravel(), np.tile(weights / 2, _PANELS) / _PANELS


@dataclass(frozen=True)
class DecoderState:
    """The decoder when A − C is x."""

    x: FloatArray
    y: FloatArray  # B − C, never positive
    q: FloatArray  # logit of another class's next token, above those of nobody's
    w: FloatArray  # logit of the own one: the gap
    error: FloatArray  # (K − 1)E + M, the softmax's error N (1 − α_n + α_rest)
    beta: FloatArray  # γβ per unit of x
    beta_rate: FloatArray  # and its derivative
    growth: FloatArray  # −½ (K − 1) ρ a_n·a_n', which is B_n η_Y/η_Z


class SymmetricFamily:
    """K classes of one query with overlaps ρ, M outputs; broadcasts as its arguments do."""

    def __init__(self, k: FloatArray, m: FloatArray, rho: FloatArray) -> None:
        if (k > m).any():
            raise InputError("n_classes", float(np.broadcast_arrays(k, m)[0][k > m].max()), "at most vocab_size")
        self.k, self.m, self.rho = k, m, rho
        self.kappa = 1 + rho * (k - 2)
        self.scale = 1 + rho * (m - 1)
        self.e_end = rho * m / (1 - rho)
        self.a = (m - k + 1) / self.scale
        self.b = m * self.kappa / ((1 - rho) * self.scale)

    def tau(self, x: FloatArray) -> FloatArray:
        """τ ≥ 0 of x = a ln(1 + E∞(1 − e^{−τ})) + bτ by Newton steps. The right side is concave: none overshoots."""
        slope = self.a * self.e_end + self.b  # at 0
        tau = np.maximum(x / slope, (x - self.a * np.log1p(self.e_end)) / self.b)
        for _ in range(_NEWTON_STEPS):
            e = -self.e_end * np.expm1(-tau)
            short = x - self.a * np.log1p(e) - self.b * tau
            step = short / (self.a * (self.e_end - e) / (1 + e) + self.b)
            tau = tau + step
            if (np.abs(step) <= _CLOSE * tau).all():
                break
        return tau

    def path(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """E, q, y and τ at x."""
        tau = self.tau(x)
        e = -self.e_end * np.expm1(-tau)
        q = np.log1p(e)
        return e, q, -(self.e_end * exp_beyond_linear(-tau) + exp_beyond_linear(q)) / self.scale, tau

    def at(self, x: FloatArray) -> DecoderState:
        k, m, rho = self.k, self.m, self.rho
        e, q, y, tau = self.path(x)
        error = (k - 1) * e + m
        own, rest = 1 + e, m - k + 1 + e
        # β = [x(1 + E) − y(E + M − K + 1)]/error. Its derivative, with every term positive:
        e_rate = own * rho * m * np.exp(-tau) / error
        turn = (m - k + 1) * (x + (k - 1) * y) - m * y
        return DecoderState(
            x + 0 * y, y, q, x + rho * (k - 1) * y, error,
            beta=(x * own - y * rest) / error,
            beta_rate=(own + e * rest / error + e_rate * turn / error) / error,
            growth=(k - 1) * rho / 2 * ((x + (k - 1) * y) ** 2 / m - y * (2 * x + (k - 2) * y)),
        )  # fmt: skip

    def time(self, x: FloatArray) -> FloatArray:
        """η_Y p t at x: x + ∫₀ˣ (e^w − 1)/((K − 1)E + M), over the last 44 units where w is that long."""
        fall = (1 - self.rho) * (1 + self.rho * (self.k - 1)) / self.kappa  # the least dw/dx
        length = np.minimum(x, _REACH / fall)
        share, weights = panels()
        at = (x - length)[..., None] + length[..., None] * share
        inside = SymmetricFamily(self.k[..., None], self.m[..., None], self.rho[..., None])
        e, _, y, _ = inside.path(at)
        rate = np.expm1(at + inside.rho * (inside.k - 1) * y) / ((inside.k - 1) * e + inside.m)
        return x + length * (rate @ weights)

    def x_at(self, target: FloatArray) -> FloatArray:
        """x at η_Y p t = ``target``: Newton steps in ln t, halving where they leave the bracket.

        From below e^w ≤ e^x, from above w ≥ λx, each with the gap's own closed form.
        """
        fall = (1 - self.rho) * (1 + self.rho * (self.k - 1)) / self.kappa
        shape = np.broadcast_shapes(target.shape, fall.shape, self.m.shape)
        target, fall, m = (np.broadcast_to(value, shape) for value in (target, fall, self.m))
        low = np.asarray(logit_gap(target, eta_y=1.0, vocab_size=m))
        widest = m * self.kappa / (1 - self.rho)  # of (K − 1)E + M
        high = np.minimum(target, np.asarray(logit_gap(target * fall, eta_y=1.0, vocab_size=widest)) / fall)
        high = np.maximum(high, low)
        x = low.copy()
        for _ in range(_ROOT_STEPS):
            t = self.time(x)
            low, high = np.where(t <= target, x, low), np.where(t >= target, x, high)
            e, _, y, _ = self.path(x)
            rate = 1 + np.expm1(x + self.rho * (self.k - 1) * y) / ((self.k - 1) * e + self.m)
            some = target > 0
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.where(some, np.log(target / t) * t / rate, 0.0)
            new = x + step
            new = np.where((new < low) | (new > high), (low + high) / 2, new)
            done = np.abs(new - x) <= _CLOSE * new
            x = new
            if done.all():
                break
        return x


@dataclass(frozen=True)
class FrozenDecoder:
    """The decoder with frozen attention, as `frozen_decoder` computes it.

    Each attribute is a float, or an array if an argument was.

    Attributes
    ----------
    x
        A − C, the variable of the exact drive.
    own
        A, the entry of a_n at the next token of class n.
    other
        B, the entry of a_n at the next token of another class.
    rest
        C, the entry of a_n at a token that is no next token.
    gap
        Logit of the right next token minus that of a token that is no next token.
    gap_other
        Logit of another class's next token minus that of a token that is no next token.
    alpha
        α_n, the probability of the right next token.
    gamma_iota
        γι_n = a_n·r_n, the coefficient of f_n in g_n.
    gamma_beta
        γβ_nn' = −a_n'·r_n, minus the coefficient of f_n' in g_n.
    growth
        B_n η_Y/η_Z = −½ (K − 1) ρ a_n·a_n'.

    Examples
    --------
    >>> decoder = frozen_decoder([0, 100], eta_y=1.0, n_classes=10, vocab_size=50, overlap=0.3)
    >>> decoder.alpha.round(3)
    array([0.02 , 0.781])
    """

    x: Result
    own: Result
    other: Result
    rest: Result
    gap: Result
    gap_other: Result
    alpha: Result
    gamma_iota: Result
    gamma_beta: Result
    growth: Result


def frozen_decoder(
    t: ArrayLike, *, eta_y: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike, overlap: ArrayLike
) -> FrozenDecoder:
    """The decoder of the symmetric family at the times t with the attention frozen: no order of 1/M is left out.

    The same as `scansnap.dynamics.flow.decoder.decoder_flow` for equal overlaps, to 1e-12 at any time.

    Parameters
    ----------
    t, eta_y, n_classes, vocab_size, overlap
        Time in steps; rate of Y; numbers of classes K and tokens M; cosine ρ of two f_n.

    Returns
    -------
    FrozenDecoder

    Examples
    --------
    >>> frozen_decoder(100, eta_y=1.0, n_classes=10, vocab_size=50, overlap=0.3).gap
    5.5988...
    """
    t_, eta_y_, k, m, rho = np.broadcast_arrays(
        *to_arrays(t=t, eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size, overlap=overlap)
    )
    family = SymmetricFamily(k, m, rho)
    now = family.at(family.x_at(eta_y_ * t_ / k))
    x, y, own, e = now.x, now.y, np.exp(now.w), np.exp(now.q)
    rest = -(x + (k - 1) * y) / m
    wrong = m - k + (k - 1) * e
    total = own + wrong
    return FrozenDecoder(
        x=to_result(x), own=to_result(x + rest), other=to_result(y + rest), rest=to_result(rest),
        gap=to_result(now.w), gap_other=to_result(now.q), alpha=to_result(own / total),
        gamma_iota=to_result((x * wrong - (k - 1) * y * e) / total),
        gamma_beta=to_result(now.beta * now.error / total), growth=to_result(now.growth),
    )  # fmt: skip
