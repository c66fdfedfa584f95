"""The tutorials: percent notebooks that store no output, lead somewhere, and state nothing they do not check.

`make docs` runs all of them; here the quickest is run, and once more with a setting in which its statements are false.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import scansnap

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = ["1_ten_lines", "2_which_theorem", "3_adam", "4_hugging_face", "5_own_text", "6_training_monitor",
         "7_query_key_rate"]  # fmt: skip
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s#]*)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Cell:
    kind: str  # markdown or code
    text: str


def read(path: Path) -> list[Cell]:
    """The cells of a percent notebook; a header between two lines of dashes is none."""
    header, *parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.M)
    assert header.startswith("# ---\n")
    assert "format_name: percent" in header
    cells = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if mark.strip() == "[markdown]":
            lines = body.strip().splitlines()
            assert all(line == "#" or line.startswith("# ") for line in lines), f"{path.name}: text outside a comment"
            cells.append(Cell("markdown", "\n".join(line[2:] for line in lines)))
        else:
            assert not mark.strip(), f"{path.name}: a cell marked {mark}"
            cells.append(Cell("code", body.strip()))
    return cells


def prose(cells: list[Cell]) -> str:
    text = "\n\n".join(cell.text for cell in cells if cell.kind == "markdown")
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def code(cells: list[Cell]) -> str:
    return "\n\n".join(cell.text for cell in cells if cell.kind == "code")


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {"#" + re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_nothing_else_lies_there() -> None:
    """No .ipynb: the site makes them, so that they cannot differ and store no outputs."""
    found = {path.name for path in FOLDER.iterdir() if not path.name.startswith(("__pycache__", "."))}
    assert found == {f"{name}.py" for name in NAMES} | {"ruff.toml"}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_notebook_that_teaches(name: str) -> None:
    cells = read(FOLDER / f"{name}.py")
    assert cells[0].kind == "markdown"
    assert re.findall(r"^# .*", prose(cells), re.M) == [cells[0].text.splitlines()[0]]  # one title, first
    assert cells[-1].kind == "markdown"
    for part in ("## Try", "## Read on"):
        assert part in cells[-1].text
    assert all(cell.text for cell in cells)


@pytest.mark.parametrize("name", NAMES)
def test_its_code_compiles_and_checks_what_the_text_says(name: str) -> None:
    cells = read(FOLDER / f"{name}.py")
    tree = ast.parse(code(cells))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert len(checks) >= 4
    assert not any(isinstance(node.test, ast.Constant) for node in checks)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name) and node.value.id == "ss"}  # fmt: skip
    assert used
    assert used <= set(scansnap.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_its_links_lead_somewhere(name: str) -> None:
    path = FOLDER / f"{name}.py"
    links = LINK.findall(prose(read(path)))
    assert len(links) >= 3
    for target, anchor in links:
        page = (FOLDER / target).resolve() if target else path
        assert page.is_file(), target
        if anchor:
            assert anchor in anchors(page), f"{target}{anchor}"


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_no_place_of_ours(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(?:work|home|root|tmp|data|mnt)/", text)
    assert not re.search(r"""filterwarnings\(["']ignore["']\)|simplefilter""", text)  # one by its words, never all


def test_ten_lines_are_ten_at_most() -> None:
    first = next(cell for cell in read(FOLDER / "1_ten_lines.py") if cell.kind == "code")
    assert len([line for line in first.text.splitlines() if line.strip()]) <= 10


def run(text: str) -> dict[str, object]:
    """As a script; warnings are errors here, as everywhere in the tests."""
    seen: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, "tutorial", "exec"), seen)
    return seen


def test_the_first_one_runs(capsys: pytest.CaptureFixture[str]) -> None:
    figure = run(code(read(FOLDER / "1_ten_lines.py")))["figure"]
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    told = capsys.readouterr()
    assert "step 100" in told.out
    assert not told.err


def test_its_statements_fail_where_they_are_false() -> None:
    """With an attention that hardly learns nothing is scanned."""
    text = code(read(FOLDER / "1_ten_lines.py"))
    slow = text.replace("eta_z=1.0", "eta_z=0.01")
    assert slow != text
    with pytest.raises(AssertionError):
        run(slow)
