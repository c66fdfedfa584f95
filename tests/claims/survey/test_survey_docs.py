"""docs/survey.md has every statement, as it stands in the source, with the verdicts and numbers of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

import scansnap as ss
from scansnap.claims.survey.run import statements

PAGE = (Path(__file__).parents[3] / "docs" / "survey.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.replace("\\|", "∣").strip("| ").split("|")]
        for line in PAGE.splitlines() if line.startswith("| `")]  # fmt: skip


def test_the_table_has_the_statements_sources_and_settings_of_the_source() -> None:
    ours = [(f"`{one.name}`", one.text.replace("|", "∣"), one.source.arxiv, one.setting) for one in statements()]
    theirs = [(row[0], row[1], row[2].rpartition("arXiv ")[2] if "arXiv" in row[2] else "", row[3]) for row in ROWS]
    assert theirs == ours


@pytest.mark.integration
def test_the_table_has_the_numbers_of_the_command() -> None:
    """Runs the whole survey: half a minute of one core."""
    for row, found in zip(ROWS, ss.survey(), strict=True):
        assert row[6] == found.status, found.name
        told = float(row[4].split(" ")[0].replace("−", "-"))
        assert told == pytest.approx(found.measured, rel=0.02, abs=0.02), found.name
