"""What holds instead: beside each statement that fails, one of ours for the same data, with both curves.

A statement names, where it is declared, the checks that may hold in its place (``Statement.instead``), and its curve
how it is measured on a path of ours (``Curve.along``). Only what fails is looked at, since the paths cost a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from scansnap.checks import choice
from scansnap.claims.claim import Claim, Instead
from scansnap.claims.evidence import Evidence
from scansnap.claims.ours import memory, response
from scansnap.claims.ours.path import Path
from scansnap.claims.registry import CHECKS

# Where attention goes by the claims that say it.
PATHS: dict[str, Callable[[Evidence], Path | None]] = {"memory": memory.follow, "response": response.follow}


def with_instead(claims: Iterable[Claim], evidence: Evidence) -> list[Claim]:
    """The claims; those that are seen to fail with what holds instead, also where an assumption is not met."""
    claims = list(claims)
    known = {claim.name: claim for claim in claims}
    paths: dict[str, Path | None] = {}

    def judged(name: str) -> Claim:
        if name not in known:
            found = CHECKS[choice("what holds instead", name, CHECKS)](evidence)
            known.update((claim.name, claim) for claim in ([found] if isinstance(found, Claim) else found))
        return known[name]

    def found(claim: Claim) -> Claim:
        if claim.observed != "fails" or not claim.candidates:
            return claim
        ours = choose([judged(name) for name in claim.candidates])
        if ours.name in PATHS and ours.name not in paths:
            paths[ours.name] = PATHS[ours.name](evidence)
        path = paths.get(ours.name)
        if path is None or claim.curve is None or claim.curve.along is None:
            return replace(claim, instead=Instead(ours))
        with np.errstate(all="ignore"):
            return replace(claim, instead=Instead(ours, *claim.curve.along(path)))

    return [found(claim) for claim in claims]


def choose(ours: list[Claim]) -> Claim:
    """The first that holds; if none does, the first that speaks of the setting; the last if none does that either."""
    for status in ("holds", "undecided", "fails"):
        for claim in ours:
            if claim.status == status:
                return claim
    return ours[-1]
