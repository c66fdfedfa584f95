"""With a fixed head attention goes to the max-margin direction that separates the tokens it selects from the others.

Source: the flow of p in ⟨Xv, softmax(Xp)⟩ with v fixed converges in direction to the hard-margin separator of (locally)
optimal tokens. Setting: theirs, 4 contexts of 5 unit tokens in R²⁴, random head; each seed draws its own data. The
direction is reached like 1/ln t, so a flow to 10⁹ is still some 11° away; it is followed to 10⁵⁰, where 1/ln t makes
that 2°. Judged by the angle to the solution of the quadratic program for the tokens that are selected in the end: at
most 5°, as what had settled at 10⁹ would be further away. Local optima count, as the source says.
"""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Source, surveyed
from scansnap.claims.survey.margin import Contexts, least_frobenius, merged

TARZANAGH = Source(
    "Tarzanagh, Li, Zhang and Oymak 2023", "Max-Margin Token Selection in Attention Mechanism", "2306.13596", "abstract"
)
TIMES = np.array([1e9, 1e50])
MOST = 5.0  # degrees

MARGIN = surveyed(
    "max-margin", "with a fixed head z/‖z‖ goes to the max-margin direction", source=TARZANAGH,
    setting="fixed head, no norm, 4 contexts of 5 random tokens in R²⁴, flow to 10⁵⁰",
)  # fmt: skip
STATEMENTS = (MARGIN,)


def draw(seed: int) -> Contexts:
    """Unit tokens, a random head and random labels; one query, so that W is a vector."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, 5, 24))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    label, head = rng.choice([-1.0, 1.0], size=(4, 1)), 3 * rng.normal(size=24)
    return Contexts(x, np.ones((4, 1)), label * (x @ head))


def angles(problem: Contexts, *, runner_up: bool = False) -> FloatArray:
    """Degrees between W and the max-margin solution at the times; of the second tokens with ``runner_up``."""
    path = merged(problem, TIMES)
    chosen = problem.selected(path[-1])
    if runner_up:
        s = problem.x @ path[-1][:, 0]
        chosen = np.argsort(s, axis=1)[:, -2]
    best = least_frobenius(problem.constraints(chosen))
    cosine = (path * best).sum((1, 2)) / np.linalg.norm(path, axis=(1, 2)) / np.linalg.norm(best)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def judge(each: FloatArray) -> Finding:
    """``each`` is (seeds, times)."""
    return MARGIN.found(
        each[:, -1], predicted=0.0, bound=MOST, where="another direction",
        quantity=f"degrees to the max-margin solution at 10⁵⁰ (at 10⁹: {each[:, 0].mean():.1f})",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    return [judge(np.array([angles(draw(seed)) for seed in range(sizes.seeds)]))]
