"""The memory of the decoder: every logit of the symmetric family, in closed form (docs/derivations.md §2).

Y was learned with earlier f's, and the difference from the present f pulls attention back. With the clock u of the
frozen decoder, ε = η_Z/η_Y, v = dz/du, v̄ = Σ_j f_j² v_j and D(u) the drive,

    distinct l:  dv_l/du = ε f_l² [D′ − u(v_l − v̄)]        common:  dv_c/du = εKρ [−D′(1 − ρ)/ρ − u(v_c − v̄)]

(`scansnap.theory.memory_tokens`). It is of first order in z, and its memory term of leading order in 1/M.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.path import (
    TOLERANCE,
    PredictedPath,
    judged_times,
    largest_deviation,
    logits_by_seed,
    make_path,
    run_assumptions,
)
from scansnap.claims.ours.symmetric import SymmetricClasses, find_symmetry
from scansnap.claims.time_windows import TRANSITION, WINDOW_END
from scansnap.theory import frozen_decoder, memory_tokens

MEMORY = Statement(
    "memory", "Memory (ours, docs/derivations.md §2)",
    "every token's z is the closed form of drive and memory of the decoder", kind="ours",
)  # fmt: skip
STATEMENTS = (MEMORY,)

_MOST_TIMES = 60  # as for the response


def predict_path(evidence: Evidence) -> PredictedPath | None:
    """The path of the closed form up to 10 t₀; None for classes that are not symmetric."""
    family = find_symmetry(evidence.classes)
    if isinstance(family, str):
        return None
    t = thinned_times(evidence)
    z = np.zeros((len(t) + 1, len(family.f) + 1))
    if len(t):
        z[1:] = _logits(evidence, family, t)
    return make_path(evidence, np.append(0.0, t), family.to_tokens(z))


def thinned_times(evidence: Evidence) -> Array:
    """The recorded times after 0 and up to 10 t₀, at most 60 of them."""
    t = evidence.t[(evidence.t > 0) & (evidence.t <= WINDOW_END * evidence.t_snap)]
    return t if len(t) <= _MOST_TIMES else t[np.linspace(0, len(t) - 1, _MOST_TIMES).round().astype(int)]


def _clock(evidence: Evidence, family: SymmetricClasses, t: Array) -> Array:
    k, m = family.n_classes, family.vocab_size
    state = frozen_decoder(t, eta_y=evidence.eta_y, n_classes=k, vocab_size=m, overlap=family.overlap)
    return np.asarray(state.x)


def _logits(evidence: Evidence, family: SymmetricClasses, t: Array) -> Array:
    """(n, D + 1) z of the tokens of a class, the common one last."""
    return memory_tokens(
        _clock(evidence, family, t), eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=family.n_classes,
        vocab_size=family.vocab_size, f_distinct=family.f, form="exact",
    ).z  # fmt: skip


def linear_assumptions(evidence: Evidence, overlap: float, gap: float, moved: float) -> list[Assumption]:
    """Neglected terms must be small at the end of the window (docs/derivations.md): ρ, u and the largest |z| there."""
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    first = moved * (1 + overlap * gap)
    terms = ((1 + overlap * (k - 2)) / overlap + k - 1) * float(np.exp(min(overlap * gap, 500.0))) / m
    return [
        *run_assumptions(evidence),
        Assumption(
            "first order", f"attention moves little: |z_c|(1 + ρu), as predicted, at most 1/{MUCH:g}",
            first, 1 / MUCH, first <= 1 / MUCH, "its movement changes α and ρ by about this share",
        ),
        Assumption(
            "leading order in 1/M", f"(κ/ρ + K − 1)e^{{ρu}}/M at most 1/{MUCH:g}, κ = 1 + ρ(K − 2)",
            terms, 1 / MUCH, terms <= 1 / MUCH, "the memory term has r_n(x)·r_n(u) = 1 only to this share",
        ),
    ]  # fmt: skip


@np.errstate(all="ignore")  # Statement.judge judges what is not a number a failure
def check(evidence: Evidence) -> Claim:
    """The token that is furthest off, relative to the one that has moved most."""
    family, ours = find_symmetry(evidence.classes), predict_path(evidence)
    if isinstance(family, str) or ours is None:
        return MEMORY.not_applicable(f"{family}; the claim response covers all classes")
    times = judged_times(evidence, ours.t)
    if not len(times):
        return MEMORY.not_applicable(f"no time is recorded in {TRANSITION.describe(evidence)}")
    end = float(_clock(evidence, family, ours.t[-1:])[0])
    assumed = linear_assumptions(evidence, family.overlap, end, abs(float(ours.z[-1, 0, family.common])))
    z = logits_by_seed(evidence, ours.t[1:])
    off = largest_deviation(evidence, z[:, times - 1], ours.z[times], ours.t[times])
    if off is None:
        return MEMORY.not_applicable("the logits do not move", assumed)
    at, token, mean = times[off.time], off.entry, z.mean(0)[:, 0]
    top = int(np.argmax(np.abs(ours.z[-1, 0])))
    return MEMORY.judge(
        quantity=f"z of token {token} at t = {ours.t[at]:.4g}, worst in {TRANSITION.describe(evidence)}, "
        "relative to the largest |z|",
        measured=mean[at - 1, token], predicted=ours.z[at, 0, token], deviation=off.share, tolerance=TOLERANCE,
        assumptions=assumed,
        failure=f"token {token}, {evidence.format_time(ours.t[at])}: z = {mean[at - 1, token]:.3g} against "
        f"{ours.z[at, 0, token]:.3g}, off by {off.share:.1%} of the largest |z|",
        curve=Curve("t", f"z of token {top}", ours.t[1:], mean[:, top], ours.z[1:, 0, top]),
        interval=off.interval,
        remedy=off.remedy(len(z)),
    )  # fmt: skip
