"""Every number of docs/findings.md stands in the section that tells it in full."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from scansnap.cli.app import commands
from scansnap.paper.report.targets import chosen

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| (\d+) \| (.*?) \| `(.*?)` \| \[[^\]]+\]\(([^)#]+)(?:#([^)]*))?\) \| (\S+) \|$", re.M)
FINDINGS = ROW.findall((DOCS / "findings.md").read_text(encoding="utf-8"))


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def slug(heading: str) -> str:
    """The anchor of a heading, as MkDocs makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def section(page: str, anchor: str) -> str:
    """What stands under a heading; the whole page without an anchor."""
    text = (DOCS / page).resolve().read_text(encoding="utf-8")
    if not anchor:
        return text
    headings = list(re.finditer(r"^(#+) (.*)$", text, re.M))
    [start] = [heading for heading in headings if slug(heading[2]) == anchor]
    ends = [one.start() for one in headings if one.start() > start.start() and len(one[1]) <= len(start[1])]
    return text[start.start() : min([*ends, len(text)])]


def missing(says: str, text: str) -> list[str]:
    return [one for one in numbers(says) if not re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", text)]


def test_all_rows_are_read_and_numbered() -> None:
    lines = [
        line for line in (DOCS / "findings.md").read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)
    ]
    assert [int(number) for number, *_ in FINDINGS] == list(range(1, len(lines) + 1))
    assert len(lines) > 30


@pytest.mark.parametrize(("says", "command", "page", "anchor"), [row[1:5] for row in FINDINGS])
def test_its_numbers_stand_in_the_section_it_leads_to(says: str, command: str, page: str, anchor: str) -> None:
    """Those of the survey also in the rows of the statements that its command judges."""
    name = command.split()[-1]
    text = (DOCS / page).resolve().read_text(encoding="utf-8")
    rows = re.findall(rf"^\| `{re.escape(name)}.*$", text, re.M)
    assert missing(says, "\n".join([section(page, anchor), *rows])) == []


def test_findings_of_the_readme_are_among_them() -> None:
    """With the same command, and no number that is not there."""
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    findings = re.findall(r"^\d+\. ((?:.+\n)*?.*)\(`(.+)`\)\.$", page, re.M)
    assert len(findings) == 5
    for sentence, command in findings:
        rows = " ".join(row[1] for row in FINDINGS if row[2] == command)
        assert rows, command
        assert missing(sentence, rows) == [], command


def test_a_number_that_changed_is_missing() -> None:
    _, says, _, page, anchor, _ = next(row for row in FINDINGS if row[4] == "findings")
    text = section(page, anchor)
    changed = re.sub(r"\d+[.]\d+", lambda number: f"{number[0]}7", says)
    assert changed != says
    assert missing(changed, text) == numbers(changed)[: len(missing(changed, text))] != []


@pytest.mark.parametrize("command", sorted({row[2] for row in FINDINGS}))
def test_its_command_is_understood(command: str) -> None:
    first, *words = shlex.split(command)
    if first == "pytest":
        assert (DOCS.parent / words[0]).is_file()
    elif first == "python":
        assert words[0] == "-c" or (DOCS.parent / words[0]).is_file()
    else:
        assert first == "scansnap"
        app = typer.main.get_command(commands())
        parsed = app.commands[words[0]].make_context(words[0], list(words[1:]))  # type: ignore[attr-defined]
        if words[0] == "reproduce":  # one that is not known is refused
            assert chosen(parsed.params["names"])


@pytest.mark.parametrize("day", sorted({day for *_, day in FINDINGS}))
def test_its_day_is_one(day: str) -> None:
    assert re.fullmatch("20\\d\\d(\N{NON-BREAKING HYPHEN}\\d\\d){2}", day)
