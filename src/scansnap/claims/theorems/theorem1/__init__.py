"""Theorem 1: the gradient that reaches attention is a combination of the K attention outputs.

    g_n := Y(e_n − α_n) = γ (ι_n f_n − Σ_{n'≠n} β_nn' f_n')          (Eq. 9)

Measured are γι_n and γβ_nn', by least squares on the context of class n: entries of g_n elsewhere meet f_nl = 0 and
never act. A class that shares no token with n has f_n' = 0 there, so its β cannot be seen and
does nothing. Where several f_n' are parallel on that context only their joint pull is determined; least squares
then shares it out evenly, which leaves its sign, γι_n and ξ_n as they are.

The proof is about a modified update of Y (Lemma 3, Eq. 26), for which β_nn' = E'_nn' + O(1/M) with (I + E)⁻¹ = I − E'.
The update that is really made (Eq. 7) keeps the span and, mostly, the signs, but β is about e^{u f_nᵀf_n'}/M as long
as that is small, u the logit gap: far less than E'. Hence a claim on the sign of ξ and another on its size.

Because β is so small, nearly all of g_n lies along f_n, where (I − f_n f_nᵀ) takes it away: with every assumption met
the rest, P⊥g_n, is less than 1% of ‖g_n‖, and it is all that moves attention. The span is therefore asked of P⊥g_n.
"""

from __future__ import annotations

from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence
from scansnap.claims.theorems.theorem1 import form, size
from scansnap.claims.theorems.theorem1.decomposition import decompose, window
from scansnap.claims.windows import TRAINING

STATEMENTS = (form.SPAN, form.BETA, form.XI, size.XI_SIZE, size.GAMMA)


def check(evidence: Evidence) -> list[Claim]:
    """Span, signs and sizes of the coefficients."""
    times = window(evidence)
    why = ""
    if evidence.g is None:
        why = "needs the gradients g, that is y at every recorded time"
    elif not len(times):
        why = f"no time is recorded in {TRAINING.words(evidence)}, t₀ = {evidence.t_snap:.3g}"
    if why:
        return [statement.not_applicable(why, evidence.assume()) for statement in STATEMENTS]
    fit = decompose(evidence, times)
    return [
        claim(evidence, times, fit) for claim in (form.span, form.beta, form.xi_sign, size.xi_size, size.gamma_size)
    ]
