"""The numbers of docs/derivations.md that no other test holds are those that examples/theory_numbers.py prints."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def row(text: str, *words: str) -> str:
    """The one line that has all these words."""
    (found,) = (line for line in text.splitlines() if all(word in line for word in words))
    return found


def test_the_rows_of_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """What the drive alone, and the memory without v̄, have of the flow's z."""
    script = runpy.run_path(str(ROOT / "examples" / "theory_numbers.py"))
    script["memory"]()
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "derivations.md").read_text(encoding="utf-8")

    def computed(ratio: str, name: str) -> list[float]:
        return [float(x) for x in row(printed, f"ratio {ratio} ", name).split()[-4:]]

    alone = [float(cell) for cell in row(page, "| drive alone (exact), ratio 45").split("|")[2:6]]
    np.testing.assert_allclose(alone, computed("45", "drive alone"), atol=6e-3)
    without = [cell.split(";") for cell in row(page, "| without v̄ (exact), ratio 45; ratio 1").split("|")[2:6]]
    for place, ratio in enumerate(("45", "1")):
        told = [float(cell[place]) for cell in without]
        np.testing.assert_allclose(told, computed(ratio, "without v̄"), atol=6e-3)


def test_the_sentence_of_the_drive(capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(ROOT / "examples" / "theory_numbers.py"))
    script["drive"]()
    percent = float(capsys.readouterr().out.split("leading B is ")[1].split("%")[0])
    page = (ROOT / "docs" / "derivations.md").read_text(encoding="utf-8")
    assert f"{percent:.0f}% of B on `textbook`" in page
