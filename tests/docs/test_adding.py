"""The exercise of docs/contributing/adding.md, applied literally to a copy of the source."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing" / "adding.md").read_text(encoding="utf-8")
EXERCISE = PAGE.split("## Exercise")[1].split("\n## ")[0]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)


def apply_diff(text: str, diff: str) -> str:
    """Replace the lines that are context or removed, which occur once, by those that are context or added."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("-", " "))
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("+", " "))
    assert text.count(before) == 1, f"{before!r} occurs {text.count(before)} times"
    return text.replace(before, after)


@pytest.mark.integration
def test_the_exercise_works_as_written(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}

    def run(*arguments: str) -> None:
        process = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr

    blocks = BLOCK.findall(EXERCISE)
    assert [language for language, _, _ in blocks] == [
        "diff", "sh", "python", "diff", "diff", "python", "python", "diff", "sh"
    ]  # fmt: skip
    for language, title, text in blocks:
        if language == "sh":
            for command in text.splitlines():
                run("-m", *shlex.split(command))
        elif title == "run":
            run("-c", text)
        elif language == "diff":
            file = tmp_path / title
            file.write_text(apply_diff(file.read_text(encoding="utf-8"), text), encoding="utf-8")
        else:
            assert not (tmp_path / title).exists()
            (tmp_path / title).write_text(text, encoding="utf-8")
    assert (tmp_path / "lion.zarr").is_dir()
    assert (tmp_path / "out" / "gap.csv").read_text(encoding="utf-8").startswith("vocab_size,s,u\n")
    assert (tmp_path / "out" / "gap.png").stat().st_size > 5000


def test_a_block_that_does_not_fit_the_source_is_noticed() -> None:
    with pytest.raises(AssertionError, match="occurs 0 times"):
        apply_diff("a = 1\n", "-a = 2\n+a = 3\n")
