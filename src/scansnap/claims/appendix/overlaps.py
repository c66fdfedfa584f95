"""Algebra of the overlaps FᵀF = I + E along the run: Lemmas 13 to 17, and the first step of Eq. 93.

λ₁ is the eigenvalue of E with the largest absolute value. E has no negative entries, since attention has none, so that
λ₁ = max_i |λ_i| ≥ 0 by Perron and Frobenius: conditions on λ₁ and on |λ₁| are the same here. E′ has the sign of
Lemma 14, (I + E)⁻¹ = I − E′; the list of notation in Appendix D.1 prints the opposite one.

Eq. 93 begins with −E′_nn ≥ min_i λ_i²/(1 − |λ₁|). By −E′_nn = Σ_i v_ni² λ_i²/(1 + λ_i) it is 1/(1 + |λ₁|), and the
printed step is false for two classes: −E′_nn = ρ²/(1 − ρ²) < ρ²/(1 − ρ). The next line of the proof survives.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.claim import Claim, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.time_windows import TRAINING
from scansnap.theory.modified import overlap_complement

LEMMA_13 = Statement("lemma-13", "Lemma 13", "|E_nn'| ≤ |λ₁(E)|", kind="formula")
LEMMA_14 = Statement("lemma-14", "Lemma 14", "(I + E)⁻¹ = I − E′, and the eigenvalues of E′ are λ/(1 + λ)",
                     kind="formula")  # fmt: skip
LEMMA_15 = Statement("lemma-15", "Lemma 15", "the eigenvalues of E′ are at most |λ₁|/(1 − |λ₁|) in absolute value",
                     kind="formula")  # fmt: skip
LEMMA_16 = Statement("lemma-16", "Lemma 16", "E′_nn < 0 for every class that overlaps with another, else 0",
                     kind="formula")  # fmt: skip
LEMMA_17 = Statement("lemma-17", "Lemma 17", "|E′_nn' − E_nn'| ≤ λ₁²/(1 − |λ₁|)", kind="formula")
EQ_93 = Statement("theorem-1-eq-93", "Theorem 1, Eq. 93", "−E′_nn ≥ min λ_i²/(1 − |λ₁|), as printed", kind="proof step")
LOWER = Statement("theorem-1-eq-93-corrected", "Eq. 93 (ours, docs/theory.md)", "−E′_nn ≥ min λ_i²/(1 + |λ₁|)",
                  kind="ours")  # fmt: skip
STATEMENTS = (LEMMA_13, LEMMA_14, LEMMA_15, LEMMA_16, LEMMA_17, EQ_93, LOWER)

_ROUNDING = 1e-12


def check(evidence: Evidence) -> list[Claim]:
    """At the start and at every recorded time up to 10 t₀."""
    times = np.union1d([0], TRAINING.select(evidence)).astype(int)
    overlap = evidence.overlap[times]
    eigenvalues = np.linalg.eigvalsh(overlap)
    if evidence.classes.n_classes < 2 or not np.isfinite(overlap).all():
        return [statement.not_applicable("needs two classes and finite logits") for statement in STATEMENTS]
    if not (np.abs(eigenvalues - 1) < 1).all():
        return [statement.not_applicable("|λ₁(E)| ≥ 1 at some time") for statement in STATEMENTS]
    return judge(overlap, np.array([overlap_complement(size) for size in overlap]))


def judge(overlap: Array, e_prime: Array) -> list[Claim]:
    """For overlaps I + E and their E′, (n, K, K) each."""
    k = overlap.shape[-1]
    e = overlap - np.eye(k)
    values = np.linalg.eigvalsh(e)  # (n, K)
    largest = np.abs(values).max(1)[:, None, None]  # (n, 1, 1)  |λ₁|
    diagonal = -np.diagonal(e_prime, axis1=1, axis2=2)  # (n, K)
    overlaps = np.abs(e).max(-1) > 0
    smallest = (values**2).min(1)[:, None]
    wanted = np.sort(values / (1 + values))
    product = np.abs(overlap @ (np.eye(k) - e_prime) - np.eye(k)).max()
    spectrum = np.abs(np.linalg.eigvalsh(e_prime) - wanted).max()
    excess = {
        LEMMA_13: np.abs(e) - largest,
        LEMMA_15: np.abs(np.linalg.eigvalsh(e_prime)) - largest[..., 0] / (1 - largest[..., 0]),
        LEMMA_17: np.abs(e_prime - e) - largest**2 / (1 - largest),
        EQ_93: smallest / (1 - largest[..., 0]) - diagonal,
        LOWER: smallest / (1 + largest[..., 0]) - diagonal,
    }
    claims = {
        statement.name: statement.judge(
            quantity=f"largest excess over the bound, {len(overlap)} times", measured=values.max(), predicted=0.0,
            deviation=max(float(values.max()), 0.0), tolerance=_ROUNDING, failure=f"exceeded by {values.max():.2g}",
        )
        for statement, values in excess.items()
    }  # fmt: skip
    claims[LEMMA_14.name] = LEMMA_14.judge(
        quantity="largest entry of (I + E)(I − E′) − I, or error of an eigenvalue", measured=max(product, spectrum),
        predicted=0.0, deviation=max(product, spectrum), tolerance=1e-9, failure="not the inverse",
    )  # fmt: skip
    right = np.where(overlaps, diagonal > 0, np.abs(diagonal) < _ROUNDING)
    claims[LEMMA_16.name] = LEMMA_16.judge_cases(
        right, quantity=f"share of classes and times with this sign (least −E′_nn: {diagonal.min():.3g})",
        failure="another sign",
    )  # fmt: skip
    return [claims[statement.name] for statement in STATEMENTS]
