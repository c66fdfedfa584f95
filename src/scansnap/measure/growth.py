"""B_n as it was: the growth exponent of a run, from the path of its logits and attention alone.

B_n = η_Z p_n ∫ξ_n dt (Theorem 3). Where ż_l/f_l² differs between the distinct tokens l of a class, ξ_n is its
least-squares value, and by Lemma 1 η_Z p_n ξ_n = Σ_l ż_l/Σ_l f_l². So

    B_n = ∫ d(Σ_l z_l)/Σ_l f_l²

needs no gradient and no integral over time. The closed form of the same quantity is `scansnap.theory.growth`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import cumulative_trapezoid

from scansnap.checks.arrays import FloatArray


@dataclass(frozen=True)
class GrowthPoint:
    """Where the classes are on the path, at one moment (K,) or at many (n, K)."""

    height: FloatArray  # Σ_l z_l
    weight: FloatArray  # 1/Σ_l f_l², ∞ for a class without distinct tokens

    @classmethod
    def of(cls, distinct: Iterable[tuple[FloatArray, FloatArray]]) -> GrowthPoint:
        """From the logits and the normalised attention of each class's distinct tokens, (…, D) each."""
        with np.errstate(all="ignore"):
            points = [(z.sum(-1), 1 / (f**2).sum(-1)) for z, f in distinct]
        return cls(*(np.stack(values, axis=-1) for values in zip(*points, strict=True)))

    def since(self, before: GrowthPoint) -> FloatArray:
        """What B_n has grown by since an earlier place, by a trapezoid along the path; NaN without distinct tokens.

        The integrand moves only as far as attention does, so steps of 10% in t give four digits where attention moves
        most and eight where it hardly moves.
        """
        with np.errstate(all="ignore"):
            return (self.height - before.height) * (self.weight + before.weight) / 2

    def growth(self) -> FloatArray:
        """(n, K) B_n at every moment of the path, from 0 at the first; NaN without distinct tokens."""
        with np.errstate(all="ignore"):
            growth = cumulative_trapezoid(self.weight, self.height, axis=0, initial=0)
        growth[:, np.isinf(self.weight[0])] = np.nan
        return np.asarray(growth)
