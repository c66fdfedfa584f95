"""Theorem 1: the coefficients of the gradient in the attention outputs, by least squares, and ξ_n.

    g_n = γι_n f_n − Σ_{n'≠n} γβ_nn' f_n' + rest          on the context of class n

γ alone is not observable, so the results are γι_n and γβ_nn'.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.time_windows import TRAINING
from scansnap.classes import SequenceClasses

# A sign is significant beyond this share of the terms that cancel in it. The error is 1e-16 in double precision and
# 1e-9 of Y in the flow, mostly common to those terms; the measured values are f_nᵀf_n'/M of them or more, above 1e-8
# for any M.
ROUNDING = 1e-11
# Unit vectors f_n'/‖f_n'‖ that differ by less are one direction: equal classes of the flow agree to 1e-9 or better, and
# trained classes differ by more.
RANK = 1e-6
_DETERMINED = 1e-3  # unobserved share of the directions that determine γι_n; far above RANK
_WORK = 3e9  # K³ × context × times; limits the fit to about ten seconds by using fewer times

NO_XI = "ξ_n is 0 or undetermined: no class overlaps with another whose f is not a combination of the others"


@dataclass(frozen=True)
class Decomposition:
    """The coefficients at some of the recorded times; NaN where numbers are not finite."""

    gamma_iota: Array  # (n, K)
    gamma_beta: Array  # (n, K, K)  0 where classes do not overlap
    error: Array  # (n, K, K)  standard error of γβ_nn', from the rest
    size: Array  # (n, K)  ‖g_n‖
    across: Array  # (n, K)  ‖P⊥g_n‖, the part that moves attention
    rest: Array  # (n, K)  ‖rest‖
    spare: Array  # (n, K)  dimensions of the context that the f_n' leave free
    determined: Array  # (n, K)  whether γι_n is: f_n is no combination of the other f_n' on this context


def thinned_window(evidence: Evidence) -> Array:
    """Indices of the times at which the theorem is judged (`scansnap.claims.time_windows.TRAINING`), thinned."""
    return thin(evidence, TRAINING.select(evidence))


def thin(evidence: Evidence, times: Array) -> Array:
    """The first and the last of the times, and as many between them as the size of the problem allows."""
    work = evidence.classes.n_classes**3 * float(evidence.classes.support_sizes.max())
    most = max(8, int(_WORK / work))
    if len(times) <= most:
        return times
    return times[np.linspace(0, len(times) - 1, most).round().astype(int)]


def overlapping(classes: SequenceClasses) -> Array:
    """(K, K) whether two different classes share a context token."""
    has = (classes.p_context > 0).astype(np.float64)
    shared: Array = has @ has.T > 0
    np.fill_diagonal(shared, False)
    return shared


def classes_with_xi(evidence: Evidence, fit: Decomposition) -> Array:
    """The classes whose ξ_n is observable: it is 0 without overlap."""
    return np.flatnonzero(fit.determined.all(0) & overlapping(evidence.classes).any(1))


def decompose(evidence: Evidence, times: Array) -> Decomposition:
    """Class by class, each on its own context."""
    assert evidence.g is not None
    classes, k = evidence.classes, evidence.classes.n_classes
    f, g = evidence.f[times], evidence.g[times]  # (n, K, M)
    near = overlapping(classes)
    flat, square = (len(times), k), (len(times), k, k)
    result = Decomposition(
        np.zeros(flat), np.zeros(square), np.zeros(square), np.zeros(flat), np.zeros(flat), np.zeros(flat),
        np.zeros(flat, dtype=int), np.ones(flat, dtype=bool),
    )  # fmt: skip
    for n in range(k):
        ids = classes.support(n)[0]
        of_class = _fit(f[:, n, ids], g[:, n, ids], f[:, near[n]][:, :, ids])
        for field in fields(Decomposition):
            into, values = getattr(result, field.name), getattr(of_class, field.name)
            if into.ndim == 3:
                into[:, n, near[n]] = values
            else:
                into[:, n] = values
    return result


def _fit(f: Array, g: Array, others: Array) -> Decomposition:
    """One class: f_n and g_n (n, S) on its S tokens, and the R classes that overlap with it (n, R, S).

    Least squares by singular values, after removing f_n. The rest, P⊥g_n = g_n − f_n f_nᵀg_n, is small (ξ_n/γ ≪ 1) and
    alone moves attention; fitting it separately from the large part along f_n preserves its precision.
    """
    finite = np.isfinite(f).all(-1) & np.isfinite(g).all(-1) & np.isfinite(others).all((-2, -1))
    f, g = np.where(finite[:, None], f, 0), np.where(finite[:, None], g, 0)
    length, unit = _unit(others, finite)
    along = (unit * f[:, None]).sum(-1)  # (n, R)
    across = unit - along[..., None] * f[:, None]  # P⊥ of them
    fg = (f * g).sum(-1)
    moving = g - f * fg[:, None]  # P⊥g_n

    left, s, right = np.linalg.svd(across, full_matrices=False)  # (n, R, r), (n, r), (n, r, S)
    significant = s > RANK
    inverse = np.where(significant, 1 / np.where(significant, s, 1), 0)
    b = -(left * (inverse * (right @ moving[..., None])[..., 0])[:, None]).sum(-1)  # (n, R)  of the unit vectors
    rest = moving + (b[..., None] * across).sum(-2)

    observed = left * significant[:, None]
    unobserved = along - (observed * (observed * along[..., None]).sum(-2, keepdims=True)).sum(-1)
    spare = f.shape[-1] - 1 - significant.sum(-1)
    noise = np.linalg.norm(rest, axis=-1) / np.sqrt(np.maximum(spare, 1))
    spread = np.sqrt(((left * inverse[:, None]) ** 2).sum(-1))
    known = np.where(finite, 1.0, np.nan)
    return Decomposition(
        gamma_iota=known * (fg + (b * along).sum(-1)),
        gamma_beta=known[:, None] * b / length,
        error=known[:, None] * noise[:, None] * spread / length,
        size=known * np.linalg.norm(g, axis=-1),
        across=known * np.linalg.norm(moving, axis=-1),
        rest=known * np.linalg.norm(rest, axis=-1),
        spare=spare,
        determined=np.linalg.norm(unobserved, axis=-1) <= _DETERMINED * np.linalg.norm(along, axis=-1),
    )


def _unit(vectors: Array, finite: Array) -> tuple[Array, Array]:
    """Lengths and directions of (n, R, S); 1 and 0 for vectors without a direction."""
    length = np.linalg.norm(vectors, axis=-1)  # (n, R)
    usable = finite[:, None] & (length > 0)
    length = np.where(usable, length, 1)
    return length, np.where(usable[..., None], vectors, 0) / length[..., None]


def coefficients(evidence: Evidence, n: int, times: Array) -> tuple[Array, Array]:
    """(n,), (n,) γι_n and ξ_n = γι_n − f_nᵀg_n of a class that has distinct tokens, without a fit.

    A distinct token l sees only f_n: g_nl = γι_n f_nl, so γι_n = Σ f_nl g_nl/Σ f_nl² over those tokens.
    """
    assert evidence.g is not None
    f, g, distinct = evidence.f[times, n], evidence.g[times, n], evidence.classes.distinct(n)  # (n, M)
    gamma_iota = (f[:, distinct] * g[:, distinct]).sum(-1) / (f[:, distinct] ** 2).sum(-1)
    return gamma_iota, gamma_iota - (f * g).sum(-1)


def compute_xi(evidence: Evidence, times: Array, fit: Decomposition) -> Array:
    """ξ_n, (n, K), to full precision, since claims are about its sign.

    With γι_n of `coefficients`, γι_n f_nl − g_nl = Σ γβ f_n'l on the common tokens, so

        ξ_n = Σ_{l common} f_nl (γι_n f_nl − g_nl)

    This is also Σ ż_ml/(η_Z p_n Σ f_nl²) over the distinct tokens: ξ_n is the speed Theorem 2(a) speaks of. Without
    distinct tokens ξ_n = γι_n − f_nᵀg_n with the fitted γι_n.
    """
    assert evidence.g is not None
    f, g = evidence.f[times], evidence.g[times]
    xi = fit.gamma_iota - (f * g).sum(-1)
    for n in evidence.classes_with_distinct:
        if (f[:, n, evidence.classes.distinct(n)] > 0).any(-1).all():
            common = evidence.classes.common_of(n)
            gamma_iota = coefficients(evidence, n, times)[0]
            xi[:, n] = (f[:, n, common] * (gamma_iota[:, None] * f[:, n, common] - g[:, n, common])).sum(-1)
    return xi


def nonzero(values: Array) -> Array:
    """To divide by: 1 for 0."""
    return np.where(values == 0, 1, values)
