"""The first pages do as they say: commands and snippets run as they stand, and the extras are those that there are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START, INDEX = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("start.md", "index.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.M | re.S)


def test_run_and_look(scansnap: Callable[..., tuple[int, str, str]], run_as_main: Callable[..., str]) -> None:
    """Entropy over the distinct tokens falls, as the page says of it."""
    (command,) = re.findall(r"^scansnap (run .*)$", START, flags=re.M)
    (snippet,) = blocks(START, "python")
    assert scansnap(*command.split())[0] == 0
    assert list(Path("out").glob("*.png"))
    dims, entropy = run_as_main(snippet).split("\n", 1)
    assert dims.startswith("('run', 'step', 'seq_class', 'token')")
    first, *_, last = map(float, entropy.strip(" []\n").split())
    assert last < first


def test_the_probe_in_a_loop(run_as_main: Callable[..., str]) -> None:
    """Step 0 is before the first update, and the last step is measured."""
    import scansnap as ss

    (snippet,) = blocks((ROOT / "docs" / "attach.md").read_text(encoding="utf-8"), "python")
    run_as_main(snippet)
    steps = ss.load("probe.zarr").step.values
    assert (steps[0], steps[-1]) == (0, 30)
    assert Path("probe.html").is_file()


def test_the_first_snippet(run_as_main: Callable[..., str]) -> None:
    (snippet,) = blocks(INDEX, "python")
    assert "holds" in run_as_main(snippet)


@pytest.mark.parametrize("command", re.findall(r"^scansnap (\w+)", START, flags=re.M))
def test_every_command_is_one(scansnap: Callable[..., tuple[int, str, str]], command: str) -> None:
    code, out, _ = scansnap(command, "--help")
    assert code == 0
    assert "Example" in out


def test_the_extras_are_those_of_the_package() -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    assert set(re.findall(r"^\| `\[(\w+)\]` \|", START, flags=re.M)) == extras - {"dev", "docs"}
