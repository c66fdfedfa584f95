"""Lemma 2: in long sequences the attention is that of the class.

X^T b, the attention summed by token, is c_l ∝ k_l e^{z_ml} with the counts k of the sampled sequence; it tends to
c_n as T → ∞, and X^T diag(b) X = diag(X^T b) with it (rows of X are one-hot). Sequences and attention are those of
``simulate`` (dynamics/engines/batches.py and yz.py) at the last recorded z, and c_n is the attention recorded there.
Counts are sums of T − 1 independent draws, so the deviation falls as 1/√T, with a constant known in closed form
(**ours**, by the delta method):

    (T − 1) E‖X^T b − c_n‖² → Σ_l P(l|n) v_l² ‖e_l − c_n‖²,    v_l = e^{z_ml} / Σ_l' P(l'|n) e^{z_ml'}

It is an identity: the law of large numbers holds for independent draws, so a failure would be a bug of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence, machine_epsilon
from scansnap.classes import SequenceClasses
from scansnap.dynamics import yz
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import TableLayout, make_layout
from scansnap.dynamics.settings import ModelConfig, Settings

STATEMENT = Statement(
    "lemma-2", "Lemma 2", "the attention X^T b of a sampled sequence tends to c_n, its deviation falling as 1/√T",
    kind="identity",
)  # fmt: skip
SIZE = Statement(
    "lemma-2-size", "Lemma 2",
    "the size of the deviation is that of T − 1 independent draws, √(Σ P v²‖e − c_n‖²/(T − 1))",
    kind="identity",
)  # fmt: skip
STATEMENTS = (STATEMENT, SIZE)

# On the slope. The law is asymptotic: at length T the RMS is off by a share a T*/T, with T* as in ``_least_length``
# and a of order 1. From 32 T* to 2¹³ T* this tilts the fitted line by 0.005 a: the bound allows a = 4.
TOLERANCE = 0.02
# On the size at the longest length, 8192 T* or more, where the law is off by 1e-4; three standard errors are 0.02.
SIZE_TOLERANCE = 0.05

_ERRORS = 3  # standard errors of the slope on either side
_SHORTEST, _LONGEST = 2**6, 2**40  # of the first length
_FACTORS = 4 ** np.arange(5)  # four times as long is half the deviation
_CLASSES = 8  # how many classes the sequences are spread over at most
_SAMPLES, _ROUNDS = 256, 64  # sequences per length and round, and rounds at most
_ENOUGH = TOLERANCE / 4  # error of the slope at which rounds end
_CPU = torch.device("cpu")

Draw = Callable[[TableLayout, int, int, int], yz.CountBatch]


def sequences(layout: TableLayout, length: int, step: int, seed: int) -> yz.CountBatch:
    """A mini-batch of ``simulate`` with ``length`` context tokens."""
    plan = Settings(context=length + 1, batch_size=_SAMPLES, dtype="float64")
    return (
        Batches(layout, plan, np.array([seed]), _CPU).take(step, step + 1).batch(0, torch.zeros(1, dtype=torch.int64))
    )


def check(evidence: Evidence, *, draw: Draw = sequences, seed: int = 0) -> list[Claim]:
    """At the last recorded z, for T = 2⁶ … 2¹⁴ (later where attention rests on rare tokens).

    ``draw`` has the signature of `sequences`.
    """
    classes = evidence.classes
    chosen = np.unique(np.linspace(0, classes.n_classes - 1, min(classes.n_classes, _CLASSES)).astype(int))
    shown = _subset(classes, chosen)
    layout = make_layout(shown, ModelConfig(), decays=False)
    z = evidence.z[-1, np.searchsorted(classes.queries, shown.queries)]  # (Q, M)
    c = np.where(layout.slot_p > 0, evidence.attention[-1, chosen[:, None], layout.slots], 0.0)  # (K, S)
    if not (np.isfinite(z).all() and np.isfinite(c).all()):
        return _not_applicable(f"there is no attention: z is not finite at t = {evidence.t[-1]:.4g}")
    v, jump = _draws(layout.slot_p, c)
    limit = (layout.slot_p * jump).sum(-1)  # (K,) of (T − 1) E‖X^T b − c‖²
    if not limit.max() > 0:
        return _not_applicable("every context is a single token: X^T b = c_n at any length")
    first = _least_length(layout.slot_p, v, jump, limit)
    if first > _LONGEST:
        return _not_applicable(f"attention rests on tokens too rare to be met at lengths below {_LONGEST:.2g}")
    lengths = first * _FACTORS
    expected = np.sqrt(limit.mean() / (lengths - 1))
    if expected[-1] < 100 * machine_epsilon(c):
        return _not_applicable(
            f"a deviation of {expected[-1]:.2g}, at T = {lengths[-1]:.2g}, is not seen in single precision"
        )
    rms, rms_error, slope, slope_error = _fit(layout, z, c, lengths, draw, seed)
    off, noise = abs(slope + 0.5), _ERRORS * slope_error
    worst = int(np.argmax(np.maximum(rms / expected, expected / np.maximum(rms, 1e-300))))
    curve = Curve("T", "RMS deviation of X^T b from c_n", lengths, rms, expected, log_y=True)
    shape = STATEMENT.judge(
        quantity=f"slope of log RMS(X^T b − c_n) against log T, T = {first} to {lengths[-1]} "
        f"(standard error {slope_error:.2g})",
        measured=slope, predicted=-0.5, deviation=off, tolerance=TOLERANCE,
        failure=f"RMS {rms[worst]:.3g} instead of {expected[worst]:.3g} at T = {lengths[worst]}",
        curve=curve,
        interval=(max(off - noise, 0.0), off + noise),
        remedy=f"more sequences would decide: the slope is known to ± {noise:.2g}",
    )  # fmt: skip
    off, noise = abs(rms[-1] / expected[-1] - 1), _ERRORS * rms_error[-1] / expected[-1]
    size = SIZE.judge(
        quantity=f"RMS(X^T b − c_n) at T = {lengths[-1]} (standard error {rms_error[-1]:.2g})",
        measured=rms[-1], predicted=expected[-1], deviation=off, tolerance=SIZE_TOLERANCE,
        failure=f"off by {off:.2g}", curve=curve, interval=(max(off - noise, 0.0), off + noise),
        remedy=f"more sequences would decide: the size is known to ± {noise:.2g} of it",
    )  # fmt: skip
    return [shape, size]


def _not_applicable(reason: str) -> list[Claim]:
    return [statement.not_applicable(reason) for statement in STATEMENTS]


def _fit(
    layout: TableLayout, z: Array, c: Array, lengths: Array, draw: Draw, seed: int
) -> tuple[Array, Array, float, float]:
    """RMS deviation at each length with its standard error, the slope of its logarithm, and the slope's."""
    x = np.log(lengths - 1.0)
    lever = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    samples, slope, slope_error = np.empty((len(lengths), 0)), math.nan, math.inf
    for start in range(0, _ROUNDS * len(lengths), len(lengths)):
        batches = [draw(layout, int(length) - 1, start + i, seed) for i, length in enumerate(lengths)]
        samples = np.hstack([samples, [_deviations(layout, z, c, batch) for batch in batches]])  # (lengths, samples)
        mean = samples.mean(1)
        if not (mean > 0).all():  # sequences equal to their class were not sampled: no slope
            return np.sqrt(mean), np.full(len(mean), math.nan), math.nan, math.nan
        error = samples.std(1, ddof=1) / math.sqrt(samples.shape[1])  # of the mean square
        slope, slope_error = float(lever @ np.log(mean)) / 2, float(np.linalg.norm(lever * error / (2 * mean)))
        if _ERRORS * slope_error <= _ENOUGH:
            break
    rms = np.sqrt(mean)
    return rms, error / (2 * rms), slope, slope_error


