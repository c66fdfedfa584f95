"""Attention at late times: does it become one-hot, what weight decay changes, and how near its entropy is to a bound.

All flows are those of Syn-Medium(1).

**Polarisation.** Source: training values and softmax together polarises attention, since the gradient flow of L(V
σ(a)), values V times a softmax, tends to outputs of low entropy. Our model without the norm is that, with a softmax
for each class. With the paper's l2 norm, with LayerNorm or with a residual connection it is not, and the statement is
tested on these too. Equal rates, exact flow to 10¹² t₀. A limit that is approached like a power of ln t is not
visible at any one time, so the measure is the local exponent d ln(1 − c_max)/d ln ln t over the last two decades: −2
by our late-time law (1 − c_max ∝ 1/ln² t without the norm), and 0 for attention that stays a mixture. The bound is
−1: any exponent well below 0 ends in one token.

**Weight decay.** Decay on the decoder sharpens attention without end; decay on the attention logits undoes the scan.
The paper's model, η_Y/η_Z = 10, flow to 10⁶ t₀, decay 10⁻⁴ on one table only. *Gap* is the difference of the logits
of the most and the least frequent distinct token. On Y: decay stops the growth of the decoder's logits, so the
residual e_n − α_n does not vanish like 1/t and continues to drive Z. The measure is the growth of the gap over the
last two decades of t over that of the two decades before: 1 is a gap that grows like ln t; without decay growth fades
(like ln ln t). The bound is 0.9. On Z: the only rest point has z ∝ the drive over λ, and the drive vanishes. The
measure is how much of the largest rise of the distinct tokens' attention is left at the end: 0, at most a twentieth.

**Entropy.** Source: the entropy of a row of attention is bounded below, tightly, by a function of the spectral norm
of the logits that falls exponentially. For T keys and logits of norm σ, as we read it,

    H ≥ ln(1 + (T − 1)β) + σ √(T(T − 1)) β/(1 + (T − 1)β),      β = e^{−σ √(T/(T − 1))}

Of all logits at the same distance σ from their mean, one above T − 1 equal ones has the least entropy, and that is
the bound. A row of a matrix is at most as long as its spectral norm, so the row's own σ gives the tightest form.
Equal rates, exact flow to 10¹² t₀; T: the 20 context tokens of a class, z_l + ln P(l|n) each. *Bound*: the least
slack H − bound over the flow, with and without the norm; negative if the bound is violated. *Tight*: the way from ln
T down to the entropy over the way down to the bound, at the end: 1 on the bound; at least 0.9 agrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.statement import (
    OURS,
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    survey_statement,
)
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.entropy import attention_of, entropy_of
from scansnap.theory import t_snap


def flow_to(
    snaps: Sequence[float] | FloatArray, eta_z: float = 1.0, **options: float | str | tuple[str, ...]
) -> xr.Dataset:
    """The flow of Syn-Medium(1) at these multiples of t₀, with η_Y = 1."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    snap = float(t_snap(eta_y=1.0, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    return flow(classes, 1.0, eta_z, snap * np.asarray(snaps), **options)  # type: ignore[arg-type]


# --- polarisation -----------------------------------------------------------------------------------------------

VARRE = Citation(
    "Varre, Rofin and Flammarion 2026", "Gradient Flow Polarizes Softmax Outputs towards Low-Entropy Solutions",
    "2603.06248", "abstract",
)  # fmt: skip
_TEXT = "joint training of values and softmax drives attention to low entropy"

# name of the statement: norm, residual connection, description
MODELS = {
    "polarisation": ("none", "none", "no norm"),
    "polarisation-l2": ("l2", "none", "l2 norm, f = c/‖c‖"),
    "polarisation-layernorm": ("layernorm", "none", "LayerNorm of c"),
    "polarisation-residual": ("l2", "plain", "l2 norm after the residual connection, c + e_m"),
    "polarisation-residual-normed": ("l2", "normed", "l2 norm before and after the residual connection, c/‖c‖ + e_m"),
}

POLARISATIONS = tuple(
    survey_statement(name, _TEXT, source=VARRE, setting=f"{words}, Syn-Medium(1), equal rates, flow to 10¹² t₀")
    for name, (_, _, words) in MODELS.items()
)


def late_exponent(norm: str, residual: str = "none", decades: int = 12) -> tuple[float, float]:
    """The local exponent of 1 − c_max in ln t over the last two decades, and c_max at the end."""
    run = flow_to([10.0 ** (decades - 2), 10.0**decades], norm=norm, residual=residual, variables=("attention",))
    largest = run.attention.values[:, 0].max(-1)
    exponent = np.diff(np.log1p(-largest)) / np.diff(np.log(np.log(run.t.values)))
    return float(exponent[0]), float(largest[-1])


def judge_polarisation(statement: SurveyStatement, exponent: float, largest: float) -> SurveyClaim:
    return statement.judge_values(
        exponent, predicted=-2.0, bound=-1.0, failure="attention stays a mixture",
        quantity=f"d ln(1 − c_max)/d ln ln t at the end, where c_max = {largest:.3f}",
    )  # fmt: skip


def _check_polarisation(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge_polarisation(statement, *late_exponent(*MODELS[statement.name][:2])) for statement in POLARISATIONS]


POLARISATION = SurveyCheck(POLARISATIONS, _check_polarisation)

# --- weight decay -----------------------------------------------------------------------------------------------

LAMBDA, RATIO = 1e-4, 10.0

