"""All checks: the paper's statements in its order, then ours.

A check is a function from `Evidence` to a `Claim`, or to several, and the statements that it judges. A
new statement needs a module with both (one per lemma or theorem, or one per family of statements) and one line in
``BUILT_IN``. Checks with ``by_default=False`` are about formulas, proofs or runs of their own, not about the run at
hand: `scansnap.verify` runs them when they are named, ``scansnap verify --paper`` runs all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scansnap.checks import InputError, check_choice
from scansnap.claims.appendix import counts, decoder_time, modified_run, overlaps
from scansnap.claims.claim import Claim, Statement
from scansnap.claims.evidence import Evidence
from scansnap.claims.lemmas import conservation, lemma1, lemma2, lemma3, lemma4
from scansnap.claims.ours import crossover, drift, drive, exact_law, fates, late, memory, response, scan
from scansnap.claims.theorems import theorem1, theorem2, theorem3, theorem4
from scansnap.theory.applicability import GIVEN_LOGITS

CheckFunction = Callable[[Evidence], Claim | Sequence[Claim]]


@dataclass(frozen=True)
class Check:
    """A named check function and its statements; those of a user's own function are unknown before it runs.

    ``accepts`` is the one reason for being outside the theory (`scansnap.theory.applicability`) under which it speaks.
    """

    name: str
    function: CheckFunction
    statements: tuple[Statement, ...] = ()
    by_default: bool = True  # whether `verify` runs it unless checks are named
    accepts: str = ""

    def excludes(self, reason: str) -> bool:
        """Whether its statements do not apply to a run that is outside the theory for this reason."""
        return bool(reason and self.statements and reason != self.accepts)

    def judge(self, evidence: Evidence) -> list[Claim]:
        """The claims on this evidence. Built-in statements do not apply to a run outside the theory."""
        if self.excludes(evidence.why_not_applicable):
            return self.not_applicable(evidence.why_not_applicable)
        result = self.function(evidence)
        claims = [result] if isinstance(result, Claim) else result
        if not isinstance(claims, list | tuple) or not claims or not all(isinstance(c, Claim) for c in claims):
            raise InputError(f"what the check {self.name} returned", result, "a Claim or a list of Claims")
        return list(claims)

    def not_applicable(self, reason: str) -> list[Claim]:
        """Its statements, not applicable."""
        return [statement.not_applicable(reason) for statement in self.statements]


BUILT_IN = {
    check.name: check
    for check in (
        Check("lemma-1", lemma1.check, lemma1.STATEMENTS),
        Check("lemma-2", lemma2.check, lemma2.STATEMENTS),
        Check("lemma-3", lemma3.check, lemma3.STATEMENTS),
        Check("theorem-1", theorem1.check, theorem1.STATEMENTS),
        Check("theorem-1-orders", theorem1.check_orders, theorem1.ORDERS, by_default=False),
        Check("lemma-4", lemma4.check, lemma4.STATEMENTS),
        Check("theorem-2", theorem2.check, theorem2.STATEMENTS),
        Check("theorem-3", theorem3.check, theorem3.STATEMENTS),
        Check("theorem-3-reverse", theorem3.check_reverse, (theorem3.REVERSE,)),
        Check("theorem-4", theorem4.check, theorem4.STATEMENTS),
        Check("theorem-4-rates", theorem4.check_rates, (theorem4.RATES,)),
        Check("theorem-4-late", theorem4.check_late, theorem4.LATE, by_default=False),
        Check("proof", modified_run.check, modified_run.STATEMENTS, by_default=False),
        Check("decoder-time", decoder_time.check, decoder_time.STATEMENTS, by_default=False),
        Check("counts", counts.check, counts.STATEMENTS, by_default=False),
        Check("overlaps", overlaps.check, overlaps.STATEMENTS, by_default=False),
        Check("conservation", conservation.check, conservation.STATEMENTS),
        Check("drive", drive.check, drive.STATEMENTS),
        Check("memory", memory.check, memory.STATEMENTS),
        Check("response", response.check, response.STATEMENTS),
        Check("exact-law", exact_law.check, exact_law.STATEMENTS),
        Check("scan", scan.check, scan.STATEMENTS, accepts=GIVEN_LOGITS),
        Check("late-fates", fates.check, fates.STATEMENTS),
        Check("residual", fates.check_residual, fates.RESIDUAL_STATEMENTS, by_default=False),
        Check("crossover", crossover.check, crossover.STATEMENTS, by_default=False),
        Check("late", late.check, late.STATEMENTS),
        Check("finite-drift", drift.check, drift.STATEMENTS),
    )
}
CHECKS = {name: check.function for name, check in BUILT_IN.items()}
"""Every built-in check function by name, in the order of the paper, then ours: the names that `scansnap.verify`
accepts as ``checks``.

Examples
--------
>>> import scansnap as ss
>>> list(ss.CHECKS)[:4]
['lemma-1', 'lemma-2', 'lemma-3', 'theorem-1']
"""


def statements(checks: Iterable[Check] | None = None) -> list[Statement]:
    """The statements of these checks (default: of every built-in one), in the order of the paper."""
    return [statement for check in checks or BUILT_IN.values() for statement in check.statements]


def checks_by_claim() -> dict[str, Check]:
    """The built-in check that judges each statement, by the statement's name."""
    return {statement.name: check for check in BUILT_IN.values() for statement in check.statements}


def all_not_applicable(reason: str) -> tuple[Claim, ...]:
    """The statements of the default checks, not applicable for the same reason."""
    return tuple(statement.not_applicable(reason) for statement in statements(select_checks(None)))


def select_checks(checks: Iterable[str | CheckFunction] | None) -> list[Check]:
    """Checks by name, or from functions of the user's own; None: the built-in ones that are run by default."""
    if checks is None:
        return [check for check in BUILT_IN.values() if check.by_default]
    if isinstance(checks, str) or not isinstance(checks, Iterable):
        raise InputError("checks", checks, "a list of names of checks, or functions from Evidence to a Claim")
    selected = []
    for check in checks:
        if callable(check):
            selected.append(Check(getattr(check, "__name__", repr(check)), check))
        elif isinstance(check, str):
            selected.append(BUILT_IN[check_choice("checks", check, BUILT_IN)])
        else:
            raise InputError("checks", check, "the name of a check, or a function from Evidence to a Claim")
    if not selected:
        raise InputError("checks", [], "at least one check")
    return selected
