"""Findings are not written twice: every number of docs/findings.md stands on the page that tells it in full."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from scansnap.cli.app import commands
from scansnap.paper.report.targets import chosen

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| (\d+) \| (.*?) \| `(.*?)` \| \[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\) \| (\S+) \|$", re.M)
FINDINGS = ROW.findall((DOCS / "findings.md").read_text(encoding="utf-8"))


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def test_all_rows_are_read_and_numbered() -> None:
    lines = [
        line for line in (DOCS / "findings.md").read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)
    ]
    assert [int(number) for number, *_ in FINDINGS] == list(range(1, len(lines) + 1))
    assert len(lines) > 30


@pytest.mark.parametrize(("says", "page"), [(says, page) for _, says, _, page, _ in FINDINGS])
def test_its_numbers_are_those_of_the_page(says: str, page: str) -> None:
    told = (DOCS / page).resolve().read_text(encoding="utf-8")
    assert [one for one in numbers(says) if not re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", told)] == []


@pytest.mark.parametrize("command", sorted({command for _, _, command, _, _ in FINDINGS}))
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
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", day)
