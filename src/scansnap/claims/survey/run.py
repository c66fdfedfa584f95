"""The survey: every statement, or those that are named, held against its setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scansnap.checks import InputError
from scansnap.claims.claim import Report
from scansnap.claims.survey.finding import FULL, QUICK, Finding, Sizes, Surveyed
from scansnap.claims.survey.statements import (
    balance,
    causal,
    class_losses,
    decay,
    entropy,
    factors,
    log_odds,
    max_margin,
    polarisation,
    retrieval,
    scan_order,
    sink_logits,
    sinks,
)
from scansnap.claims.survey.statements.joma import integral, rebound
from scansnap.progress import Progress


class _Held(Protocol):
    """A module with statements that share their runs."""

    @property
    def STATEMENTS(self) -> tuple[Surveyed, ...]: ...

    @property
    def check(self) -> Callable[[Sizes], list[Finding]]: ...


_MODULES: tuple[_Held, ...] = (
    integral, rebound, polarisation, scan_order, class_losses, max_margin, factors, decay, sinks, sink_logits,
    retrieval, log_odds, balance, causal, entropy,
)  # fmt: skip


def statements() -> list[Surveyed]:
    """Every statement of the survey, in its order."""
    return [statement for module in _MODULES for statement in module.STATEMENTS]


def survey(*names: str, quick: bool = False, progress: Progress | None = None) -> Report:
    """Hold statements of the literature against settings of ours.

    ``names`` chooses them, each by its name or by a beginning of it up to a hyphen ("joma", "scan-order"); all if there
    are none. ``quick`` takes fewer training seeds and shorter runs. The claims of the report are
    :class:`~scansnap.claims.survey.finding.Finding`: verdict, source, setting, what was measured with its interval over
    training seeds, and what was predicted.
    """
    from scansnap.dynamics.device import one_thread

    wanted = chosen(names)
    todo = [module for module in _MODULES if any(one.name in wanted for one in module.STATEMENTS)]
    sizes, found = QUICK if quick else FULL, list[Finding]()
    with one_thread():
        for i, module in enumerate(todo):
            found += [finding for finding in module.check(sizes) if finding.name in wanted]
            if progress is not None:
                progress(i + 1, len(todo))
    how = ", quick" if quick else ""
    return Report(f"{len(found)} statements of the survey, {sizes.seeds} training seeds{how}", tuple(found))


def chosen(names: tuple[str, ...]) -> set[str]:
    """The names of the statements that are meant."""
    every = [statement.name for statement in statements()]
    wanted = set[str]()
    for name in names:
        meant = [own for own in every if own == name or (name and own.startswith(f"{name}-"))]
        if not meant:
            first = list(dict.fromkeys(own.split("-")[0] for own in every))
            raise InputError("NAME", name, f"a statement of the survey, or how some begin: {', '.join(first)}")
        wanted |= set(meant)
    return wanted or set(every)
