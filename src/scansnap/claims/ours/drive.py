"""The drive: B_n of attention that has hardly moved, in place of Theorem 4's (docs/theory.md §1).

With frozen attention the decoder is Y = Σ f_n a_nᵀ, and what it does to attention adds up, exactly, to

    B_n = η_Z p_n ∫ξ_n dt,        in the symmetric family  B_n = −½ (η_Z/η_Y)(K − 1)ρ a_n·a_n'

(:func:`scansnap.theory.growth_drive`, exact form). For other classes it is the drive of :func:`scansnap.response`,
Σ_l z_l/Σ_l f_l² over the distinct tokens. It is the limit η_Y/η_Z → ∞: the memory of the decoder is left out.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.family import Family, find
from scansnap.claims.ours.path import TOLERANCE, distance, judged_times, of_a_run, path, runs
from scansnap.claims.windows import LAST, TRANSITION
from scansnap.theory import growth_drive, u

DRIVE = Statement(
    "drive",
    "Drive (ours, docs/theory.md §1)",
    "while the decoder hardly remembers earlier attention, B_n is what frozen attention feels, added up",
    kind="ours",
)
STATEMENTS = (DRIVE,)


def weak_memory(evidence: Evidence) -> Assumption:
    """Whether the memory is below a tenth at the end of the window: (u/u*)² with u* = √(2η_Y/η_Z)/f, for the stiffest
    token, f² summed over the classes of its query. The memory takes (2/3)(u/u*)² of z at first.
    """
    stiff = float(evidence.by_query(evidence.f[:1] ** 2).max())
    p, m = float(evidence.classes.p_class.max()), evidence.classes.vocab_size
    gap = float(u(p * LAST * evidence.t_snap, eta_y=evidence.eta_y, vocab_size=m))
    value = evidence.eta_z / evidence.eta_y * stiff * gap**2 / 2
    return Assumption(
        "weak memory",
        f"η_Z/η_Y → 0: (u/u*)² at {LAST:g} t₀ at most 1/{MUCH:g}",
        value,
        1 / MUCH,
        value <= 1 / MUCH,
        "for the token that the memory holds most; beyond it the claims memory and response take over",
    )


def predicted(evidence: Evidence, t: Array) -> Array:
    """(n, K) B_n of frozen attention at some of the times of the response; NaN without distinct tokens."""
    classes = evidence.classes
    family = find(classes)
    if isinstance(family, Family):
        b = growth_drive(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=family.n_classes,
                         vocab_size=family.vocab_size, overlap=family.overlap, form="exact")  # fmt: skip
        return np.tile(np.asarray(b)[:, None], (1, family.n_classes))
    felt = evidence.response["drive"].sel(t=t).values  # (n, Q, M)
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    found = np.full((len(t), classes.n_classes), np.nan)
    for n in evidence.with_distinct:
        ids = classes.distinct(n)
        found[:, n] = felt[:, evidence.class_query[n]][:, ids].sum(-1) / (f[n, ids] ** 2).sum()
    return found


def _measured(evidence: Evidence) -> Array:
    """(R, n, K) B_n of the run, or of every seed."""
    if evidence.z_seeds is None:
        return evidence.measured_growth[None]
    return np.array([path(evidence, evidence.t, z).measured_growth for z in runs(evidence, evidence.t)])


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check(evidence: Evidence) -> Claim:
    """B_n of every class that has distinct tokens."""
    assumed = [*of_a_run(evidence), weak_memory(evidence)]
    has = evidence.with_distinct
    if not has:
        return DRIVE.not_applicable("no class has distinct tokens", assumed)
    if evidence.t[0] != 0:
        return DRIVE.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    recorded = evidence.t[evidence.t <= LAST * evidence.t_snap]
    if not isinstance(find(evidence.classes), Family):
        recorded = evidence.response["t"].values
    times = judged_times(evidence, recorded)
    if not len(times):
        return DRIVE.not_applicable(f"no time is recorded in {TRANSITION.words(evidence)}", assumed)
    t = recorded[times]
    b = _measured(evidence)[:, np.searchsorted(evidence.t, recorded)][..., has, None]  # (R, n, classes, 1)
    expected = predicted(evidence, recorded)[:, has]
    off = distance(evidence, b[:, times], expected[times][..., None], t)
    if off is None:
        return DRIVE.not_applicable("the distinct tokens' logits do not move", assumed)
    n, mean = has[off.row], b.mean(0)[..., 0]
    seen = recorded > 0
    return DRIVE.judge(
        quantity=f"B_n of class {n} at t = {t[off.time]:.4g} (worst in {TRANSITION.words(evidence)})",
        measured=float(mean[times][off.time, off.row]),
        predicted=float(expected[times][off.time, off.row]),
        deviation=off.share,
        tolerance=TOLERANCE,
        assumptions=assumed,
        where=f"class {n}, {evidence.when(t[off.time])}: B_n = {mean[times][off.time, off.row]:.3g} against "
        f"{expected[times][off.time, off.row]:.3g}, off by {off.share:.1%}",
        curve=Curve("t", f"B_n of class {n}", recorded[seen], mean[seen, off.row], expected[seen, off.row]),
        interval=off.interval,
        to_decide=off.words(len(b)),
    )
