"""The lemmas and theorems, checked on exact dynamics: the verdicts behind the figures."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from scansnap.claims.claim import Claim, format_error
from scansnap.claims.report import Report
from scansnap.claims.verify import verify
from scansnap.classes import SequenceClasses
from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.plots import claim_curves
from scansnap.plots.sparkline import Sparkline, sparkline
from scansnap.progress import Progress

TITLE = "Lemmas and theorems"
CAPTION = (
    "Measured (solid) against predicted (dashed) on the exact T → ∞ flow, where every assumption of the paper is met "
    "(preset textbook). On top what fails, with what holds instead (broad green): our theory for the same data and "
    "rates, without a fitted number. The colour of a title is the verdict; what is an identity or a formula says so."
)

HEADLINED, HEADLINE = "theorem-4-growth", 3  # which claim, and its place

# preset, its knobs, η_Y, η_Z: first the setting that meets every assumption, then the paper's own experiments
SETTINGS: tuple[tuple[str, dict[str, Any], float, float], ...] = (
    ("textbook", {}, 0.9, 0.02),
    ("syn-small", {}, 1.0, 1.0),
    ("syn-medium", {"n_queries": 3}, 1.0, 0.5),
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Every claim in every setting; quick: only where the assumptions are met."""
    chosen = SETTINGS[:1] if effort.quick else SETTINGS
    reports: dict[str, Report] = {}
    for i, (preset, knobs, eta_y, eta_z) in enumerate(chosen):
        if progress:
            progress(i, len(chosen))
        label = ", ".join([preset, *(f"{k} = {v}" for k, v in knobs.items())])
        reports[label] = verify(SequenceClasses.preset(preset, **knobs), eta_y=eta_y, eta_z=eta_z)
    table = pd.DataFrame(
        {"setting": label, "eta_y": eta_y, "eta_z": eta_z, "claim": claim.name, "reference": claim.reference,
         "kind": claim.kind, "relation": claim.relation, "statement": claim.statement, "status": claim.status,
         "observed": claim.observed, "measured": claim.measured, "predicted": claim.predicted,
         "margin": claim.margin, "why": claim.reason, **_instead(claim)}
        for (label, report), (_, _, eta_y, eta_z) in zip(reports.items(), chosen, strict=True) for claim in report
    )  # fmt: skip
    settings = {"settings": [{"preset": p, **k, "eta_y": y, "eta_z": z, "context": "inf"} for p, k, y, z in chosen]}
    note = f"quick: {len(chosen)} of {len(SETTINGS)} settings" if effort.quick else ""
    return Computed(table, settings, findings(table), note, {"reports": list(reports.values())}, curves(reports))


def curves(reports: dict[str, Report]) -> dict[str, Sparkline]:
    """One curve for each claim, from the setting where it fails or the first with a curve."""
    lines: dict[str, Sparkline] = {}
    settled: set[str] = set()
    for setting, report in reports.items():
        for claim in report:
            if claim.name in settled or (claim.name in lines and claim.status != "fails"):
                continue
            if (line := sparkline(claim, setting)) is not None:
                lines[claim.name] = line
                settled |= {claim.name} if claim.status == "fails" else set()
    return lines


def _instead(claim: Claim) -> dict[str, Any]:
    """The alternative claim: its name, verdict, and the errors of both curves."""
    alternative = claim.alternative
    if alternative is None:
        return {"instead": "", "instead_status": "", "instead_words": "", "instead_off": None, "off": None}
    replacement = alternative.claim
    return {"instead": replacement.name, "instead_status": replacement.status, "instead_words": alternative.verdict,
            "instead_off": alternative.error, "off": alternative.paper_error}  # fmt: skip


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """One for each claim: the number of applicable settings in which it holds.

    A claim may be algebra in one setting and a measurement in another; those are counted apart.
    """
    result = []
    for (name, kind), rows in table.groupby(["claim", "kind"], sort=False):
        applies = rows[rows.status != "not applicable"]
        beyond = rows[(rows.status == "not applicable") & (rows.observed != "not applicable")]
        relation = rows.relation.iloc[0]
        detail = [f"{relation[0].upper()}{relation[1:]}."] if relation else []
        if len(failed := applies[applies.status == "fails"]):
            detail += [
                f"Fails for {row.setting}: {row.why}.{_describe_alternative(row)}" for row in failed.itertuples()
            ]
        if len(still := applies[applies.status == "undecided"]):
            detail += [f"Undecided for {row.setting}: {row.why}." for row in still.itertuples()]
        if len(beyond):
            held = int((beyond.observed == "holds").sum())
            detail.append(f"Where an assumption is not met, the measurement agrees in {held} of {len(beyond)}.")
            detail += [
                f"For {row.setting} it does not.{_describe_alternative(row)}"
                for row in beyond.itertuples()
                if row.instead
            ]
        says, reference = rows.statement.iloc[0].rstrip("."), rows.reference.iloc[0]
        holds = int((applies.status == "holds").sum())
        known = rows[rows.measured.notna()]
        points = Points.without_noise(known.measured, tuple(known.setting)) if len(known) else None
        result.append(Finding(says, reference, holds, len(applies), "settings", " ".join(detail), len(still), kind,
                             points, HEADLINE if name == HEADLINED else 0))  # fmt: skip
    return tuple(result)


def _describe_alternative(row: Any) -> str:
    """One sentence on what holds instead."""
    if not row.instead:
        return ""
    curves = ""
    if pd.notna(row.instead_off):
        curves = f": its curve is off by {format_error(row.instead_off)}, the paper's by {format_error(row.off)}"
    return f" {row.instead_words[0].upper()}{row.instead_words[1:]}{curves}."


def draw(computed: Computed) -> Figure:
    """The curves of the first setting."""
    return claim_curves.draw(claim_curves.compute(computed.extra["reports"][0]), HEADLINED)
