"""The entropy of attention has a lower bound that falls with the size of its logits; does training come near it?

Source: the entropy of a row of attention is bounded below, tightly, by a function of the spectral norm of the logits
that falls exponentially. For T keys and logits of norm σ, as we read it,

    H ≥ ln(1 + (T − 1)β) + σ √(T(T − 1)) β/(1 + (T − 1)β),      β = e^{−σ √(T/(T − 1))}

Of all logits at the same distance σ from their mean, one above T − 1 equal ones has the least entropy, and that is the
bound; a row of a matrix is at most as long as its spectral norm, so that the row's own σ gives the tightest form.

Setting: Syn-Medium(1), equal rates, exact flow to 10¹² t₀; T: the 20 context tokens of a class, z_l + ln P(l|n) each.
*Bound*: the least slack H − bound over the flow, with and without the norm; below 0 it would be broken. *Tight*: the
way from ln T down to the entropy over the way down to the bound, at the end: 1 where attention is on it, and at least
0.9 counts.
"""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey import yz
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import entropy_of
from scansnap.theory import t_snap

ZHAI = Source(
    "Zhai, Likhomanenko, Littwin, Busbridge, Ramapuram, Zhang, Gu and Susskind 2023",
    "Stabilizing Transformer Training by Preventing Attention Entropy Collapse", "2303.06296", "abstract",
)  # fmt: skip
_END = "Syn-Medium(1), equal rates, flow to 10¹² t₀"
BOUND = surveyed("entropy-bound", "entropy of attention is bounded below by the norm of its logits", source=ZHAI,
                 setting=f"no norm and l2 norm, {_END}")  # fmt: skip
TIGHT = surveyed("entropy-bound-tight", "the bound on the entropy is tight: training comes to it", source=ZHAI,
                 setting=f"no norm, {_END}")  # fmt: skip
TIGHT_L2 = surveyed("entropy-bound-tight-l2", "the bound on the entropy is tight: training comes to it", source=ZHAI,
                    setting=f"l2 norm, {_END}")  # fmt: skip
STATEMENTS = (BOUND, TIGHT, TIGHT_L2)


def least_entropy(sigma: FloatArray, keys: int) -> FloatArray:
    """The bound for logits at a distance σ from their mean."""
    gap = sigma * np.sqrt(keys / (keys - 1))
    others = (keys - 1) * np.exp(-gap)
    return np.asarray(np.log1p(others) + gap * others / (1 + others))


def entropies(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Entropy of the softmax of logits (…, T), and its bound."""
    away = logits - logits.mean(-1, keepdims=True)
    weight = np.exp(away - away.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    return entropy_of(weight), least_entropy(np.linalg.norm(away, axis=-1), logits.shape[-1])


def logits(norm: str, decades: int = 12) -> FloatArray:
    """z_l + ln P(l|n) of both classes along the flow, (times, classes, T)."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    snap = float(t_snap(eta_y=1.0, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    run = yz.flow(yz.Data.of(classes), snap * np.geomspace(1e-2, 10.0**decades, 2 * decades + 5), norm=norm)
    rows = [run.z[:, m][:, p > 0] + np.log(p[p > 0])
            for m, p in zip(run.data.query, run.data.p_context, strict=True)]  # fmt: skip
    return np.stack(rows, axis=1)


def judge_bound(along: FloatArray) -> Finding:
    entropy, bound = entropies(along)
    slack = entropy - bound
    return BOUND.found(
        float(slack.min()), predicted=0.0, bound=-1e-9, where="the bound is broken",
        quantity=f"least slack in nats over the flow (largest {slack.max():.2f})",
    )  # fmt: skip


def judge_tight(statement: Surveyed, end: FloatArray) -> Finding:
    entropy, bound = entropies(end)
    whole = np.log(end.shape[-1])
    return statement.found(
        float(((whole - entropy) / (whole - bound)).mean()), predicted=1.0, bound=0.9, where="far above the bound",
        quantity=f"share of the way to the bound at the end (entropy {entropy.mean():.3f}, bound {bound.mean():.3f})",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    free, normed = logits("none"), logits("l2")
    return [
        judge_bound(np.concatenate([free, normed])),
        judge_tight(TIGHT, free[-1]),
        judge_tight(TIGHT_L2, normed[-1]),
    ]
