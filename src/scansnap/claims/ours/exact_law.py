"""An exact law of attention and decoder, for any classes, overlaps and queries (docs/derivations.md, "An exact law").

d‖Y_l‖²/dt = 2η_Y Σ_n p_n f_nl (Y r_n)_l, whose sum also stands in ż. From zero tables, for every token l,

    Σ_m z_ml/η_Z − ½‖Y_l‖²/η_Y = −∫ R_l dt,        R_l = Σ_n p_n f_nl² (f_nᵀ Y r_n)

with the sum over all queries m. The flow obeys it to its integration error. Plain steps k of full expectation
obey it as a sum, to rounding, with the squares of the steps added:

    … = −Σ_k R_l − ½ η_Y Σ_k ‖Σ_n p_n f_nl r_n‖²

JoMA's relation of attention and weights is this law with f_nl² taken out of the integral, that is for attention that
has not moved. The law needs no such approximation.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import log_softmax

from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence, machine_epsilon

LAW = Statement(
    "exact-law", "Exact law (ours, docs/derivations.md)",
    "Σ_m z_ml/η_Z = ½‖Y_l‖²/η_Y − ∫ Σ_n p_n f_nl² (f_nᵀ Y r_n) dt for every token l", kind="identity",
)  # fmt: skip
STATEMENTS = (LAW,)

# Errors of flow and quadrature, relative to the largest ½‖Y_l‖²/η_Y of the time: the flow is integrated to 1e-9, and
# its 120 times give an integral to 1e-6. For a record, the error is estimated by halving the number of its times.
INTEGRATED = 1e-5
# Of a sum over steps that are all recorded: at most an ε for each, and some more at the start.
ROUNDED = 1e3
# If half of the times change the integral by more, the record is too coarse.
COARSE = 0.01

_FEWEST = 8


def check(evidence: Evidence) -> Claim:
    """At every recorded time that has Y."""
    t, y, at = evidence.t, evidence.y, evidence.y_times
    reason = ""
    if y is None or at is None or evidence.g is None:
        reason = "needs y, and the gradients g at every recorded time"
    elif evidence.sampled:
        reason = "updates are sampled: the law is one of expected gradients"
    elif t[0] != 0:
        reason = f"the record begins at t = {t[0]:.4g}, not at 0"
    elif len(t) < _FEWEST:
        reason = f"fewer than {_FEWEST} times are recorded"
    elif evidence.momentum:
        reason = "with momentum no step is a gradient step: the law holds only for small steps"
    elif evidence.source == "sgd" and len(at) < len(t):
        reason = "steps have a size: y is needed at every recorded time"
    if reason or y is None or at is None or evidence.g is None:
        return LAW.not_applicable(reason)
    return _judge(evidence, y, at)


def _judge(evidence: Evidence, y: Array, at: Array) -> Claim:
    law, error = predict(evidence, y)  # (n, M) each
    stored = (y**2).sum(-1) / (2 * evidence.eta_y)  # (k, M)
    measured = evidence.z[at].sum(1) / evidence.eta_z - stored
    learned = np.flatnonzero(stored.max(-1) > 0)
    if not len(learned):
        return LAW.not_applicable("the decoder has not learned")
    t, at, measured, size = evidence.t[at[learned]], at[learned], measured[learned], stored[learned].max(-1)[:, None]
    off = np.abs(measured - law[at]) / size
    rounding = machine_epsilon(y) * (ROUNDED + t[:, None])
    allowed = error[at] / size + rounding + (0 if _all_steps(evidence) else INTEGRATED)
    fine = (allowed <= COARSE).all(-1)
    if not fine.any():
        return LAW.not_applicable("the recorded times are too far apart to integrate over")
    i, token = index_of_largest(np.where(fine[:, None], off / allowed, 0.0))
    return LAW.judge(
        quantity=f"Σ_m z_ml/η_Z − ½‖Y_l‖²/η_Y of token {token} at t = {t[i]:.4g}, against what the law gives, relative "
        "to the largest ½‖Y_l‖²/η_Y",
        measured=measured[i, token], predicted=law[at][i, token], deviation=off[i, token],
        tolerance=allowed[i, token],
        failure=f"token {token}, {evidence.format_time(t[i])}: off by {off[i, token]:.2g} of the largest ½‖Y_l‖²/η_Y",
        curve=Curve("t", f"Σ z/η_Z − ½‖Y‖²/η_Y of token {token}", t, measured[:, token], law[at][:, token]),
    )  # fmt: skip


def predict(evidence: Evidence, y: Array) -> tuple[Array, Array]:
    """(n, M), (n, M) the right side of the law at every recorded time, and how far off it may be."""
    rate = pull_rate(evidence)
    if evidence.source == "sgd":
        rate = rate + evidence.eta_y / 2 * _squared_steps(evidence, y)
    every = np.arange(len(rate))
    total = _integrate(rate, evidence, every)
    if _all_steps(evidence):
        return -total, np.zeros_like(total)
    half = np.unique(np.append(every[::2], every[-1]))
    change = np.zeros_like(total)
    change[half] = np.abs(_integrate(rate, evidence, half) - total[half])
    change[:-1] = np.maximum(change[:-1], change[1:])  # at the skipped times, that of the next
    # a quarter of what half of the times change, where a rule of fourth order would have a fifteenth
    return -total, np.maximum.accumulate(change, axis=0) / 4


def _all_steps(evidence: Evidence) -> bool:
    return evidence.source == "sgd" and bool((np.diff(evidence.t) == 1).all())


def _integrate(rate: Array, evidence: Evidence, at: Array) -> Array:
    """(n, M) ∫ rate dt from t = 0 on, or Σ over the steps before t, by splines through the recorded times ``at``.

    The splines are in ln(1 + t/t₀′), which is t at first, where the rate is linear in t, and ln t later.
    """
    t, rate, scale = evidence.t[at, None], rate[at], evidence.t_scan
    clock = np.log1p(t[:, 0] / scale)
    parts = np.diff(CubicSpline(clock, rate * (t + scale)).antiderivative()(clock), axis=0)
    if evidence.source == "sgd":  # Euler and Maclaurin; between neighbours it is one step
        slope = CubicSpline(clock, rate)(clock, 1) / (t + scale)
        parts += -np.diff(rate, axis=0) / 2 + np.diff(slope, axis=0) / 12
        parts = np.where(np.diff(t, axis=0) == 1, rate[:-1], parts)
    return np.concatenate([np.zeros_like(rate[:1]), np.cumsum(parts, axis=0)])


def pull_rate(evidence: Evidence) -> Array:
    """(n, M) R_l = Σ_n p_n f_nl² (f_nᵀ g_n)."""
    assert evidence.g is not None
    along = (evidence.f * evidence.g).sum(-1)  # (n, K)
    rate: Array = np.einsum("tnl,tn,n->tl", evidence.f**2, along, evidence.classes.p_class, optimize=True)
    return rate


def _squared_steps(evidence: Evidence, y: Array) -> Array:
    """(n, M) ‖Σ_n p_n f_nl r_n‖², the square of a step of Y_l over η_Y."""
    k = np.arange(evidence.classes.n_classes)
    squares = np.empty((len(y), y.shape[1]))
    for i, (f, table) in enumerate(zip(evidence.f, y, strict=True)):
        r = -np.exp(log_softmax(f @ table, axis=-1))  # (K, M)
        r[k, evidence.classes.next_token] += 1
        step = (evidence.classes.p_class[:, None] * f).T @ r  # (M, M)
        squares[i] = (step**2).sum(-1)
    return squares
