"""Training values and softmax together polarises attention, unless a norm stands between them.

Source: the gradient flow of L(V σ(a)), values V times a softmax, is driven to outputs of low entropy. Our model
without the norm is that, with a softmax for each class; with the paper's l2 norm, with LayerNorm or with a residual
connection it is not, and the statement is held against these too.

Setting: Syn-Medium(1), equal rates, exact flow to 10¹² t₀. Low entropy in the limit cannot be seen at any one time
when it comes as slowly as a power of ln t, so what is judged is the local exponent d ln(1 − c_max)/d ln ln t over the
last two decades: −2 by our late-time law (1 − c_max ∝ 1/ln² t without the norm), and 0 for attention that stays a
mixture. Half of −2 is the bound: any exponent well below 0 ends in one token.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.theory import t_snap

VARRE = Source(
    "Varre, Rofin and Flammarion 2026", "Gradient Flow Polarizes Softmax Outputs towards Low-Entropy Solutions",
    "2603.06248", "abstract",
)  # fmt: skip
_TEXT = "joint training of values and softmax drives attention to low entropy"

# name of the statement: norm, residual connection, how it reads
MODELS = {
    "polarisation": ("none", "none", "no norm"),
    "polarisation-l2": ("l2", "none", "l2 norm, f = c/‖c‖"),
    "polarisation-layernorm": ("layernorm", "none", "LayerNorm of c"),
    "polarisation-residual": ("l2", "plain", "l2 norm after the residual connection, c + e_m"),
    "polarisation-residual-normed": ("l2", "normed", "l2 norm before and after the residual connection, c/‖c‖ + e_m"),
}
STATEMENTS = tuple(
    surveyed(name, _TEXT, source=VARRE, setting=f"{words}, Syn-Medium(1), equal rates, flow to 10¹² t₀")
    for name, (_, _, words) in MODELS.items()
)


def late(norm: str, residual: str = "none", decades: int = 12) -> tuple[float, float]:
    """The local exponent of 1 − c_max in ln t over the last two decades, and c_max at the end."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    snap = float(t_snap(eta_y=1.0, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    t = snap * np.array([10.0 ** (decades - 2), 10.0**decades])
    run = flow(classes, 1.0, 1.0, t, norm=norm, residual=residual, variables=("attention",))
    largest = run.attention.values[:, 0].max(-1)
    exponent = np.diff(np.log1p(-largest)) / np.diff(np.log(np.log(t)))
    return float(exponent[0]), float(largest[-1])


def judge(statement: Surveyed, exponent: float, largest: float) -> Finding:
    return statement.found(
        exponent, predicted=-2.0, bound=-1.0, where="attention stays a mixture",
        quantity=f"d ln(1 − c_max)/d ln ln t at the end, where c_max = {largest:.3f}",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    return [judge(statement, *late(*MODELS[statement.name][:2])) for statement in STATEMENTS]
