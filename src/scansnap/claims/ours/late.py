"""Late times: the growth of attention's logit gap, which depends on the norm and on the decoder.

    l2 norm               −d ln ρ/d ln u is a function of ρ (`scansnap.theory.late_overlap`): κ ln ln t, κ falling
    no norm               gap = 2 ln ln t
    no norm, Y fixed      gap = ln t

The gap is z of the dominant distinct token less that of the common one, u the logit gap of the decoder, ρ = f_c². Why
2: attention is nearly one-hot, so d gap/du = A u e^{−gap} with A constant, and e^{gap} grows as u². Why ln t: r no
longer decays, and ż ∝ c_c ∝ e^{−gap}. In gap = a + κ ln(ln t − b) neither a nor b is known, and b is not small beside
ln t in any run; but 1/(d gap/d ln t) = (ln t − b)/κ, whose slope against ln t is 1/κ whatever they are.

Flows have no noise, but the exponent depends on the time: it is measured in windows of time and reported as a range.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from scansnap import theory
from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.symmetric import SymmetricClasses, find_symmetry
from scansnap.classes import SequenceClasses

L2 = Statement(
    "late-l2", "Ours, late times",
    "Once the memory of every token dominates, the overlap falls with the gap at the late law's local exponent.",
    kind="ours",
)  # fmt: skip
NONE = Statement(
    "late-none", "Ours, late times", "Without a norm the logit gap of attention grows as 2 ln ln t.", kind="ours"
)
FIXED = Statement("late-fixed", "Ours, late times", "Without a norm and with Y fixed it grows as ln t.", kind="ours")
STATEMENTS = (L2, NONE, FIXED)

LATE = 1e6  # in t₀: earliest end of a record
FIRST = 1e3  # in t₀: where the windows of the flows without a norm begin
WINDOWS = 3
L2_TOLERANCE = 0.15  # the law leaves out 1/(ρM), a tenth to a quarter where ρM is 4 to 10
NONE_TOLERANCE = 0.1  # of κ: the neglected terms are of order 1/ln t, and ln t ends at some 30
FIXED_TOLERANCE = 0.05
LEAST_RHO_M = 3.0
_MOST_ENTRIES = 200_000  # of Y, for the flows integrated here


def check(evidence: Evidence) -> list[Claim]:
    """The flow itself, and flows of the same classes and rates without a norm and with Y fixed."""
    end = float(evidence.t[-1]) / evidence.t_snap
    family = find_symmetry(evidence.classes)
    if evidence.source != "flow" or end < LATE:
        reason = (
            f"late times begin at {LATE:.0e} t₀ of a flow; this record is of {evidence.source} and ends at {end:.3g} t₀"
        )
    elif isinstance(family, str):
        reason = f"it is about symmetric classes, and {family}"
    elif evidence.classes.vocab_size * (evidence.classes.n_classes + 1) > _MOST_ENTRIES:
        reason = f"flows without a norm are integrated up to {_MOST_ENTRIES} entries of Y"
    else:
        first, second = companions(evidence.classes, family, evidence.eta_y, evidence.eta_z, float(evidence.t[-1]))
        return [judge_l2(evidence, family), judge_none(*first, evidence.t_snap), judge_fixed(*second, evidence.t_snap)]
    return [statement.not_applicable(reason) for statement in STATEMENTS]


def companions(
    classes: SequenceClasses, family: SymmetricClasses, eta_y: float, eta_z: float, t_end: float, **options: Any
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Times and speed of the gap per ln t without a norm, and with Y fixed at its value at t₀ and z from zero."""
    from scansnap.dynamics.flow.integrate import flow

    start = float(theory.t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    t = np.geomspace(start, t_end, 160)
    free = flow(classes, eta_y, eta_z, t, norm="none", variables=("z_rate",), **options)
    y = flow(classes, eta_y, eta_z, [start], norm="none", variables=("y",), **options).y[0]
    fixed = flow(classes, 0.0, eta_z, t, norm="none", y0=y, variables=("z_rate",), **options)
    return (t, speed_per_log(free.z_rate.values, t, family)), (t, speed_per_log(fixed.z_rate.values, t, family))


def speed_per_log(z_rate: Array, t: Array, family: SymmetricClasses) -> Array:
    """d(z_d − z_c)/d ln t of the one query, (n, 1, M) → (n,)."""
    return np.asarray(t * (z_rate[:, 0, family.tokens[0, 0]] - z_rate[:, 0, family.common]))


def split_windows(x: Array, first: float) -> list[Array]:
    """Indices of the times from x = ``first`` on, in windows equal in x."""
    edges = np.linspace(first, x[-1], WINDOWS + 1)
    return [np.flatnonzero((x >= low) & (x <= high)) for low, high in pairwise(edges)]


def loglog_exponent(log_t: Array, speed: Array) -> float:
    """κ of gap = a + κ ln(ln t − b) from d gap/d ln t: the slope of 1/speed against ln t is 1/κ. ∞ for gap ∝ ln t."""
    slope = float(np.polyfit(log_t, 1 / speed, 1)[0])
    return 1 / slope if slope > 0 else math.inf


def judge_none(t: Array, speed: Array, t_snap: float) -> Claim:
    """κ of the last window against 2."""
    x = np.log(t)
    kappa = np.array([loglog_exponent(x[w], speed[w]) for w in split_windows(x, math.log(FIRST * t_snap))])
    return NONE.judge(
        quantity=f"κ of κ ln ln t without a norm, from {FIRST:g} t₀ on; {_range(kappa)} over {WINDOWS} windows",
        measured=float(kappa[-1]), predicted=2.0, deviation=float(abs(kappa[-1] / 2 - 1)), tolerance=NONE_TOLERANCE,
        failure=f"κ is {kappa[-1]:.3g} in the last window, {_range(kappa)} over all",
        curve=Curve("t", "1/(d gap/d ln t)", t, 1 / speed, (x - x[-1]) / 2 + 1 / speed[-1]),
    )  # fmt: skip


def judge_fixed(t: Array, speed: Array, t_snap: float) -> Claim:
    """The speed per ln t against 1."""
    late = speed[t >= FIRST * t_snap]
    return FIXED.judge(
        quantity=f"d gap/d ln t without a norm and with Y fixed, from {FIRST:g} t₀ on; {_range(late)}",
        measured=float(late[-1]), predicted=1.0, deviation=float(np.abs(late - 1).max()), tolerance=FIXED_TOLERANCE,
        failure=f"it is {_range(late)}", curve=Curve("t", "d gap/d ln t", t, speed, np.ones_like(speed)),
    )  # fmt: skip


def judge_l2(evidence: Evidence, family: SymmetricClasses) -> Claim:
    """−d ln ρ/d ln u in the last window against the law at the same ρ, starting from constant ρ."""
    k, m, common = family.n_classes, family.vocab_size, family.common
    assert evidence.gap is not None
    learned = evidence.gap[:, 0] > 0
    u, z = evidence.gap[learned, 0], evidence.z[learned, 0, common]
    square = evidence.attention[learned, 0] ** 2
    rho = square[:, common] / square.sum(1)
    first_rho = family.overlap
    weakest = min(float(family.f.min()), math.sqrt(first_rho))
    held = float(theory.u_star(eta_y=evidence.eta_y, eta_z=evidence.eta_z, f=weakest))
    begins = max(held, math.log(max(first_rho * m, 1.0)) / first_rho)
    start = MUCH / 2 * begins
    assumed = [
        Assumption("held", "u ≫ u* of every token, u ≫ ln(ρM)/ρ at the end", float(u[-1]),
                   MUCH * begins, bool(u[-1] >= MUCH * begins), "the influence of earlier times falls as 1/u"),
        Assumption("many outputs", "ρM ≫ 1 at the end", float(rho[-1] * m), LEAST_RHO_M,
                   bool(rho[-1] * m >= LEAST_RHO_M), "terms of order 1/(ρM) are neglected"),
    ]  # fmt: skip
    if u[-1] <= start:
        return L2.not_applicable(
            f"the gap ends at {u[-1]:.3g}, and the memory dominates for every token from {start:.3g} on", assumed
        )
    at = split_windows(np.log(u), math.log(start))
    if min(len(w) for w in at) < 3:
        return L2.not_applicable("fewer than three recorded times in a window", assumed)
    exponent, kappa = (np.array([-np.polyfit(np.log(u[w]), y[w], 1)[0] for w in at]) for y in (np.log(rho), z))
    grid = np.linspace(0.05, 12, 1200)
    path = np.asarray(theory.late_overlap(grid, n_classes=k, overlap=first_rho))
    exponents = -np.gradient(np.log(path), grid)
    middle = np.array([np.exp(np.log(rho[w]).mean()) for w in at])
    law = np.interp(-middle, -path, exponents)
    local = -np.gradient(np.log(rho), np.log(u))
    late = u >= start
    return L2.judge(
        quantity=f"−d ln ρ/d ln u in the last of {WINDOWS} windows from u = {start:.3g} to {u[-1]:.3g}, against the "
        f"law at the same ρ; κ = −dz_c/d ln u is {_range(kappa)} over the windows",
        measured=float(exponent[-1]), predicted=float(law[-1]), deviation=float(abs(exponent[-1] / law[-1] - 1)),
        tolerance=L2_TOLERANCE, assumptions=assumed,
        failure=f"it is {exponent[-1]:.3g} against {law[-1]:.3g} at ρ = {middle[-1]:.3g}",
        curve=Curve("gap u", "−d ln ρ/d ln u", u[late], local[late], np.interp(-rho[late], -path, exponents)),
    )  # fmt: skip


def _range(values: Array) -> str:
    return f"{values.min():.3g} to {values.max():.3g}"
