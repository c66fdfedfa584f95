"""Theorem 4: attention as it would move if Eqs. 13 and 14 were true."""

from __future__ import annotations

import numpy as np

from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem4.growth import Prediction
from scansnap.measure.entropy import attention_of

_SUBSTEPS = 4  # between two recorded times


def attention_at(z: Array, evidence: Evidence) -> Array:
    """(…, K, M) c_n ∝ P(l|n) e^{z} for logits (…, Q, M)."""
    p = evidence.classes.p_context[:, : z.shape[-1]]
    return attention_of(p, z[..., evidence.class_query, :])


def premised_attention(evidence: Evidence, predictions: list[Prediction], times: Array) -> Array:
    """(n, K, M) attention that obeys Eqs. 13 and 14 with the C₀ found, at some of the recorded times from 0 on.

    B_n is the closed form; the distinct tokens of a class rise as dz_l = f_l² dB_n (Theorem 2a), its query's common
    ones fall by Σ B_n over the query's classes, in equal parts where there are several. Heun steps along t.
    """
    classes = evidence.classes
    fine = np.interp(np.arange(_SUBSTEPS * (len(times) - 1) + 1) / _SUBSTEPS, np.arange(len(times)), evidence.t[times])
    gained = {p.n: p(fine, evidence) for p in predictions}
    distinct = {n: classes.distinct(n) for n in gained}
    z = np.zeros(evidence.z.shape[1:])  # (Q, M) of the distinct tokens
    falls, fallen = np.zeros_like(z), np.zeros((len(fine), len(z), 1))  # a common token's part, and of how much
    for row in range(len(z)):
        for n in (n for n in gained if evidence.class_query[n] == row):
            falls[row, classes.common_of(n)] = 1
            fallen[:, row, 0] -= gained[n]
    falls /= np.maximum(falls.sum(-1, keepdims=True), 1)

    def rise(z: Array) -> dict[int, Array]:
        """f_l² of each class's distinct tokens."""
        c = attention_at(z, evidence)
        return {n: c[n, ids] ** 2 / (c[n] ** 2).sum() for n, ids in distinct.items()}

    kept = [attention_at(z, evidence)]
    for i in range(len(fine) - 1):
        step = {n: b[i + 1] - b[i] for n, b in gained.items()}
        first = rise(z + fallen[i] * falls)
        ahead = z.copy()
        for n, ids in distinct.items():
            ahead[evidence.class_query[n], ids] += step[n] * first[n]
        second = rise(ahead + fallen[i + 1] * falls)
        for n, ids in distinct.items():
            z[evidence.class_query[n], ids] += step[n] * (first[n] + second[n]) / 2
        if (i + 1) % _SUBSTEPS == 0:
            kept.append(attention_at(z + fallen[i + 1] * falls, evidence))
    return np.array(kept)
