"""examples/random_settings.py, which checks the results of docs/theory.md: each part on two settings."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "random_settings.py"))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("scan", r"scan: 2 flows, seed 1: 0 of \d{4,} pairs and times are out of order"),
        ("force", r"force: \d+ classes, seed 1: .* to \d\.\de-0[5-9]"),
        ("memory", r"drive and memory: .*: (\d\.\d%, ){2}\d\.\d% \(median\)"),
        ("response", r"right to a tenth in (\d+) of \1 settings and times"),
        ("fates", r"of (\d+) distinct tokens fall; signs right by condition \1, equation \1"),
        ("crossover", r"crossover: 2 settings, seed 1: 0 signs wrong by the closed form"),
        ("residual", r"residual: 2 settings, seed 1: 2 of 2 tokens"),
    ],
)
def test_a_part(part: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    SCRIPT["PARTS"][part](1, 2)
    assert re.search(sentence, capsys.readouterr().out)


def test_every_part_is_tested_and_named_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
    [mark] = [mark for mark in test_a_part.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {part for part, _ in mark.args[1]} == set(SCRIPT["PARTS"])
    assert all(f"`random_settings.py {part}`" in page for part in SCRIPT["PARTS"])
