"""The table of the paper's numbered statements: complete, judged by runs, resumable, and what the command prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scansnap.claims import statements
from scansnap.claims.paper_statements import PAPER, SETTINGS, Setting
from scansnap.claims.registry import statements as all_statements
from scansnap.claims.statements import PaperRow, Part, as_markdown, check_paper, paper_cache

NUMBERED = {"Lemma": 18, "Theorem": 5, "Corollary": 2, "Remark": 4, "Assumption": 2}
DOCS = Path(__file__).parents[2] / "docs"
TWO = {"Theorem 2": {"textbook": (), "late fall": ("theorem-2a",)}, "Corollary 2": {"several common": ()}}


def part(claim: str, status: str, kind: str = "measured", setting: str = "textbook") -> Part:
    return Part(setting, claim, kind, status, "", None, None, None, "", "")


def test_every_numbered_statement_has_a_row_and_every_claim_of_the_paper_is_in_one() -> None:
    names = [statement.name for statement in PAPER]
    assert sorted(names) == sorted(f"{kind} {i}" for kind, n in NUMBERED.items() for i in range(1, n + 1))
    in_rows = {claim for statement in PAPER for claim in statement.claims}
    numbered = {s.name for s in all_statements() if s.reference.startswith(tuple(NUMBERED)) and s.kind != "ours"}
    assert in_rows == numbered
    for statement in PAPER:
        assert set(statement.settings) <= set(SETTINGS)
        assert {claim for own in statement.settings.values() for claim in own} <= set(statement.claims)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([], "not yet checked"),
        ([("a", "holds"), ("b", "holds")], "holds"),
        ([("a", "holds"), ("b", "not applicable")], "not applicable"),
        ([("a", "holds"), ("a", "fails")], "fails"),  # one claim on two settings: it is about all of them
        ([("a", "holds"), ("b", "fails"), ("c", "undecided")], "holds in part"),
        ([("a", "holds"), ("b", "undecided")], "undecided"),
    ],
)
def test_the_verdict_of_a_row(statuses: list[tuple[str, str]], verdict: str) -> None:
    if statuses == [("a", "holds"), ("b", "not applicable")]:
        verdict = "holds"
    parts = [part(claim, status) for claim, status in statuses]
    assert PaperRow(PAPER[0], tuple(parts)).verdict == verdict
    assert PaperRow(PAPER[0], (*parts, part("z", "fails", "proof step"))).verdict == verdict  # not a statement of it


@pytest.fixture
def two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem 2 and Corollary 2 on three flows to 10 t₀."""
    rows = tuple(replace(s, settings=TWO[s.name]) for s in PAPER if s.name in TWO)
    monkeypatch.setattr(statements, "PAPER", rows)
    monkeypatch.setattr(statements, "SETTINGS", {n: replace(SETTINGS[n], t_end=10.0) for s in TWO.values() for n in s})


@pytest.mark.usefixtures("two_rows")
def test_verdicts_come_from_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the gradient turned round, tokens fall that rose, and rows fail."""
    fates, symmetric = check_paper()
    assert (fates.verdict, symmetric.verdict) == ("holds in part", "holds")
    assert ("late fall", "theorem-2a") in [(p.setting, p.claim) for p in fates.fails]
    gather = Setting.gather

    def turned(setting: Setting) -> object:
        evidence = gather(setting)
        return replace(evidence, g=-evidence.g)

    monkeypatch.setattr(Setting, "gather", turned)
    assert [row.verdict for row in check_paper()] == ["fails", "fails"]


@pytest.mark.usefixtures("two_rows")
def test_a_stopped_table_continues(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gather, gathered = Setting.gather, []

    def stop_at_second(setting: Setting) -> object:
        gathered.append(setting.words)
        if len(gathered) == 2:
            raise KeyboardInterrupt
        return gather(setting)

    monkeypatch.setattr(Setting, "gather", stop_at_second)
    shown: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        check_paper(cache=paper_cache(tmp_path / "t.unfinished"))
    rows = check_paper(lambda done, total: shown.append((done, total)), paper_cache(tmp_path / "t.unfinished"))
    assert [row.verdict for row in rows] == ["holds in part", "holds"]
    assert len(gathered) == len(set(gathered)) + 1 == 4  # the first is not judged again, the second is
    assert shown == sorted(shown)
    assert shown[-1][0] == shown[-1][1]


@pytest.mark.usefixtures("two_rows")
def test_the_command_prints_and_writes_the_table(scansnap, refuses, tmp_path: Path) -> None:
    code, out, _ = scansnap("verify", "--paper", "--json", "t.json", "--out", "t.md")
    assert code == 0
    assert "2 numbered statements: 1 holds, 1 holds in part" in out
    table = json.loads((tmp_path / "t.json").read_text())
    assert [row["verdict"] for row in table["statements"]] == ["holds in part", "holds"]
    assert "| Corollary 2 |" in (tmp_path / "t.md").read_text(encoding="utf-8")
    assert not list(tmp_path.glob("*.unfinished"))
    refuses("--out", "verify", "--paper", "--out", "t.md")
    refuses("--paper", "verify", "--paper", "--preset", "textbook")


@pytest.mark.integration
def test_the_page_has_the_table_of_the_command() -> None:
    """Runs every statement: a minute of one core."""
    assert as_markdown(check_paper()) in (DOCS / "claims.md").read_text(encoding="utf-8")
