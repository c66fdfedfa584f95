"""The memory of the decoder: every logit of the symmetric family, in closed form (docs/theory.md §2).

Y was built with earlier f's, and f(then) − f(now) pulls attention back. With the clock u of the frozen decoder,
ε = η_Z/η_Y, v = dz/du, v̄ = Σ_j f_j² v_j and D(u) the drive,

    distinct l:  dv_l/du = ε f_l² [D′ − u(v_l − v̄)]        common:  dv_c/du = εKρ [−D′(1 − ρ)/ρ − u(v_c − v̄)]

(:func:`scansnap.theory.memory_tokens`). It is of first order in z, and what is remembered of leading order in 1/M.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.family import Family, find
from scansnap.claims.ours.path import TOLERANCE, Path, distance, judged_times, of_a_run, path, runs
from scansnap.claims.windows import LAST, TRANSITION
from scansnap.theory import frozen_decoder, memory_tokens

MEMORY = Statement(
    "memory",
    "Memory (ours, docs/theory.md §2)",
    "every token's z is what drive and memory of the decoder add up to, in closed form",
    kind="ours",
)
STATEMENTS = (MEMORY,)

_MOST_TIMES = 60  # as many as the response has


def follow(evidence: Evidence) -> Path | None:
    """Where the closed form takes attention, up to 10 t₀; None where it does not speak."""
    family = find(evidence.classes)
    if isinstance(family, str):
        return None
    t = evidence.t[(evidence.t > 0) & (evidence.t <= LAST * evidence.t_snap)]
    if len(t) > _MOST_TIMES:
        t = t[np.linspace(0, len(t) - 1, _MOST_TIMES).round().astype(int)]
    z = np.zeros((len(t) + 1, len(family.f) + 1))
    if len(t):
        z[1:] = _logits(evidence, family, t)
    return path(evidence, np.append(0.0, t), family.spread(z))


def _clock(evidence: Evidence, family: Family, t: Array) -> Array:
    k, m = family.n_classes, family.vocab_size
    state = frozen_decoder(t, eta_y=evidence.eta_y, n_classes=k, vocab_size=m, overlap=family.overlap)
    return np.asarray(state.clock)


def _logits(evidence: Evidence, family: Family, t: Array) -> Array:
    """(n, D + 1) z of the tokens of a class, the common one last."""
    return memory_tokens(
        _clock(evidence, family, t), eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=family.n_classes,
        vocab_size=family.vocab_size, f_distinct=family.f, form="exact",
    ).z  # fmt: skip


def assumptions(evidence: Evidence, family: Family, ours: Path) -> list[Assumption]:
    """What the equation leaves out must be small at the end of the window (docs/theory.md)."""
    k, m, rho = family.n_classes, family.vocab_size, family.overlap
    end = float(_clock(evidence, family, ours.t[-1:])[0])
    moved = abs(float(ours.z[-1, 0, family.common])) * (1 + rho * end)
    terms = ((1 + rho * (k - 2)) / rho + k - 1) * float(np.exp(min(rho * end, 500.0))) / m
    return [
        *of_a_run(evidence),
        Assumption(
            "first order", f"attention moves little: |z_c|(1 + ρu), as predicted, at most 1/{MUCH:g}",
            moved, 1 / MUCH, moved <= 1 / MUCH, "its move changes α and ρ by about this share",
        ),
        Assumption(
            "leading order in 1/M", f"(κ/ρ + K − 1)e^{{ρu}}/M at most 1/{MUCH:g}, κ = 1 + ρ(K − 2)",
            terms, 1 / MUCH, terms <= 1 / MUCH, "what is remembered has r_n(x)·r_n(u) = 1 only to this share",
        ),
    ]  # fmt: skip


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check(evidence: Evidence) -> Claim:
    """The token that is furthest off, relative to the one that has moved most."""
    family, ours = find(evidence.classes), follow(evidence)
    if isinstance(family, str) or ours is None:
        return MEMORY.not_applicable(f"{family}; the claim response speaks of any classes")
    times = judged_times(evidence, ours.t)
    if not len(times):
        return MEMORY.not_applicable(f"no time is recorded in {TRANSITION.words(evidence)}")
    assumed = assumptions(evidence, family, ours)
    z = runs(evidence, ours.t[1:])
    off = distance(evidence, z[:, times - 1], ours.z[times], ours.t[times])
    if off is None:
        return MEMORY.not_applicable("the logits do not move", assumed)
    at, token, mean = times[off.time], off.entry, z.mean(0)[:, 0]
    top = int(np.argmax(np.abs(ours.z[-1, 0])))
    return MEMORY.judge(
        quantity=f"z of token {token} at t = {ours.t[at]:.4g}, worst in {TRANSITION.words(evidence)}, relative to the "
        "largest |z|",
        measured=float(mean[at - 1, token]),
        predicted=float(ours.z[at, 0, token]),
        deviation=off.share,
        tolerance=TOLERANCE,
        assumptions=assumed,
        where=f"token {token}, {evidence.when(ours.t[at])}: z = {mean[at - 1, token]:.3g} against "
        f"{ours.z[at, 0, token]:.3g}, off by {off.share:.1%} of the largest |z|",
        curve=Curve("t", f"z of token {top}", ours.t[1:], mean[:, top], ours.z[1:, 0, top]),
        interval=off.interval,
        to_decide=off.words(len(z)),
    )