_DECAY_SETTING = "l2 norm, Syn-Medium(1), ratio 10, flow to 10⁶ t₀, decay 10⁻⁴ on {} only"

ON_Y = survey_statement(
    "decay-y", "decay on Y keeps attention sharpening like ln t", source=OURS, setting=_DECAY_SETTING.format("Y")
)
ON_Z = survey_statement("decay-z", "decay on Z undoes the scan", source=OURS, setting=_DECAY_SETTING.format("Z"))


def decayed(on_y: float, on_z: float) -> xr.Dataset:
    """The flow with weight decay at every quarter of a decade to 10⁶ t₀."""
    return flow_to(np.geomspace(1e-2, 1e6, 33), 1 / RATIO, weight_decay_y=on_y, weight_decay_z=on_z, rtol=1e-6,
                   variables=("z", "attention"))  # fmt: skip


def judge_y(run: xr.Dataset) -> SurveyClaim:
    distinct = SequenceClasses.syn_medium(n_queries=1).distinct(0)
    gap = np.ptp(run.z.values[:, 0, distinct], axis=1)
    late, before = gap[-1] - gap[-9], gap[-9] - gap[-17]  # four times per decade
    tokens = float(np.exp(entropy_of(run.attention.values[-1])).mean())
    return ON_Y.judge_values(
        late / before, predicted=1.0, bound=0.9,
        quantity=f"growth of the gap in the last two decades over the two before ({tokens:.1f} effective tokens)",
        failure="growth fades with ln t",
    )  # fmt: skip


def judge_z(run: xr.Dataset) -> SurveyClaim:
    distinct = SequenceClasses.syn_medium(n_queries=1).distinct(0)
    mass = run.attention.values[:, 0, distinct].sum(1)
    return ON_Z.judge_values(
        (mass[-1] - mass[0]) / (mass.max() - mass[0]), predicted=0.0, bound=0.05, two_sided=True,
        quantity=f"share of the rise in distinct attention (to {mass.max():.2f}) that is left at the end",
        failure="the scan stays",
    )  # fmt: skip


def _check_decay(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge_y(decayed(LAMBDA, 0.0)), judge_z(decayed(0.0, LAMBDA))]


DECAY = SurveyCheck((ON_Y, ON_Z), _check_decay)

# --- the bound on the entropy -----------------------------------------------------------------------------------

ZHAI = Citation(
    "Zhai, Likhomanenko, Littwin, Busbridge, Ramapuram, Zhang, Gu and Susskind 2023",
    "Stabilizing Transformer Training by Preventing Attention Entropy Collapse", "2303.06296", "abstract",
)  # fmt: skip
_END = "Syn-Medium(1), equal rates, flow to 10¹² t₀"
BOUND = survey_statement("entropy-bound", "entropy of attention is bounded below by the norm of its logits",
                         source=ZHAI, setting=f"no norm and l2 norm, {_END}")  # fmt: skip
TIGHT = survey_statement("entropy-bound-tight", "the bound on the entropy is tight: training comes to it", source=ZHAI,
                 setting=f"no norm, {_END}")  # fmt: skip
TIGHT_L2 = survey_statement("entropy-bound-tight-l2", "the bound on the entropy is tight: training comes to it",
                            source=ZHAI, setting=f"l2 norm, {_END}")  # fmt: skip


def least_entropy(sigma: FloatArray, keys: int) -> FloatArray:
    """The bound for logits at a distance σ from their mean."""
    gap = sigma * np.sqrt(keys / (keys - 1))
    others = (keys - 1) * np.exp(-gap)
    return np.asarray(np.log1p(others) + gap * others / (1 + others))


def entropies(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Entropy of the softmax of logits (…, T), and its bound."""
    away = logits - logits.mean(-1, keepdims=True)
    return entropy_of(attention_of(1.0, away)), least_entropy(np.linalg.norm(away, axis=-1), logits.shape[-1])


def attention_logits(norm: str, decades: int = 12) -> FloatArray:
    """z_l + ln P(l|n) of both classes along the flow, (times, classes, T)."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    z = flow_to(np.geomspace(1e-2, 10.0**decades, 2 * decades + 5), norm=norm, variables=("z",)).z.values[:, 0]
    return np.stack([z[:, p > 0] + np.log(p[p > 0]) for p in classes.p_context], axis=1)


def judge_bound(along: FloatArray) -> SurveyClaim:
    entropy, bound = entropies(along)
    slack = entropy - bound
    return BOUND.judge_values(
        float(slack.min()), predicted=0.0, bound=-1e-9, failure="the bound is violated",
        quantity=f"least slack in nats over the flow (largest {slack.max():.2f})",
    )  # fmt: skip


def judge_tight(statement: SurveyStatement, end: FloatArray) -> SurveyClaim:
    entropy, bound = entropies(end)
    largest = np.log(end.shape[-1])
    return statement.judge_values(
        float(((largest - entropy) / (largest - bound)).mean()), predicted=1.0, bound=0.9,
        failure="far above the bound",
        quantity=f"share of the way to the bound at the end (entropy {entropy.mean():.3f}, bound {bound.mean():.3f})",
    )  # fmt: skip


def _check_entropy(effort: SurveyEffort) -> list[SurveyClaim]:
    without, normed = attention_logits("none"), attention_logits("l2")
    return [
        judge_bound(np.concatenate([without, normed])),
        judge_tight(TIGHT, without[-1]),
        judge_tight(TIGHT_L2, normed[-1]),
    ]


ENTROPY = SurveyCheck((BOUND, TIGHT, TIGHT_L2), _check_entropy)
