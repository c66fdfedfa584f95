"""The memory of the decoder: what holds attention back once it has moved.

Y was built with earlier f's. Attention feels Y only across its present f (P⊥ in Lemma 1), and f(then) − f(now) lies
across: a restoring force, against a drive which is only O(1/M). In the symmetric family (`scansnap.theory.drive`),
with the clock u, ε = η_Z/η_Y, v_l = dz_l/du and v̄ = Σ_j f_j² v_j over all tokens of a class,

    distinct l      dv_l/du = ε f_l²   [D′(u) − u (v_l − v̄)]
    common c        dv_c/du = ε K f_c² [−D′(u) (1 − ρ)/ρ − u (v_c − v̄)]              z = ∫ v du,  Σ f_c² = ρ

Without v̄ a distinct token has v_l = κ ∫₀ᵘ D′(x) e^{−κ(u² − x²)/2} dx, κ = ε f_l²: it follows the drive until
u* = √(2/κ), and is held from then on. With v̄ the equations are linear with one constant matrix, and scaled by √K for
common tokens that is symmetric, diag(f_l², K f_c²) − h hᵀ with h = (f_l², √K f_c²). So v is a sum of the same integrals
with κ = ελ over its eigenvalues λ > 0; the eigenvalue 0 is the common shift of all z, which conservation forbids.

The integral of the leading-order D′ is a Dawson function F; with σ² = κ/2 and c = ρ/(2σ),

    ∫₀ᵘ e^{ρx − σ²(u² − x²)} dx = [e^{ρu} F(σu + c) − e^{−σ²u²} F(c)]/σ

Limits: first order in z, and leading order in 1/M in what is remembered; the drive may be the exact one
(``form="exact"``). On the exact flow at M = 2014, ρ = 0.24: see ``docs/derivations.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import dawsn, erf, erfcx

from scansnap.checks import InputError, check_choice
from scansnap.theory.arguments import FloatArray, Result, to_arrays, to_result
from scansnap.theory.drive import FORMS, Form, drive, drive_rate

_SMALL = 2.0  # of ρu + κu²/2: below it the closed form cancels, and 20 nodes are exact
_NODES = 20
_PANELS, _HALVINGS = 24, 22  # 2⁻²²/24 resolves the layer of 1/κu² at κu² = 10⁶
_ASYMPTOTIC, _SERIES = 8.0, 20  # from here on F′ = 1 − 2yF cancels, and 20 terms of its series are exact
_ROUNDING = 1e-9  # of a sum of squares


def u_star(*, eta_y: ArrayLike, eta_z: ArrayLike, f: ArrayLike) -> Result:
    """u* = √(2 η_Y/η_Z)/f_l, the gap from which a token of normalised attention f_l is held by the memory.

    Parameters
    ----------
    eta_y, eta_z, f
        Rates of Y and Z; attention f_l.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> u_star(eta_y=1.0, eta_z=0.1, f=0.5)
    8.9442...
    """
    eta_y_, eta_z_, f_ = to_arrays(eta_y=eta_y, eta_z=eta_z, f=f)
    return to_result(np.sqrt(2 * eta_y_ / eta_z_) / f_)


def memory_speed(
    u: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, f: ArrayLike, form: Form = "leading",
) -> Result:  # fmt: skip
    """v_l = dz_l/du of one distinct token, without v̄: κ ∫₀ᵘ D′(x) e^{−κ(u² − x²)/2} dx, κ = (η_Z/η_Y) f_l².

    It is below the drive's κ D(u) and, where D′ is nearly constant, near D′(u)/u for u ≫ u*. Leading order: in closed
    form, to 1e-12 for κu² up to 1e6; exact: by quadrature.

    Parameters
    ----------
    u, eta_y, eta_z
        Logit gap M h; rates of Y and Z.
    n_classes, vocab_size, overlap, f, form
        Numbers of classes K and tokens M; cosine ρ of two f_n; attention f_l; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> memory_speed(2.0, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3, f=0.5)
    0.00575...
    """
    u_, eta_y_, eta_z_, k, m, rho, f_ = np.broadcast_arrays(*_read(u, eta_y, eta_z, n_classes, vocab_size, overlap, f))
    return to_result(mode_speed(form, u_, eta_z_ / eta_y_ * f_**2, k, m, rho))


def memory_gain(
    u: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, f: ArrayLike, form: Form = "leading",
) -> Result:  # fmt: skip
    """z_l(u) = ∫₀ᵘ v_l du of one distinct token, without v̄; by quadrature of `memory_speed`.

    Parameters
    ----------
    u, eta_y, eta_z
        Logit gap M h; rates of Y and Z.
    n_classes, vocab_size, overlap, f, form
        Numbers of classes K and tokens M; cosine ρ of two f_n; attention f_l; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> memory_gain(2.0, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3, f=0.5)
    0.00462...
    """
    u_, eta_y_, eta_z_, k, m, rho, f_ = np.broadcast_arrays(*_read(u, eta_y, eta_z, n_classes, vocab_size, overlap, f))
    return to_result(mode_gain(form, u_, eta_z_ / eta_y_ * f_**2, k, m, rho))


def memory_early(
    u: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, f: ArrayLike, form: Form = "leading",
) -> Result:  # fmt: skip
    """v_l ≈ κ D(u), the drive alone, κ = (η_Z/η_Y) f_l²: an upper bound, above by a relative κu²/3 at first; u ≪ u*.

    Parameters
    ----------
    u, eta_y, eta_z
        Logit gap M h; rates of Y and Z.
    n_classes, vocab_size, overlap, f, form
        Numbers of classes K and tokens M; cosine ρ of two f_n; attention f_l; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> memory_early(2.0, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3, f=0.5)
    0.00591...
    """
    u_, eta_y_, eta_z_, k, m, rho, f_ = _read(u, eta_y, eta_z, n_classes, vocab_size, overlap, f)
    return to_result(eta_z_ / eta_y_ * f_**2 * drive(u_, n_classes=k, vocab_size=m, overlap=rho, form=form))


def memory_late(
    u: ArrayLike, *, eta_y: ArrayLike, eta_z: ArrayLike, n_classes: ArrayLike, vocab_size: ArrayLike,
    overlap: ArrayLike, f: ArrayLike, form: Form = "leading",
) -> Result:  # fmt: skip
    """v_l ≈ D′(u)/(u + ρ/κ): the end of the integral, where the exponent rises by ρ + κu per unit. For κu² + ρu ≫ 1.

    For κu ≫ ρ that is the quasi-static D′(u)/u, in which memory and drive balance; ε is no longer in it.

    Parameters
    ----------
    u, eta_y, eta_z
        Logit gap M h; rates of Y and Z.
    n_classes, vocab_size, overlap, f, form
        Numbers of classes K and tokens M; cosine ρ of two f_n; attention f_l; ``leading`` in 1/M or ``exact``.

    Returns
    -------
    float or numpy.ndarray

    Examples
    --------
    >>> memory_late(20.0, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, overlap=0.3, f=0.5)
    5.4446...
    """
    u_, eta_y_, eta_z_, k, m, rho, f_ = _read(u, eta_y, eta_z, n_classes, vocab_size, overlap, f)
    stiff = eta_z_ / eta_y_ * f_**2
    rate = np.asarray(drive_rate(u_, n_classes=k, vocab_size=m, overlap=rho, form=form))
    return to_result(stiff * rate / (stiff * u_ + rho))


@dataclass(frozen=True)
class TokenMemory:
    """The solution of the memory equation for the tokens of a class, as `memory_tokens` computes it.

    The last axis has the distinct tokens, then the common ones.

    Attributes
    ----------
    z
        Attention logits z_l.
    v
        dz_l/du.

    Examples
    --------
    >>> tokens = memory_tokens([1.0, 2.0], eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, f_distinct=[0.5, 0.6])
    >>> tokens.z.shape
    (2, 3)
    """

    z: FloatArray
    v: FloatArray


def memory_tokens(
    u: ArrayLike, *, eta_y: float, eta_z: float, n_classes: int, vocab_size: int, f_distinct: ArrayLike,
    f_common: ArrayLike | None = None, form: Form = "leading",
) -> TokenMemory:  # fmt: skip
    """The memory equation with v̄, for all tokens of a class; ``f_distinct`` and ``f_common`` are their f_l.

    Left out, there is one common token of f_c² = ρ = 1 − Σ f_l². All arguments but u are single numbers or rows.
    Conservation holds as in the flow: K Σ_l z_l + Σ_c z_c = 0.

    Parameters
    ----------
    u, eta_y, eta_z, n_classes, vocab_size, form
        Logit gap M h; rates of Y and Z; numbers of classes K and tokens M; ``leading`` in 1/M or ``exact``.
    f_distinct
        f_l of the distinct tokens.
    f_common
        f_l of the common tokens; by default there is one.

    Returns
    -------
    TokenMemory

    Examples
    --------
    >>> value = memory_tokens(2.0, eta_y=1.0, eta_z=0.1, n_classes=10, vocab_size=50, f_distinct=[0.5, 0.6]).z[0]
    >>> round(float(value), 4)
    0.0062
    """
    (u_,) = to_arrays(u=u)
    eta_y_, eta_z_, k, m = to_arrays(eta_y=eta_y, eta_z=eta_z, n_classes=n_classes, vocab_size=vocab_size)
    tokens = SymmetricTokens.of(f_distinct, f_common)
    lam, part = tokens.push_modes(k)
    each = np.broadcast_arrays(u_[..., None], eta_z_ / eta_y_ * lam, k, m, tokens.rho)
    return TokenMemory(mode_gain(form, *each) @ part, mode_speed(form, *each) @ part)


@dataclass(frozen=True)
class SymmetricTokens:
    """The tokens of a class of the symmetric family: first the distinct ones, then those it shares with all others."""

    f: FloatArray
    n: int  # how many are distinct

    @classmethod
    def of(cls, f_distinct: ArrayLike, f_common: ArrayLike | None) -> SymmetricTokens:
        (f,) = to_arrays(f=f_distinct)
        rest = np.asarray(1 - (f**2).sum())
        if f.ndim != 1 or not 0 < rest < 1:
            raise InputError("f_distinct", f_distinct, "a row of numbers whose squares have a sum below 1")
        if f_common is None:
            return cls(np.append(f, np.sqrt(rest)), len(f))
        (common,) = to_arrays(f=f_common)
        if common.ndim != 1 or abs((common**2).sum() - rest) > _ROUNDING:
            raise InputError("f_common", f_common, f"a row of numbers whose squares have the sum {rest:.6g}")
        return cls(np.append(f, common), len(f))

    @property
    def more(self) -> int:
        """How many are common."""
        return len(self.f) - self.n

    @property
    def squares(self) -> FloatArray:
        return np.asarray(self.f**2)

    @property
    def rho(self) -> FloatArray:
        return np.asarray(self.squares[self.n :].sum())

    def push_modes(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`modes` for the push of the drive: D′ on distinct tokens, −D′(1 − ρ)/ρ on common ones."""
        return self.modes(k, self.squares * np.append(np.ones(self.n), np.full(self.more, 1 - 1 / self.rho)))

    def modes(self, k: FloatArray, push: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of dv/du = ε s (push − u f² (v − v̄)), s = 1 for distinct tokens and K for common ones.

        The eigenvalues λ > 0, (modes,), and what each mode adds to each token, (modes, tokens), when its own equation
        is dv/du = ελ (1 − uv).
        """
        root = np.append(np.ones(self.n), np.full(self.more, np.sqrt(k)))
        weight = root * self.squares
        values, vectors = np.linalg.eigh(np.diag(root * weight) - np.outer(weight, weight))
        moved = values > values[-1] * 1e-12  # all but the common shift
        lam, vectors = values[moved], vectors[:, moved]
        return lam, ((vectors.T @ (root * push)) / lam)[:, None] * (vectors * root[:, None]).T


def _read(
    u: ArrayLike, eta_y: ArrayLike, eta_z: ArrayLike, k: ArrayLike, m: ArrayLike, rho: ArrayLike, f: ArrayLike
) -> list[FloatArray]:
    return to_arrays(u=u, eta_y=eta_y, eta_z=eta_z, n_classes=k, vocab_size=m, overlap=rho, f=f)


def mode_speed(
    form: Form, u: FloatArray, kappa: FloatArray, k: FloatArray, m: FloatArray, rho: FloatArray
) -> FloatArray:
    """The speed v = κ ∫₀ᵘ D′(x) e^{−κ(u² − x²)/2} dx of a mode of stiffness κ; all arguments of one shape."""
    if check_choice("form", form, FORMS) == "exact":
        return kappa * _integral(lambda x, u, kappa: np.exp(-kappa / 2 * (u - x) * (u + x)), u, kappa, k, m, rho, form)
    value = np.empty(u.shape)
    small = rho * u + kappa * u**2 / 2 < _SMALL
    value[small] = _by_nodes(u[small], kappa[small], rho[small])
    value[~small] = _by_dawson(u[~small], kappa[~small], rho[~small])
    return kappa * (k - 1) * rho / m * value


def mode_gain(
    form: Form, u: FloatArray, kappa: FloatArray, k: FloatArray, m: FloatArray, rho: FloatArray
) -> FloatArray:
    """∫₀ᵘ v = ∫₀ᵘ D′(x) W(x) dx, W = κ ∫ₓᵘ e^{−κ(y² − x²)/2} dy the lasting effect of a push at x."""
    check_choice("form", form, FORMS)
    return _integral(_lasting, u, kappa, k, m, rho, form)


def mode_stiffness_slope(u: FloatArray, kappa: FloatArray, k: FloatArray, m: FloatArray, rho: FloatArray) -> FloatArray:
    """κ ∂z/∂κ of a mode at fixed u: κ∂W/∂κ = ½[W(1 + κx²) − κx + κu e^{−κ(u² − x²)/2}]; leading order."""

    def kernel(x: FloatArray, u: FloatArray, kappa: FloatArray) -> FloatArray:
        end = kappa * u * np.exp(-kappa / 2 * (u - x) * (u + x))
        return np.asarray((_lasting(x, u, kappa) * (1 + kappa * x**2) - kappa * x + end) / 2)

    return _integral(kernel, u, kappa, k, m, rho, "leading")


def _lasting(x: FloatArray, u: FloatArray, kappa: FloatArray) -> FloatArray:
    sigma = np.sqrt(kappa / 2)
    near, end = sigma * x, sigma * u
    short = end < 1  # e^{σ²x²} (erf − erf) there, scaled erfc beyond: each without overflow, and keeps its digits
    low = np.where(short, near, 0.0)
    by_erf = np.exp(low**2) * (erf(np.where(short, end, 0.0)) - erf(low))
    by_erfcx = erfcx(near) - np.exp(-(end - near) * (end + near)) * erfcx(end)
    return np.asarray(sigma * np.sqrt(np.pi) * np.where(short, by_erf, by_erfcx))


def _integral(
    kernel: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    u: FloatArray, kappa: FloatArray, k: FloatArray, m: FloatArray, rho: FloatArray, form: Form,
) -> FloatArray:  # fmt: skip
    """∫₀ᵘ D′(x) kernel(x, u, κ) dx. In σx = sinh θ the kernels are smooth, but for a layer at the end."""
    share, weights = _mesh()
    u_, kappa_, k_, m_, rho_ = (value[..., None] for value in (u, kappa, k, m, rho))
    sigma = np.sqrt(kappa_ / 2)
    theta = np.arcsinh(sigma * u_)
    x = np.minimum(np.sinh(theta * share) / sigma, u_)
    rate = np.asarray(drive_rate(x, n_classes=k_, vocab_size=m_, overlap=rho_, form=form))
    return np.asarray((rate * kernel(x, u_, kappa_) * np.cosh(theta * share)) @ weights * (theta / sigma)[..., 0])


def _mesh() -> tuple[FloatArray, FloatArray]:
    """Gauss–Legendre nodes and weights on [0, 1]: equal panels, the last of them halved again and again."""
    ends = np.append(np.arange(_PANELS) / _PANELS, 1 - 0.5 ** np.arange(1, _HALVINGS) / _PANELS)
    ends = np.append(ends, 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    widths = np.diff(ends)
    share = ends[:-1, None] + widths[:, None] * (1 + nodes) / 2
    return share.ravel(), (widths[:, None] * weights / 2).ravel()


def _by_nodes(u: FloatArray, kappa: FloatArray, rho: FloatArray) -> FloatArray:
    """∫₀ᵘ (2e^{ρx} + ρx e^{ρx} − 1) e^{−κ(u² − x²)/2} dx where the integrand hardly bends."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    x = u[..., None] * (1 + nodes) / 2
    rise = rho[..., None] * x
    growth = np.exp(rise)
    inner = (growth + np.expm1(rise) + rise * growth) * np.exp(-kappa[..., None] / 2 * (u[..., None] ** 2 - x**2))
    return np.asarray(inner @ weights * u / 2)


def _by_dawson(u: FloatArray, kappa: FloatArray, rho: FloatArray) -> FloatArray:
    """The same in closed form: 2 I(e^{ρx}) + I(ρx e^{ρx}) − I(1), each over e^{−σ²(u² − x²)}, σ² = κ/2."""
    sigma = np.sqrt(kappa / 2)
    c, su = rho / (2 * sigma), sigma * u
    end = su + c
    growth, start = np.exp(rho * u), np.exp(-(su**2))
    plain = (growth * dawsn(end) - start * dawsn(c)) / sigma
    # I(x e^{ρx}) by parts is (e^{ρu} − e^{−σ²u²} − ρ I(e^{ρx}))/2σ². For large c that is the small difference of
    # terms of size 1; with F′ = 1 − 2yF it is one of their actual size.
    rising = c / sigma * (growth * (_dawson_slope(end) + 2 * su * dawsn(end)) - start * _dawson_slope(c))
    return np.asarray(2 * plain + rising - dawsn(su) / sigma)


def _dawson_slope(y: FloatArray) -> FloatArray:
    """F′(y) = 1 − 2yF(y), which tends to −Σ (2n − 1)!!/(2y²)ⁿ."""
    far = y > _ASYMPTOTIC
    step = 1 / (2 * np.where(far, y, _ASYMPTOTIC) ** 2)
    series = np.zeros_like(step)
    for n in range(_SERIES, 0, -1):
        series = (2 * n - 1) * step * (1 + series)
    return np.where(far, -series, 1 - 2 * y * dawsn(y))
