"""Attention is an integral of the value weights: z = ½ Σ_k (v_k² − ‖v_k‖² b̄) + c.

Our model without the norm is the source's with a linear layer: v_k is column k of Y and b̄ the mean attention of the
query, so that Σ_k v_k² is ‖Y_l‖² for token l, and from zero start

    z_l/η_Z = ½ (‖Y_l‖² − ‖Y‖² b̄_l)/η_Y

It is exact but for one step: Σ_n p_n c_nl (c_nᵀg_n) is replaced by b̄_l Σ_n p_n c_nᵀg_n with a constant b̄. So it must
hold as long as attention has moved little. b̄ is taken at the start, which serves the statement better than its
present value (a test says so).

Judged by the relative error ‖z − its integral‖/‖z‖ at the end of the window, an equation being asked to hold to a
tenth as elsewhere in our claims. A correlation would hide what fails: it is given beside the error.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.survey.finding import Finding, Sizes, Surveyed, surveyed
from scansnap.claims.survey.statements.joma import JOMA
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.theory import t_snap

_TEXT = "attention logits are ½ Σ (v² − ‖v‖² b̄) + c of the value weights"


def _statement(name: str, ratio: int, end: str) -> Surveyed:
    return surveyed(name, _TEXT, source=JOMA, setting=f"no norm, Syn-Medium(1), η_Y/η_Z = {ratio}, at {end} t₀")


EARLY = _statement("joma-integral", 50, "10")
LATE = _statement("joma-integral-late", 50, "1000")
EQUAL = _statement("joma-integral-equal-rates", 1, "10")
STATEMENTS = (EARLY, LATE, EQUAL)


def errors(ratio: float, end: float, *, present: bool = False) -> tuple[float, float]:
    """Relative error of the integral and its correlation with z at ``end`` t₀; b̄ at the start, or as it is then."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    snap = float(t_snap(eta_y=1.0, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    run = flow(classes, 1.0, 1 / ratio, [0.0, end * snap], norm="none", variables=("attention", "z", "y"))
    y, z = run.y.values[1], run.z.values[1, 0]
    b = classes.p_class @ run.attention.values[1 if present else 0]  # (M,)
    integral = 0.5 * ((y**2).sum(1) - (y**2).sum() * b) / ratio
    seen = classes.p_context.sum(0) > 0
    z, integral = z[seen], integral[seen]
    return float(np.linalg.norm(integral - z) / np.linalg.norm(z)), float(np.corrcoef(integral, z)[0, 1])


def judge(statement: Surveyed, error: float, correlation: float) -> Finding:
    return statement.found(
        error, predicted=0.0, bound=0.1, where=f"although the correlation is {correlation:.3f}",
        quantity=f"relative error of the integral (correlation {correlation:.3f})",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    cases = ((EARLY, 50.0, 10.0), (LATE, 50.0, 1e3), (EQUAL, 1.0, 10.0))
    return [judge(statement, *errors(ratio, end)) for statement, ratio, end in cases]
