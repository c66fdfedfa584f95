"""The pages that list the rooms have all of them, in the order in which they may import each other."""

from __future__ import annotations

import re
from pathlib import Path

from repository_scripts import load_script

ROOT = Path(__file__).parents[2]


def order() -> list[str]:
    """As the test of imports has it."""
    return list(load_script("tests/test_import_order.py").ORDER)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def listed_in_architecture(text: str) -> list[str]:
    """The first column of the first block."""
    block = re.search(r"^```\n(.*?)^```$", text, flags=re.M | re.S)[1]
    return [room for line in block.splitlines() for room in line.split("   ")[0].split(", ")]


def test_the_architecture_page_lists_the_rooms_in_the_order_of_imports() -> None:
    text = page("contributing/architecture.md")
    assert listed_in_architecture(text) == order()
    assert listed_in_architecture(text.replace("results", "claims")) != order()


def test_files_that_comments_point_to_exist() -> None:
    """A comment that names another module by its path below the package."""
    source, wrong = ROOT / "src" / "scansnap", []
    for path in source.rglob("*.py"):
        for found in re.findall(r"\b((?:[a-z_]+/)+[a-z_]+\.py)\b", path.read_text(encoding="utf-8")):
            near = [room / found for room in (source, source.parent, ROOT, path.parent, path.parent.parent)]
            inside = [room / found for room in source.iterdir() if room.is_dir()]
            if not any(place.is_file() for place in (*near, *inside)):
                wrong.append(f"{path.relative_to(source)}: {found}")
    assert wrong == []
