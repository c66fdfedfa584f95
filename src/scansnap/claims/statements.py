"""The table of verdicts on the paper's 31 numbered statements (`scansnap.claims.paper_statements`).

A row takes every built-in claim whose reference names the statement (registry.py), and judges it on each of the row's
settings. Its verdict is that of the claims; nothing here declares one. An assumption is judged by what it asks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scansnap.claims.claim import Claim
from scansnap.claims.paper_statements import PAPER, SETTINGS, PaperStatement
from scansnap.claims.registry import BUILT_IN, Check, checks_by_claim
from scansnap.claims.verify import judge_evidence
from scansnap.progress import Progress
from scansnap.storage.versions import decisive_versions
from scansnap.storage.work_cache import WorkCache

NOT_CHECKED = "not yet checked"  # no claim about it is built in
IN_PART = "holds in part"
VERDICTS = ("holds", IN_PART, "fails", "undecided", "not applicable", NOT_CHECKED)


@dataclass(frozen=True)
class Part:
    """One claim, or one assumption, on one setting."""

    setting: str
    claim: str
    kind: str
    status: str
    quantity: str
    measured: float | None
    predicted: float | None
    margin: float | None
    reason: str
    instead: str  # the claim of ours that holds in its place, in words

    @classmethod
    def of(cls, setting: str, claim: Claim) -> Part:
        ours = "" if claim.alternative is None else str(claim.alternative)
        return cls(setting, claim.name, claim.kind, claim.status, claim.quantity, claim.measured, claim.predicted,
                   claim.margin, claim.reason, ours)  # fmt: skip


@dataclass(frozen=True)
class PaperRow:
    """A numbered statement with the verdicts on its claims."""

    statement: PaperStatement
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> str:
        """Of all claims that the paper states; a claim holds if it fails on no setting and holds on one."""
        by_claim: dict[str, set[str]] = {}
        for part in self.parts:
            if part.kind != "proof step":
                by_claim.setdefault(part.claim, set()).add(part.status)
        order = ("fails", "holds", "undecided", "not applicable")
        verdicts = {next(status for status in order if status in statuses) for statuses in by_claim.values()}
        if not verdicts:
            return NOT_CHECKED
        if verdicts >= {"fails", "holds"}:
            return IN_PART
        return next(status for status in ("fails", "undecided", "holds", "not applicable") if status in verdicts)

    @property
    def fails(self) -> list[Part]:
        """What fails, and where."""
        return [part for part in self.parts if part.status == "fails"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        own = self.statement
        return {
            "statement": own.name,
            "says": own.says,
            "kind": own.kind,
            "verdict": self.verdict,
            "settings": list(own.settings),
            "instead": own.instead,
            "control": own.control,
            "parts": [asdict(p) for p in self.parts],
        }


def work() -> dict[str, list[Check]]:
    """The checks to run by setting, each with the statements that are judged there."""
    by_claim = checks_by_claim()
    wanted: dict[str, set[str]] = {name: set() for name in SETTINGS}
    for statement in PAPER:
        for setting in statement.settings:
            wanted[setting] |= {by_claim[claim].name for claim in statement.claims_on(setting)}
    return {name: [BUILT_IN[check] for check in BUILT_IN if check in checks] for name, checks in wanted.items()}


def paper_cache(folder: Path, *, overwrite: bool = False) -> WorkCache:
    """The settings that are finished, from which a stopped table continues."""
    key = {name: [SETTINGS[name].words, *(check.name for check in checks)] for name, checks in work().items()}
    cache = WorkCache(folder, json.dumps(key), decisive_versions(), damaged="missing",
                      field="the folder with unfinished work")  # fmt: skip
    if overwrite:
        cache.discard()
    cache.refuse_other_work("--overwrite starts again")
    return cache


def check_paper(progress: Progress | None = None, cache: WorkCache | None = None) -> list[PaperRow]:
    """Judge every numbered statement of the paper on its settings."""
    todo = {name: checks for name, checks in work().items() if checks}
    total, done = sum(len(checks) + 1 for checks in todo.values()), 0
    parts: list[Part] = []

    def report_progress(new: int, _: int = 0) -> None:
        if progress:
            progress(done + new, total)

    for name, checks in todo.items():
        piece = cache.get(_file(name)) if cache else None
        new = _judge(name, checks, report_progress) if piece is None else [Part(**v) for v in piece.values["parts"]]
        if cache and piece is None:
            cache.put(_file(name), {"parts": [asdict(part) for part in new]})
        parts += new
        done += len(checks) + 1
        report_progress(0)
    return [_row(statement, parts) for statement in PAPER]


def _judge(name: str, checks: list[Check], progress: Progress) -> list[Part]:
    """The claims and assumptions of one setting that rows ask for."""
    evidence = SETTINGS[name].gather()
    progress(1, 0)
    report = judge_evidence(evidence, lambda done, _: progress(1 + done, 0), checks)
    claims = {claim for statement in PAPER for claim in statement.claims_on(name)}
    assumptions = [evidence.assumptions[a] for s in PAPER if name in s.settings for a in s.assumptions]
    return [Part.of(name, claim) for claim in report if claim.name in claims] + [
        Part(name, a.name, "assumption", "holds" if a.met else "fails", a.statement, a.value, a.threshold, None, a.note,
             "")
        for a in assumptions
    ]  # fmt: skip


def _row(statement: PaperStatement, parts: Sequence[Part]) -> PaperRow:
    named = {name: {*statement.claims_on(name), *statement.assumptions} for name in statement.settings}
    return PaperRow(statement, tuple(part for part in parts if part.claim in named.get(part.setting, ())))


def _file(setting: str) -> str:
    return setting.replace(" ", "-")


def as_markdown(rows: Sequence[PaperRow]) -> str:
    """The table of docs/claims.md."""
    head = (
        "statement",
        "what it says",
        "kind",
        "verdict",
        "judged on",
        "what fails",
        "what holds instead",
        "fails with",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        own = row.statement
        settings: dict[str, list[str]] = {}
        for part in row.fails:
            settings.setdefault(part.claim, []).append(part.setting)
        fails = ", ".join(f"`{claim}` ({', '.join(names)})" for claim, names in settings.items())
        cells = (own.name, own.says, own.kind, row.verdict, ", ".join(own.settings), fails, own.instead, own.control)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def count(rows: Sequence[PaperRow]) -> str:
    """How many statements have each verdict, in words."""
    verdicts = [row.verdict for row in rows]
    listed = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)
    return f"{len(rows)} numbered statements: {listed}"
