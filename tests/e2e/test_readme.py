"""What the README and the page it leads to show runs as written, and its numbers are those of the code."""

import re
from pathlib import Path

import pytest

from scansnap.corpus import load_corpus
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig4

ROOT = Path(__file__).parents[2]
README, OVERVIEW = ROOT / "README.md", ROOT / "docs" / "overview.md"


def examples(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


def finding(command):
    """The README's sentence that ends in a command."""
    page = README.read_text(encoding="utf-8")
    (sentence,) = re.findall(rf"^\d+\. ((?:.+\n)*?.*)\(`{re.escape(command)}`\)\.$", page, flags=re.M)
    return " ".join(sentence.split())


def test_the_make_targets_and_variables_it_names_exist():
    text = README.read_text(encoding="utf-8")
    targets = set(re.findall(r"^make (\w+)", "\n".join(examples(README, "sh")), flags=re.M))
    assert {"reproduce", "test"} <= targets
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert targets <= made
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    variables = set(re.findall(r"\bSCANSNAP_[A-Z]+\b", text))
    assert "SCANSNAP_DATA" in variables
    assert [name for name in variables if f'"{name}"' not in source] == []


def test_the_files_of_a_text_it_names_are_those_that_are_read(tmp_path):
    names = re.findall(r"`((?:wiki\.)?(?:train|valid|test)\.\w+)`", README.read_text(encoding="utf-8"))
    assert len(names) == 6
    for three in (names[:3], names[3:]):
        folder = tmp_path / three[0]
        folder.mkdir()
        for name in three:
            (folder / name).write_text("the cat sat\n" * 9, encoding="utf-8")
        assert load_corpus(folder, cache_dir=tmp_path / "cache").vocab_size == 5  # with <unk> and <eos>


def test_the_finding_on_figure_4_has_its_numbers():
    """The share of common tokens, and how much of the movement the second half of the run causes."""
    findings = {finding.says: finding for finding in fig4.compute(Effort()).findings}
    sentence = finding("scansnap reproduce fig4")
    common, late = findings["Common tokens lose attention"], findings["In the end attention is almost frozen"]
    share, error = map(float, re.search(r"to (0\.\d+) ± (0\.\d+) \(η_Y = 1\)", common.detail).groups())
    assert sentence.startswith(common.says)
    assert f"{100 * share:.1f} ± {100 * error:.1f}% (95% interval over seeds)" in sentence
    assert f"in {common.agree} of {common.of} patterns" in sentence
    moved = float(re.search(r": (0\.\d+) ±", late.detail).group(1))
    assert f"{100 * moved:.1f}%" in sentence


def test_the_moving_picture_moves_and_is_light():
    picture = ROOT / "docs" / "moving.svg"
    text = picture.read_text(encoding="utf-8")
    assert picture.stat().st_size < 700_000
    assert text.count("@keyframes b") == 26  # a bar for each context word of both classes
    for asked in ("prefers-color-scheme:dark", "prefers-reduced-motion:reduce"):
        assert asked in text
    assert not re.search(r"(href|src)=|url\((?!#)", text)  # nothing from elsewhere


def test_the_python_example_runs(run_as_main, tmp_path):
    (code,) = examples(README, "python")
    printed = run_as_main(code)
    assert printed.count("attention entropy") == 4
    assert re.search(r"[1-9]\d* of \d+ independent statements hold", printed)
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


def test_the_probes_example_runs(run_as_main, tmp_path):
    (code,) = examples(OVERVIEW, "python")
    run_as_main(GIVEN + code)
    assert (tmp_path / "probe.zarr").is_dir()
    assert "<html" in (tmp_path / "probe.html").read_text()


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=["README", "overview"])
def test_every_file_it_names_exists(page):
    for name in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / name).exists(), name


def test_every_command_it_shows_is_understood(scansnap):
    shown = [line for page in (README, OVERVIEW) for block in examples(page, "sh") for line in block.splitlines()]
    table = re.findall(r"`(scansnap [^`]+)`", README.read_text(encoding="utf-8"))
    commands = {m[1] for line in (*shown, *table) if (m := re.match(r"scansnap (\w+)", line))}
    assert {"info", "run", "bench", "reproduce"} <= commands
    for command in commands:
        code, out, err = scansnap(command, "--help")
        assert (code, err) == (0, "")
        assert "Example" in out


def test_every_target_of_its_findings_exists():
    from scansnap.paper.report.targets import TARGETS

    named = re.findall(r"`scansnap reproduce (\w+)", README.read_text(encoding="utf-8"))
    assert len(named) >= 5
    assert set(named) <= set(TARGETS)
