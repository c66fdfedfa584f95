"""The drive: B_n of attention that has hardly moved, in place of Theorem 4's (docs/derivations.md §1).

With frozen attention the decoder is Y = Σ f_n a_nᵀ, and its effect on attention integrates, exactly, to

    B_n = η_Z p_n ∫ξ_n dt,        in the symmetric family  B_n = −½ (η_Z/η_Y)(K − 1)ρ a_n·a_n'

(`scansnap.theory.growth_drive`, exact form). For other classes it is the drive of `scansnap.response`,
Σ_l z_l/Σ_l f_l² over the distinct tokens. It is the limit η_Y/η_Z → ∞, without the memory of the decoder.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.path import (
    TOLERANCE,
    judged_times,
    largest_deviation,
    logits_by_seed,
    make_path,
    run_assumptions,
)
from scansnap.claims.ours.symmetric import SymmetricClasses, find_symmetry
from scansnap.claims.time_windows import TRANSITION, WINDOW_END
from scansnap.theory import growth_drive, u

DRIVE = Statement(
    "drive", "Drive (ours, docs/derivations.md §1)",
    "while the memory of the decoder is weak, B_n is the integrated drive of frozen attention", kind="ours",
)  # fmt: skip
STATEMENTS = (DRIVE,)


def weak_memory(evidence: Evidence) -> Assumption:
    """Whether the memory is below a tenth at the end of the window: (u/u*)² with u* = √(2η_Y/η_Z)/f, for the stiffest
    token, f² summed over the classes of its query. At first the memory removes (2/3)(u/u*)² of z.
    """
    stiff = float(evidence.sum_by_query(evidence.f[:1] ** 2).max())
    p, m = float(evidence.classes.p_class.max()), evidence.classes.vocab_size
    gap = float(u(p * WINDOW_END * evidence.t_snap, eta_y=evidence.eta_y, vocab_size=m))
    value = evidence.eta_z / evidence.eta_y * stiff * gap**2 / 2
    return Assumption(
        "weak memory",
        f"η_Z/η_Y → 0: (u/u*)² at {WINDOW_END:g} t₀ at most 1/{MUCH:g}",
        value,
        1 / MUCH,
        value <= 1 / MUCH,
        "for the token with the strongest memory; beyond it the claims memory and response apply",
    )


def predict_growth(evidence: Evidence, t: Array) -> Array:
    """(n, K) B_n of frozen attention at some of the times of the response; NaN without distinct tokens."""
    classes = evidence.classes
    family = find_symmetry(classes)
    if isinstance(family, SymmetricClasses):
        b = growth_drive(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=family.n_classes,
                         vocab_size=family.vocab_size, overlap=family.overlap, form="exact")  # fmt: skip
        return np.tile(np.asarray(b)[:, None], (1, family.n_classes))
    drive = evidence.response["drive"].sel(t=t).values  # (n, Q, M)
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    b = np.full((len(t), classes.n_classes), np.nan)
    for n in evidence.classes_with_distinct:
        ids = classes.distinct(n)
        b[:, n] = drive[:, evidence.class_query[n]][:, ids].sum(-1) / (f[n, ids] ** 2).sum()
    return b


def _measured(evidence: Evidence) -> Array:
    """(R, n, K) B_n of the run, or of every seed."""
    if evidence.z_seeds is None:
        return evidence.measured_growth[None]
    return np.array([make_path(evidence, evidence.t, z).measured_growth for z in logits_by_seed(evidence, evidence.t)])


@np.errstate(all="ignore")  # Statement.judge judges what is not a number a failure
def check(evidence: Evidence) -> Claim:
    """B_n of every class that has distinct tokens."""
    assumed = [*run_assumptions(evidence), weak_memory(evidence)]
    with_distinct = evidence.classes_with_distinct
    if not with_distinct:
        return DRIVE.not_applicable("no class has distinct tokens", assumed)
    if evidence.t[0] != 0:
        return DRIVE.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    recorded = evidence.t[evidence.t <= WINDOW_END * evidence.t_snap]
    if not isinstance(find_symmetry(evidence.classes), SymmetricClasses):
        recorded = evidence.response["t"].values
    times = judged_times(evidence, recorded)
    if not len(times):
        return DRIVE.not_applicable(f"no time is recorded in {TRANSITION.describe(evidence)}", assumed)
    t = recorded[times]
    b = _measured(evidence)[:, np.searchsorted(evidence.t, recorded)][..., with_distinct, None]  # (R, n, classes, 1)
    expected = predict_growth(evidence, recorded)[:, with_distinct]
    off = largest_deviation(evidence, b[:, times], expected[times][..., None], t)
    if off is None:
        return DRIVE.not_applicable("the distinct tokens' logits do not move", assumed)
    n, mean = with_distinct[off.row], b.mean(0)[..., 0]
    later = recorded > 0
    return DRIVE.judge(
        quantity=f"B_n of class {n} at t = {t[off.time]:.4g} (worst in {TRANSITION.describe(evidence)})",
        measured=mean[times][off.time, off.row], predicted=expected[times][off.time, off.row], deviation=off.share,
        tolerance=TOLERANCE, assumptions=assumed,
        failure=f"class {n}, {evidence.format_time(t[off.time])}: B_n = {mean[times][off.time, off.row]:.3g} against "
        f"{expected[times][off.time, off.row]:.3g}, off by {off.share:.1%}",
        curve=Curve("t", f"B_n of class {n}", recorded[later], mean[later, off.row], expected[later, off.row]),
        interval=off.interval,
        remedy=off.remedy(len(b)),
    )  # fmt: skip
