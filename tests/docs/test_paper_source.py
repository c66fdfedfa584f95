"""The paper is the page docs/theory.md: nothing of it is lost in LaTeX, and what has no LaTeX form is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repository_scripts import load_script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")


paper = load_script("docs/scripts/paper.py")


def test_every_formula_word_and_picture_is_in_the_source() -> None:
    source = paper.latex(PAGE, "docs")
    inside = re.findall(r"\$\$\n(.+?)\n\$\$|\$([^$\n]+)\$", PAGE, re.S)
    assert len(inside) > 100
    assert [formula for pair in inside for formula in pair if formula and formula not in source] == []
    marks = r"\$\$.+?\$\$|\$[^$]+\$|`[^`]+`|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)"
    words = re.findall(r"[A-Za-z]{3,}", re.sub(marks, " ", PAGE, flags=re.S))
    assert sorted({word for word in words if word not in source}) == []
    pictures = re.findall(r"\]\((theory/\w+)\.svg\)", PAGE)
    assert pictures == re.findall(r"\\includegraphics\[[^\]]*\]\{(theory/\w+)\.pdf\}", source)
    for picture in pictures:
        for ending in ("svg", "pdf"):
            assert (ROOT / "docs" / f"{picture}.{ending}").stat().st_size < 200_000


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nls\n```", "> quoted", "1. first", "<b>x</b>", "ß", "![x](y.svg)\n\nno caption",
        "| a | b |\n|---|---|\n| c |",
    ],
)  # fmt: skip
def test_what_cannot_be_printed_is_refused(text: str) -> None:
    with pytest.raises(paper.UnknownMarkupError):
        paper.latex(f"# Title\n\nAbstract.\n\n{text}")


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("50% of `ab --c` and $x_1$", r"50\% of \texttt{\small ab -{}-c} and $x_1$"),
        ("**T** (*Let $u^*$ be*)", r"\textbf{T} (\emph{Let $u^*$ be})"),
        ("[here](errata.md#x), [there](https://x.org/)", r"here, \href{https://x.org/}{there}"),
        ("3·10⁻⁵", r"3$\cdot$10$^-$$^5$"),
    ],
)
def test_a_line(written: str, made: str) -> None:
    assert paper.inline(written) == made


def test_items_begin_at_the_lines_start() -> None:
    assert paper.latex("# T\n\nA.\n\n- a $-(1 - x)$\n- b - c").count(r"\item") == 2


def test_without_tex_it_writes_the_source_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "scripts" / "paper.py"), "--out", str(tmp_path)]
    run = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert "NO TEX" in run.stdout
    assert (tmp_path / "theory.tex").is_file()


@pytest.mark.integration
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_it_has_six_pages_at_most(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "scripts" / "paper.py"), "--out", str(tmp_path)], check=True)
    log = (tmp_path / "theory.log").read_text(encoding="latin-1")
    assert "Overfull" not in log
    assert int(re.search(r"\((\d+) pages", log)[1]) <= 6  # type: ignore[index]
