"""Insight (c): at fixed η_Z and time, does a faster decoder leave attention denser? (Section 6; docs/theory.md)

The slope ∂ ln z/∂ ln η_Y of the dominant token is measured by two flows of its own at slightly different η_Y, and is
compared with the memory equation (`scansnap.theory.crossover_tokens`). It is negative, as the paper has it, only for
t > t₀ and η_Y/η_Z above a crossover ν*. The same two flows judge insight (c) as printed: at every time from t₀ on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scansnap import theory
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.memory import linear_assumptions
from scansnap.claims.ours.symmetric import SymmetricClasses, find_symmetry
from scansnap.claims.time_windows import WINDOW_END
from scansnap.theory.crossover import token_changes
from scansnap.theory.memory import SymmetricTokens

INSIGHT = Statement(
    "insight-c", "Section 6, insight (c)",
    "from t₀ on a larger η_Y at the same η_Z leaves attention denser: ∂B_n/∂ln η_Y < 0", alternatives=("crossover",),
)  # fmt: skip
SLOPE = Statement(
    "crossover", "Crossover of insight (c) (ours, docs/theory.md)",
    "∂ ln z/∂ ln η_Y of the dominant token is that of drive and memory: negative only for t > t₀ and η_Y/η_Z > ν*",
    kind="ours",
)  # fmt: skip
STATEMENTS = (INSIGHT, SLOPE)

TOLERANCE = 0.1  # of a logarithmic slope, which is 1 before t₀ and −1 at the least
_STEP = 0.05  # of ln η_Y, on either side
_TIMES = np.geomspace(0.1, WINDOW_END, 9)  # in t₀

Flow = Callable[..., Any]


def flow_slopes(evidence: Evidence, token: int, t: Array, run: Flow | None = None) -> Array:
    """∂ ln z/∂ ln η_Y of the token at fixed η_Z and times t."""
    from scansnap.dynamics.flow.integrate import flow

    low, high = (
        (run or flow)(evidence.classes, evidence.eta_y * np.exp(sign * _STEP), evidence.eta_z, t, rtol=1e-9,
                      variables="z").z.values[:, 0, token]
        for sign in (-1, 1)
    )  # fmt: skip
    return np.asarray(np.log(high / low) / (2 * _STEP))


def predicted_slopes(evidence: Evidence, family: SymmetricClasses, t: Array) -> tuple[Array, Array]:
    """z of the common token and the slopes of the dominant token, by the memory equation."""
    tokens = SymmetricTokens.of(family.f, None)
    k, m = np.array(float(family.n_classes)), np.array(float(family.vocab_size))
    z, change = token_changes(t, evidence.eta_y, evidence.eta_z, k, m, tokens)
    return z[:, -1], np.asarray(change[:, 0] / z[:, 0])


def check(evidence: Evidence, *, run: Flow | None = None) -> list[Claim]:
    """At nine times from t₀/10 to 10 t₀; symmetric classes, T = ∞. ``run`` has the arguments of `scansnap.flow`."""
    family = find_symmetry(evidence.classes)
    if isinstance(family, str) or evidence.momentum:
        reason = family if isinstance(family, str) else "with momentum u is not the clock"
        return [statement.not_applicable(reason) for statement in STATEMENTS]
    t = _TIMES * evidence.t_snap
    token = int(family.tokens[0, 0])
    measured, (common, predicted) = flow_slopes(evidence, token, t, run), predicted_slopes(evidence, family, t)
    gap = float(theory.u(t[-1] / family.n_classes, eta_y=evidence.eta_y, vocab_size=family.vocab_size))
    late, ratio = _TIMES >= 1, evidence.eta_y / evidence.eta_z
    star = theory.crossover_tokens(t[-1], eta_z=evidence.eta_z, n_classes=family.n_classes,
                                   vocab_size=family.vocab_size, f_distinct=family.f)  # fmt: skip
    off = np.abs(measured - predicted)
    i, j = int(off.argmax()), int(np.where(late, measured, -np.inf).argmax())
    curve = Curve("t/t₀", "∂ ln z/∂ ln η_Y of the dominant token", _TIMES, measured, predicted)
    return [
        INSIGHT.judge(
            quantity=f"largest ∂ ln z/∂ ln η_Y of the dominant token from t₀ to {WINDOW_END:g} t₀ "
            f"(η_Y/η_Z = {ratio:.3g}; ν* = {star:.3g} at the end)",
            measured=measured[j], predicted=0.0, deviation=max(measured[j], 0.0), tolerance=1e-6,
            failure=f"it is +{measured[j]:.3g} at {_TIMES[j]:.3g} t₀", curve=curve,
            assumptions=evidence.select_assumptions(),
        ),
        SLOPE.judge(
            quantity=f"∂ ln z/∂ ln η_Y of the dominant token at {_TIMES[i]:.3g} t₀, where it is furthest off",
            measured=measured[i], predicted=predicted[i], deviation=off[i], tolerance=TOLERANCE,
            failure=f"off by {off[i]:.2g}", curve=curve,
            assumptions=linear_assumptions(evidence, family.overlap, gap, abs(float(common[-1]))),
        ),
    ]  # fmt: skip
