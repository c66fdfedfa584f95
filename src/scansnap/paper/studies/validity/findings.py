"""What is found on the maps, counted over settings and times."""

from __future__ import annotations

import pandas as pd

from scansnap.paper.figure import Finding
from scansnap.paper.points import Points
from scansnap.paper.studies.validity.measured import MOMENTS

FEW = 0.1  # the edge: response() trusts itself below it, and the paper's equations are asked to hold to a tenth
EXACT = 0.01
_INTEGRATED = 1e-5  # errors below are those of the integration
_CASES = "settings and times"


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """From the rows of :func:`~scansnap.paper.studies.validity.study.by_moment`."""
    met, trusted = table[table.assumptions_met], table[table.trusted_until > table.moment]
    rest = table[~(table.trusted_until > table.moment)]
    seen = trusted[trusted.error > _INTEGRATED]
    share = seen.estimate / seen.error
    return (
        Finding("Where every assumption of the paper is met the linear response is right to 1%", "Ours",
                int((met.error <= EXACT).sum()), len(met), _CASES, f"Largest error of z: {_largest(met, 'error')}.",
                points=Points.without_noise(met.error)),
        Finding("Where it trusts itself the linear response is right to a tenth", "Ours",
                int((trusted.error <= FEW).sum()), len(trusted), _CASES,
                f"Trusted at {len(trusted)} of {len(table)}; largest error there: {_largest(trusted, 'error')}. Of the "
                f"{len(rest)} others {int((rest.error <= FEW).sum())} are right to a tenth as well.",
                points=Points.without_noise(trusted.error)),
        Finding("Where it trusts itself its estimate is at least half of its error", "Ours",
                int((share >= 0.5).sum()), len(seen), _CASES,
                f"Estimate over error: {share.min():.2g} to {share.max():.2g}, median {share.median():.2g}."
                if len(seen) else "", points=Points.without_noise(share)),
        Finding("Theorem 4's B_n, its C₀ from the earliest times, is right to a tenth where every assumption is met",
                "Theorem 4", int((met.paper <= FEW).sum()), len(met), _CASES,
                f"Smallest error until then: {_least(met, 'paper')}; on the whole map it is right to a tenth at "
                f"{int((table.paper <= FEW).sum())} of {len(table)}, of overlap up to "
                f"{table.overlap[table.paper <= FEW].max():.2g}.", points=Points.without_noise(met.paper)),
    )  # fmt: skip


def _largest(part: pd.DataFrame, name: str) -> str:
    return _at_moments(part.groupby("moment")[name].max())


def _least(part: pd.DataFrame, name: str) -> str:
    return _at_moments(part.groupby("moment")[name].min())


def _at_moments(found: pd.Series) -> str:
    words = [f"{found[m]:.2g} at {'' if m == 1 else f'{m} '}t₀" for m in MOMENTS if m in found.index]
    return ", ".join(words) or "none"
