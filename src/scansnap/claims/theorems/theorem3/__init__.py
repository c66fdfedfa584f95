"""Theorem 3: how distinct tokens grow (Section 5, Eqs. 11 and 12; proof in Appendix E).

For distinct tokens l, l' of class n the squared attention ratio is 1 + r. By Theorem 2(a) both rise at the rate
η_Z p_n f_l² ξ_n with the same ξ_n, which integrates to r(t) = r(0) χ_l(t) with χ_l = e^{2(z_l(t) − z_l(0))}.

What is measured is B_n = η_Z p_n ∫ξ_n dt (:attr:`Evidence.measured_growth`), from the path of z and f alone, without g
and without an integral over time.

Errors are relative at each time, to what attention has moved until then, so that an early violation counts as much as a
late one; times at which it has not moved beyond rounding (:attr:`Evidence.told`) are left out.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence
from scansnap.claims.theorems.theorem3 import dominant, pairs
from scansnap.claims.windows import TRAINING

STATEMENTS = (pairs.IDENTITY, dominant.LOWER, dominant.UPPER, dominant.MONOTONE)


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check(evidence: Evidence) -> list[Claim]:
    """The identity over all pairs of distinct tokens, the bounds and the monotone growth of the dominant ones."""
    window = TRAINING.times(evidence)
    if len(window) == 0:
        assumed = evidence.assume()
        why = f"no time is recorded in {TRAINING.words(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return [s.not_applicable(why, assumed) for s in STATEMENTS]
    return [pairs.identity(evidence, window), *dominant.claims(evidence, window)]
