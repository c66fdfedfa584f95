"""docs/errata.md has the numbers that its script prints, and tests that the pages on theory name exist."""

from __future__ import annotations

import ast
import math
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = runpy.run_path(str(ROOT / "examples" / "errata_numbers.py"))["PARTS"]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^### ", PAGE, flags=re.M)[1:]
POWERS = str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
THEORY = ("errata", "theory", "derivations", "claims")


def printed(text: str) -> list[tuple[float, float]]:
    """The numbers of a text, each with half a unit of its last digit."""
    pattern = r"([−+]?\d+(?:\.(\d+))?)(?:·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?(%?)"
    values = []
    for digits, decimals, power, percent in re.findall(pattern, text):
        scale = 10.0 ** int(power.translate(POWERS) or 0) / (100 if percent else 1)
        whole = {3: 1.0, 4: 1.0, 5: 10.0}.get(len(digits), 1e-9)  # 27630 has four digits; a short one is exact
        unit = 10.0 ** -len(decimals) if decimals else whole
        values.append((float(digits.translate(POWERS)) * scale, 0.501 * unit * scale))
    return values


def missing(numbers: dict[str, float], text: str) -> list[str]:
    """Names of the numbers that the text does not have. Rounding, never and from the start are words there."""
    known = printed(text)
    return [name for name, x in numbers.items() if math.isfinite(x) and abs(x) > 1e-9
            and not any(abs(x - y) <= half for y, half in known)]  # fmt: skip


def section(part: str) -> str:
    [found] = [text for text in SECTIONS if f"(part `{part}`)" in text]
    return found


@pytest.mark.parametrize("part", PARTS)
def test_every_number_of_the_script_is_in_its_section(part: str) -> None:
    numbers = {name: float(x) for name, x in PARTS[part]().items()}
    text = section(part).partition("**Number.**")[2]
    assert missing(numbers, text) == []
    shifted = {name: 1.1 * x + 0.1 for name, x in numbers.items() if 1e-9 < abs(x) < math.inf}
    assert len(missing(shifted, text)) > len(shifted) / 2  # the control


@pytest.mark.parametrize("text", SECTIONS[:-1], ids=lambda text: text.partition("\n")[0])
def test_every_entry_is_complete(text: str) -> None:
    for lead in ("Place", "Printed", "Corrected", "Number", "Test"):
        assert f"**{lead}.**" in text
    assert TEST.search(text)


@pytest.mark.parametrize("page", THEORY)
def test_every_test_that_is_named_exists(page: str) -> None:
    for path, name in TEST.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"


def test_every_place_of_the_table_has_its_entry() -> None:
    links = re.findall(r"\]\(#([\w-]+)\)", PAGE)
    plain = [re.sub(r"[^\w\s-]", "", text.partition("\n")[0]).strip().lower() for text in SECTIONS]
    assert set(links) == {re.sub(r"[-\s]+", "-", heading) for heading in plain}
