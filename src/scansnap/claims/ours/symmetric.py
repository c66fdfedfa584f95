"""Symmetric classes, for which our theory is a closed form (docs/derivations.md).

K ≥ 2 classes of one query with equal probabilities, one common token in all of them, and the same distinct
probabilities: then every overlap is f_nᵀf_n' = f_c² = ρ. The preset ``textbook`` is such a family.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.claims.evidence import Array
from scansnap.claims.theorems.theorem2 import EQUAL
from scansnap.classes import SequenceClasses


@dataclass(frozen=True)
class SymmetricClasses:
    """Sizes and overlap of symmetric classes, and the ids of their tokens."""

    n_classes: int
    vocab_size: int
    overlap: float  # ρ
    f: Array  # (D,) f_l of the distinct tokens, the largest first
    tokens: Array  # (K, D) the distinct tokens of each class, in that order
    common: int

    def to_tokens(self, z: Array) -> Array:
        """(n, 1, M) the logits of the query, from those of one class: (n, D + 1), the common token last."""
        full = np.zeros((len(z), 1, self.vocab_size))
        full[:, 0, self.tokens] = z[:, None, :-1]
        full[:, 0, self.common] = z[:, -1]
        return full


def find_symmetry(classes: SequenceClasses) -> SymmetricClasses | str:
    """The symmetric form of these classes, or the reason why they have none."""
    k, p = classes.n_classes, classes.p_context
    if k < 2:
        return "there is one class"
    if len(classes.queries) > 1:
        return f"there are {len(classes.queries)} queries, not one"
    if len(classes.common) != 1:
        return f"there are {len(classes.common)} common tokens, not one"
    if np.abs(k * classes.p_class - 1).max() > EQUAL:
        return "classes are not equally frequent"
    common = int(classes.common[0])
    if np.ptp(p[:, common]) > EQUAL:
        return "the common token is not equally frequent in all classes"
    distinct = [classes.distinct(n) for n in range(k)]
    if len({len(ids) for ids in distinct}) > 1 or not len(distinct[0]):
        return "classes do not have the same number of distinct tokens, or have none"
    tokens = np.array([ids[np.argsort(-p[n, ids], kind="stable")] for n, ids in enumerate(distinct)])  # (K, D)
    weights = np.take_along_axis(p, tokens, axis=1)
    if np.ptp(weights, axis=0).max() > EQUAL:
        return "classes do not have the same distinct probabilities"
    size = np.sqrt(p[0, common] ** 2 + (weights[0] ** 2).sum())
    return SymmetricClasses(k, classes.vocab_size, float((p[0, common] / size) ** 2), weights[0] / size, tokens, common)
