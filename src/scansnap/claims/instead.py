"""What holds instead: beside each statement that fails, one of ours for the same data, with both curves.

A statement names, where it is declared, the claims that may hold in its place (``Statement.instead``), and its curve
how it is measured on a path of ours (``Curve.along``). Only what fails is looked at, since the paths cost a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from scansnap.checks import check_choice
from scansnap.claims.claim import Claim, Curve, Instead
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours import memory, response
from scansnap.claims.ours.path import Path
from scansnap.claims.registry import by_claim

# Where attention goes by the claims that say it.
PATHS: dict[str, Callable[[Evidence], Path | None]] = {"memory": memory.follow, "response": response.follow}


def with_instead(claims: Iterable[Claim], evidence: Evidence) -> list[Claim]:
    """The claims; those that are seen to fail with what holds instead, also where an assumption is not met."""
    claims = list(claims)
    known = {claim.name: claim for claim in claims}
    paths: dict[str, Path | None] = {}

    def judged(name: str) -> Claim:
        if name not in known:
            checks = by_claim()
            found = checks[check_choice("what holds instead", name, checks)](evidence)
            known.update((claim.name, claim) for claim in ([found] if isinstance(found, Claim) else found))
        return known[name]

    def found(claim: Claim) -> Claim:
        if claim.observed != "fails" or not claim.candidates:
            return claim
        ours = choose([judged(name) for name in claim.candidates])
        if ours.name in PATHS and ours.name not in paths:
            paths[ours.name] = PATHS[ours.name](evidence)
        path = paths.get(ours.name)
        if path is None:
            return replace(claim, instead=Instead(ours))
        until = f"{path.t[-1] / evidence.t_snap:.2g} t₀"
        if claim.curve is None or claim.curve.along is None:
            return replace(claim, instead=Instead(ours, until))
        with np.errstate(all="ignore"):
            x, y = claim.curve.along(path)
            return replace(claim, instead=Instead(ours, until, x, y, *apart(claim.curve, x, y)))

    return [found(claim) for claim in claims]


def apart(curve: Curve, x: Array, y: Array) -> tuple[float | None, float | None]:
    """How far a curve, and the predicted one, are from the measured one, over the part of the axis that all have."""
    order = np.argsort(curve.x)
    predicted = np.broadcast_to(curve.predicted, curve.x.shape)
    measured, theirs = (np.interp(x, curve.x[order], values[order]) for values in (curve.measured, predicted))
    inside = (x >= curve.x[order[0]]) & (x <= curve.x[order[-1]]) & (measured != 0)
    if not inside.any():
        return None, None
    size = np.abs(measured[inside]) if curve.log_y else np.abs(measured[inside]).max()
    off, off_too = (float((np.abs(values - measured)[inside] / size).max()) for values in (y, theirs))
    return off, off_too


def choose(ours: list[Claim]) -> Claim:
    """The first that holds; if none does, the first that speaks of the setting; the last if none does that either."""
    for status in ("holds", "undecided", "fails"):
        for claim in ours:
            if claim.status == status:
                return claim
    return ours[-1]
