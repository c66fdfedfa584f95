"""What the README and the page it leads to show runs as written, and the README is as short as it is meant to be."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig4

ROOT = Path(__file__).parents[2]
README, OVERVIEW = ROOT / "README.md", ROOT / "docs" / "overview.md"


def examples(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


def test_it_is_one_picture_two_commands_one_example_and_one_table():
    text = README.read_text(encoding="utf-8")
    assert re.findall(r"!\[[^]]*\]\(([^)]+)\)", text) == ["docs/moving.svg"]
    (commands,) = examples(README, "sh")
    assert re.findall(r"^make (\w+)", commands, flags=re.M) == ["reproduce", "test"]
    assert text.count("\n|---|") == 1
    assert len(text.splitlines()) < 80


def test_its_first_screen_says_which_text_is_used_and_how_to_give_another():
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:24])
    for word in ("docstrings", "WikiText-2", "SCANSNAP_DATA=", "wiki.train.tokens"):
        assert word in first


def test_the_findings_have_the_numbers_of_figure_4():
    """The share of common tokens and what the second half of the run moves, as the figure states them."""
    found = {one.says: one for one in fig4.compute(Effort()).findings}
    text = README.read_text(encoding="utf-8")
    lost, frozen = found["Common tokens lose attention"], found["In the end attention is almost frozen"]
    share, error = map(float, re.search(r"to (0\.\d+) ± (0\.\d+) \(η_Y = 1\)", lost.detail).groups())
    assert f"from 65% to {100 * share:.1f} ± {100 * error:.1f}%, in {lost.agree} of {lost.of} patterns" in text
    moved = float(re.search(r": (0\.\d+) ±", frozen.detail).group(1))
    assert f"steps 50 to 100 move it by {100 * moved:.1f}% of what all steps do" in text


def test_the_moving_picture_moves_and_is_light():
    picture = ROOT / "docs" / "moving.svg"
    text = picture.read_text(encoding="utf-8")
    assert picture.stat().st_size < 700_000
    assert text.count("@keyframes b") == 26  # a bar for each context word of both classes
    for asked in ("prefers-color-scheme:dark", "prefers-reduced-motion:reduce"):
        assert asked in text
    assert not re.search(r"(href|src)=|url\((?!#)", text)  # nothing from elsewhere


def test_the_python_example_runs(tmp_path):
    (code,) = examples(README, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("entropy of attention") == 4
    assert (tmp_path / "sweep.zarr").is_dir()


# what the probe's example takes as given: a model, what it is watched on, and what it is trained on
GIVEN = """
import torch
import scansnap as ss

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids):
        return self.out(self.layer(self.words(ids)))

torch.manual_seed(0)
model, batch, train_ids, loader = Model(), torch.randint(9, (3, 7)), torch.randint(9, (99,)), range(3)
"""


def test_the_probes_example_runs(tmp_path):
    (code,) = examples(OVERVIEW, "python")
    given = [sys.executable, "-W", "error", "-c", GIVEN + code]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "probe.zarr").is_dir()
    assert "<html" in (tmp_path / "probe.html").read_text()


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=["README", "overview"])
def test_every_file_it_names_exists(page):
    for name in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / name).exists(), name


def test_every_command_it_shows_is_understood():
    shown = [line for page in (README, OVERVIEW) for block in examples(page, "sh") for line in block.splitlines()]
    table = re.findall(r"`(scansnap [^`]+)`", README.read_text(encoding="utf-8"))
    commands = {m[1] for line in (*shown, *table) if (m := re.match(r"scansnap (\w+)", line))}
    assert {"info", "run", "bench", "reproduce"} <= commands
    for command in commands:
        done = subprocess.run([sys.executable, "-m", "scansnap", command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Example" in done.stdout


def test_every_target_of_its_table_is_one():
    from scansnap.paper.report.targets import TARGETS

    named = re.findall(r"`scansnap reproduce (\w+)", README.read_text(encoding="utf-8"))
    assert len(named) >= 5
    assert set(named) <= set(TARGETS)