def _deviations(layout: TableLayout, z: Array, c: Array, batch: yz.CountBatch) -> Array:
    """‖X^T b − c_n‖² of each sequence, (B,), with the attention that the engine gives it."""
    y = torch.zeros(1, len(layout.rows), len(layout.columns), dtype=torch.float64)
    tables = yz.Tables.of(layout, _CPU, torch.float64)
    state = yz.forward(y, torch.tensor(z)[None, None], batch, tables, ModelConfig())
    distance: Array = ((state.attention[0].numpy() - c[batch.cls[0].numpy()]) ** 2).sum(-1)
    return distance


def _subset(classes: SequenceClasses, chosen: Array) -> SequenceClasses:
    """Only these classes, each as likely as the others."""
    rows = [classes.support(int(n)) for n in chosen]
    return SequenceClasses.from_support(
        [tokens for tokens, _ in rows], [probs for _, probs in rows], vocab_size=classes.vocab_size,
        query=classes.query[chosen], next_token=classes.next_token[chosen],
    )  # fmt: skip


def _draws(p: Array, c: Array) -> tuple[Array, Array]:
    """v_l and ‖v_l(e_l − c)‖², what one drawn token l adds to (T − 1)(X^T b − c) at leading order; (K, S)."""
    v = np.divide(c, p, out=np.zeros_like(p), where=p > 0)
    to_corner = (1 - c) ** 2 + (c**2).sum(-1, keepdims=True) - c**2  # ‖e_l − c‖²
    to_corner[(p > 0).sum(-1) == 1] = 0.0  # rounding aside
    return v, v**2 * np.maximum(to_corner, 0)


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
