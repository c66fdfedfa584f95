"""Which checks there are: the paper's statements in its order, ours, and those of one's own.

A check is a function from :class:`Evidence` to a :class:`Claim`, or to several. Ours are modules with a ``check`` and
the ``STATEMENTS`` that it judges; a new one is a file of its own and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scansnap.checks import InputError, check_choice
from scansnap.claims.claim import Claim, Statement
from scansnap.claims.evidence import Evidence
from scansnap.claims.lemmas import conservation, lemma1, lemma2, lemma3, lemma4
from scansnap.claims.ours import drift, drive, exact_law, late, memory, response
from scansnap.claims.theorems import theorem1, theorem2, theorem3, theorem4
from scansnap.claims.theorems.theorem4 import rates

Check = Callable[[Evidence], Claim | Sequence[Claim]]


class _Ours(Protocol):
    """A module of ours."""

    @property
    def STATEMENTS(self) -> tuple[Statement, ...]: ...

    @property
    def check(self) -> Callable[[Evidence], Claim | list[Claim]]: ...


_OURS: dict[str, _Ours] = {
    "lemma-1": lemma1,
    "lemma-2": lemma2,
    "lemma-3": lemma3,
    "theorem-1": theorem1,
    "lemma-4": lemma4,
    "theorem-2": theorem2,
    "theorem-3": theorem3,
    "theorem-4": theorem4,
    "theorem-4-rates": rates,
    "conservation": conservation,
    "drive": drive,
    "memory": memory,
    "response": response,
    "exact-law": exact_law,
    "late": late,
    "finite-drift": drift,
}
CHECKS = {name: module.check for name, module in _OURS.items()}
"""Every check by name, in the order of the paper, then ours: what :func:`scansnap.verify` takes as ``checks``."""


def statements() -> list[Statement]:
    """Every statement of ours, in the order of the paper."""
    return [statement for module in _OURS.values() for statement in module.STATEMENTS]


def by_claim() -> dict[str, Check]:
    """The check that judges each statement of ours, by the statement's name."""
    return {statement.name: module.check for module in _OURS.values() for statement in module.STATEMENTS}


def none_applies(reason: str) -> tuple[Claim, ...]:
    """Every statement of ours, not applicable for the same reason."""
    return tuple(statement.not_applicable(reason) for statement in statements())


@dataclass(frozen=True)
class AskedCheck:
    """A check that is to be made."""

    name: str
    check: Check
    statements: tuple[Statement, ...] = ()  # of ours; nobody knows those of one's own before it is asked

    def claims(self, evidence: Evidence) -> list[Claim]:
        """What it says of this evidence. Ours say nothing of a run that is outside the theory."""
        if evidence.outside and self.statements:
            return self.none_applies(evidence.outside)
        found = self.check(evidence)
        claims = [found] if isinstance(found, Claim) else found
        if not isinstance(claims, list | tuple) or not claims or not all(isinstance(one, Claim) for one in claims):
            raise InputError(f"what the check {self.name} returned", found, "a Claim or a list of Claims")
        return list(claims)

    def none_applies(self, reason: str) -> list[Claim]:
        """Its statements, not applicable."""
        return [statement.not_applicable(reason) for statement in self.statements]


def asked(checks: Iterable[str | Check] | None) -> list[AskedCheck]:
    """The checks by name, ours, or as functions, one's own; all of ours if there is nothing said."""
    if checks is None:
        checks = _OURS
    if isinstance(checks, str) or not isinstance(checks, Iterable):
        raise InputError("checks", checks, "a list: names of ours, or functions from Evidence to a Claim")
    found = []
    for check in checks:
        if callable(check):
            found.append(AskedCheck(getattr(check, "__name__", repr(check)), check))
        else:
            if not isinstance(check, str):
                raise InputError("a check", check, "the name of one of ours, or a function from Evidence to a Claim")
            module = _OURS[check_choice("a check", check, _OURS)]
            found.append(AskedCheck(check, module.check, module.STATEMENTS))
    if not found:
        raise InputError("checks", [], "at least one")
    return found
