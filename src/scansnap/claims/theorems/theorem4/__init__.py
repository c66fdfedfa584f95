"""Theorem 4: the phase transition from scanning to snapping (Section 6, Eqs. 13 and 14; Appendix F).

The theorem starts from an estimate for one common token and one shared query, ξ_n = γ e^{4z}/C₀ and
ż = −η_Z γ e^{4z}/C₀ with z the common token's logit, and concludes B = ¼ ln(1 + 4Γ/C₀). A class gains its share of
what the common token loses, so B_n = (p_n/P) ¼ ln(1 + 4PΓ/C₀) is what is predicted here, P the probability of the
query's classes (see :func:`scansnap.theory.growth`).

Where the estimate comes from and where it fails. It takes β_nn' = E'_nn' ≈ f_nᵀ f_n' = ρ, so that ξ_n ∝ γ ρ² with
ρ ∝ e^{2z} and a constant normaliser. Two things are different in exact flows:

* The decoder learns only what the loss asks for. While M − K other outputs are wrong as well, the output of class n'
  takes its share of the error of class n, and with frozen attention (ours, leading order in 1/M, u the logit gap)

      β_nn' = [e^{ρu} + (e^{ρu} − 1)/(ρu) − 1]/M     as long as ρu < ln M,

  which begins at 1/M and is still far below ρ at t₀, where u ≈ ln M. So ξ_n/γ *rises* while z falls, the fitted
  exponent is negative, and growth is faster than predicted from the earliest times, though far slower than with
  β = E'. This is worst for weak overlap and a large vocabulary, where Theorem 1 is meant to hold.
* Where ξ_n = γ ρ² does hold (late times, strong overlap, small vocabularies), the normaliser is not constant: common
  tokens fall out of it and distinct ones rise in it. Its slope d ln ρ²/dz is (ours) 4(1 − f²) + (4/K) Σ f_l⁴/Σ f_l²
  with f the common token's share and l the distinct tokens: between 0 and 6.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence
from scansnap.claims.theorems.theorem4 import growth, premise, time

STATEMENTS = (premise.PREMISE, growth.GROWTH, time.TIME)


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check(evidence: Evidence) -> list[Claim]:
    """The premise, the growth it implies and the time of the transition."""
    return [premise.check(evidence), growth.check(evidence), time.check(evidence)]
