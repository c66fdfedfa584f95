"""The survey: tests statements of the literature, all or by name."""

from __future__ import annotations

from scansnap.checks import InputError
from scansnap.claims.report import Report
from scansnap.claims.survey import (
    causal,
    class_imbalance,
    drops,
    joma,
    late_attention,
    rank_collapse,
    scan_order,
    separator_paths,
    separators,
    sink_cost,
    sinks,
    soft_labels,
    trigger,
)
from scansnap.claims.survey.speed import circuits, emergence, focus, logit_steps, zipf
from scansnap.claims.survey.statement import FULL, QUICK, SurveyCheck, SurveyClaim, SurveyStatement
from scansnap.progress import Progress

CHECKS: tuple[SurveyCheck, ...] = (
    joma.INTEGRAL, joma.REBOUND, late_attention.POLARISATION, scan_order.ORDER, class_imbalance.CLASS_LOSSES,
    separators.MAX_MARGIN, separators.FACTORS, late_attention.DECAY, sinks.SINKS, sinks.SINK_LOGITS,
    soft_labels.RETRIEVAL, soft_labels.LOG_ODDS, class_imbalance.BALANCE, causal.CAUSAL, late_attention.ENTROPY,
    circuits.CIRCUITS, focus.FOCUS, emergence.EMERGENCE, emergence.PROGRESS, zipf.ZIPF, drops.DROPS,
    rank_collapse.COLLAPSE, separator_paths.NORMALISED, separator_paths.MIRRORED, trigger.TRIGGER, sink_cost.COST,
    logit_steps.LOGIT_STEPS,
)  # fmt: skip


def statements() -> list[SurveyStatement]:
    """Every statement of the survey, in its order."""
    return [statement for check in CHECKS for statement in check.statements]


def survey(*names: str, quick: bool = False, progress: Progress | None = None) -> Report:
    """Test statements of the literature on settings of ours.

    Parameters
    ----------
    *names
        Which statements to test: a name (``"joma-linear"``), or the beginning of names up to a hyphen (``"joma"``).
        Default: all.
    quick
        Fewer training seeds and shorter runs.
    progress
        Called as ``progress(done, total)`` after each group of statements.

    Returns
    -------
    Report
        Its claims are `scansnap.claims.survey.statement.SurveyClaim`: verdict, source, setting, the measured
        value with its interval over training seeds, and the prediction.

    Examples
    --------
    >>> import scansnap as ss
    >>> ss.survey("causal", quick=True)["causal-parents"].status
    'holds'
    """
    from scansnap.dynamics.device import one_thread

    selected = select_names(names)
    checks = [check for check in CHECKS if any(statement.name in selected for statement in check.statements)]
    effort, claims = QUICK if quick else FULL, list[SurveyClaim]()
    with one_thread():
        for i, check in enumerate(checks):
            claims += [claim for claim in check.judge(effort) if claim.name in selected]
            if progress is not None:
                progress(i + 1, len(checks))
    mode = ", quick" if quick else ""
    return Report(f"{len(claims)} statements of the survey, {effort.seeds} training seeds{mode}", tuple(claims))


def select_names(names: tuple[str, ...]) -> set[str]:
    """The full names of the statements that ``names`` select."""
    known = [statement.name for statement in statements()]
    selected = set[str]()
    for name in names:
        matches = [full for full in known if full == name or (name and full.startswith(f"{name}-"))]
        if not matches:
            beginnings = list(dict.fromkeys(full.split("-")[0] for full in known))
            raise InputError("NAME", name, f"a statement of the survey, or a beginning: {', '.join(beginnings)}")
        selected |= set(matches)
    return selected or set(known)
