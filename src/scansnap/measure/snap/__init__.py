"""When did attention freeze: the snapping time, measured on a trajectory.

What is followed is how far attention has gone from common to distinct tokens. For class n, with D_n the attention
on its distinct tokens and C_n that on its common ones,

    S_n(t) = ln[D_n(t)/C_n(t)] − ln[D_n(0)/C_n(0)]         :func:`log_odds`
    χ(t) = e^{2S(t)}                                        S: mean over classes (and seeds)

χ is the growth factor e^{2Δz} of Theorem 3 for this odds ratio instead of a single token. While attention scans,
χ − 1 grows like t² (all of Γ = η_Z∫γ does, and γ ∝ t); after snapping Γ ∝ ln² t, so χ − 1 grows more slowly than
any power of t. In t it is fastest where it passes from faster than linear to slower than linear,

    d ln(χ − 1)/d ln t = 1   ⇔   (χ − 1)/t is largest      :func:`snap_time`, ``t_snap``

that is, where attention's mean speed since the start is greatest. No derivative is taken of a noisy curve. (The knee of
S against ln t moves with the end of the record: for η_Y ≫ η_Z, S goes on as ln² t. The peak of the speed dS/dt scales
as well in smooth flows, but marks t₀′ and is lost in the noise first.) In ln t it is fastest where S goes farthest
in an e-fold (``t_snap_ln``), which may be very much later: S ∝ ln² t is faster and faster there.

Being fastest is not yet having snapped: :mod:`~scansnap.measure.snap.definition` says what more it takes, for these
curves and for those of the probe and of words. Where attention has not snapped there is no time but a reason.

What to expect in t. With attention held fixed and orthonormal classes, Γ ∝ u² with u = M h of Theorem 1, and the
maximum lies at η_Y t/K = (e^u − 1 + (M − 1)u)/M where e^u (u − 2) = (M − 1)u − 2. That is between t₀′ and t₀ of
Theorem 4, K ln M/η_Y and 2K ln M/η_Y, for M ≥ 14 (1.66 t₀′ at M = 34, 1.25 t₀′ at M = 1000). Measured on exact
runs, it moves with

* overlap: with equal cosines ρ between the f_n of one query, β grows with the gap and S follows not u² but
  u(e^{ρu} − 1) − ρu²/2 (leading order in 1/M, η_Y ≫ η_Z). That makes it later by a share of 2ρ for small ρ, to
  which exact flows agree (to 0.4% up to ρ = 0.24). It is not the smaller rate (1 − ρ)η_Y, half of that. Syn-Small
  (ρ = 0.72) reads 5.6 t₀′ in the flow, the Syn-Medium sets 4.0 to 5.7 t₀′.
* η_Y/η_Z: it scales like 1/η_Y at a fixed ratio, and nearly so at fixed η_Z while η_Y ≫ η_Z (2% off in Syn-Small
  and 24% in Syn-Medium(10) from a ratio of 500 down to 5). At η_Y = η_Z attention takes the overlap away before
  it freezes, and the time is 25% to 50% shorter.
* sampling: finite contexts make it later, in Syn-Small by 3% at T = 1024 and by 24% at T = 128.
* momentum: μ acts as both rates divided by 1 − μ, plus a delay of 3 or 4 times 1/(1 − μ) steps.
"""

from scansnap.measure.snap.curve import log_odds
from scansnap.measure.snap.time import snap_time

__all__ = ["log_odds", "snap_time"]
