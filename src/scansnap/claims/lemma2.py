"""Lemma 2: in long sequences the attention is that of the class.

X^T b, the attention summed by token, is c_l ∝ k_l e^{z_ml} with the counts k of the sampled sequence; it tends to
c_n as T → ∞, and X^T diag(b) X = diag(X^T b) with it (rows of X are one-hot). Counts are sums of T − 1 independent
draws, so the deviation falls as 1/√T, with a constant known in closed form (**ours**, by the delta method):

    (T − 1) E‖X^T b − c_n‖² → Σ_l P(l|n) v_l² ‖e_l − c_n‖²,    v_l = e^{z_ml} / Σ_l' P(l'|n) e^{z_ml'}
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.sampling import SamplingTable, sample_counts

STATEMENT = Statement(
    "lemma-2", "Lemma 2", "the attention X^T b of a sampled sequence tends to c_n, its deviation falling as 1/√T"
)

# On the slope, beside 5 standard errors of the sampling (computed from the samples). The law is asymptotic: at
# length T the RMS is off by a share a T*/T, with T* as in ``_least_length`` and a of order 1. From 32 T* to
# 2¹³ T* this tilts the fitted line by 0.005 a: the bound allows a = 4.
TOLERANCE = 0.02

_ERRORS = 5  # standard errors: a false alarm in two million
_SHORTEST, _LONGEST = 2**6, 2**40  # of the first length
_FACTORS = 4 ** np.arange(5)  # four times as long is half the deviation
_SAMPLES, _CLASSES = 256, 8  # sequences per length, and how many classes they are spread over at most

Draw = Callable[[SamplingTable, Tensor, Tensor, Tensor, int], Tensor]


def check(evidence: Evidence, *, draw: Draw = sample_counts, seed: int = 0) -> Claim:
    """At the last recorded z, for T = 2⁶ … 2¹⁴ (later where attention rests on rare tokens).

    ``draw`` has the signature of :func:`scansnap.sampling.sample_counts`.
    """
    classes = evidence.classes
    chosen = np.unique(np.linspace(0, classes.n_classes - 1, min(classes.n_classes, _CLASSES)).astype(int))
    p, logit = _slots(evidence, chosen)
    if not np.isfinite(logit).all():
        return STATEMENT.not_applicable(f"there is no attention: z is not finite at t = {evidence.t[-1]:.4g}")
    v, c, jump = _draws(p, logit)
    limit = (p * jump).sum(-1)  # (K,) of (T − 1) E‖X^T b − c‖²
    if not limit.max() > 0:
        return STATEMENT.not_applicable("every context is a single token: X^T b = c_n at any length")
    first = _least_length(p, v, jump, limit)
    if first > _LONGEST:
        return STATEMENT.not_applicable(f"attention rests on tokens too rare to be met at lengths below {_LONGEST:.2g}")
    lengths = first * _FACTORS
    n_each = _SAMPLES // len(chosen)
    cls = torch.arange(len(chosen)).repeat_interleave(n_each)[None, None]  # (1, 1, B)
    table = SamplingTable(np.full(len(chosen), 1 / len(chosen)), p)
    rms, error = np.empty(len(lengths)), np.empty(len(lengths))
    for i, length in enumerate(lengths):
        k = draw(table, cls, torch.tensor([seed]), torch.tensor([i]), int(length) - 1).numpy()[0, 0]
        sampled = _attention(k, logit[cls[0, 0].numpy()])
        squared = ((sampled - c[cls[0, 0].numpy()]) ** 2).sum(-1).reshape(len(chosen), n_each)
        rms[i] = math.sqrt(squared.mean())
        error[i] = math.sqrt(squared.var(1, ddof=1).mean() / squared.size)  # of the mean square
    if not (rms > 0).all():
        return STATEMENT.not_applicable("sampled sequences do not differ from their class: there is no slope")
    x = np.log(lengths - 1.0)
    lever = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slope = float(lever @ np.log(rms))
    slope_error = float(np.linalg.norm(lever * error / (2 * rms**2)))
    expected = np.sqrt(limit.mean() / (lengths - 1))
    worst = int(np.argmax(np.abs(np.log(rms / expected))))
    return STATEMENT.judge(
        quantity=f"slope of log RMS(X^T b − c_n) against log T, T = {first} to {lengths[-1]} "
        f"(standard error {slope_error:.2g})",
        measured=slope,
        predicted=-0.5,
        deviation=abs(slope + 0.5),
        tolerance=TOLERANCE + _ERRORS * slope_error,
        where=f"RMS {rms[worst]:.3g} instead of {expected[worst]:.3g} at T = {lengths[worst]}",
        curve=Curve("T", "RMS deviation of X^T b from c_n", lengths, rms, expected, log_y=True),
    )


def _slots(evidence: Evidence, chosen: Array) -> tuple[Array, Array]:
    """P(l|n) and the last z_ml over the support of the chosen classes, (K, S); padded with probability 0."""
    rows = [evidence.classes.support(int(n)) for n in chosen]
    p, logit = np.zeros((2, len(rows), max(len(tokens) for tokens, _ in rows)))
    for i, (tokens, probs) in enumerate(rows):
        p[i, : len(tokens)] = probs
        logit[i, : len(tokens)] = evidence.z[-1, evidence.class_query[chosen[i]], tokens]
    return p, logit


def _attention(k: Array, logit: Array) -> Array:
    """c_l ∝ k_l e^{z_l}."""
    logit = np.where(k > 0, logit, -np.inf)
    c = k * np.exp(logit - logit.max(-1, keepdims=True))
    return np.asarray(c / c.sum(-1, keepdims=True))


def _draws(p: Array, logit: Array) -> tuple[Array, Array, Array]:
    """v_l, c_l and ‖v_l(e_l − c)‖², what one drawn token l adds to (T − 1)(X^T b − c) at leading order; (K, S)."""
    c = _attention(p, logit)
    v = np.divide(c, p, out=np.zeros_like(p), where=p > 0)
    to_corner = (1 - c) ** 2 + (c**2).sum(-1, keepdims=True) - c**2  # ‖e_l − c‖²
    to_corner[(p > 0).sum(-1) == 1] = 0.0  # rounding aside
    return v, c, v**2 * np.maximum(to_corner, 0)


def _least_length(p: Array, v: Array, jump: Array, limit: Array) -> int:
    """The power of two from which on 1/√T can be seen: 32 T*, at least 2⁶.

    T* is the number of draws until the normaliser Σ k e^z is settled, Σ P v² (Kish's design effect), and until the
    tokens that carry the deviation have been met, Σ P‖·‖⁴/(Σ P‖·‖²)²; the larger of the two, over the classes.
    """
    spread = limit > 0
    settled = (p * v**2).sum(-1)[spread]
    met = (p * jump**2).sum(-1)[spread] / limit[spread] ** 2
    need = 32 * float(max(settled.max(), met.max()))
    return max(_SHORTEST, 2 ** math.ceil(math.log2(need))) if need < 2 * _LONGEST else 2 * _LONGEST
