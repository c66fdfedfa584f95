"""What the README and the page it leads to show runs as written, and its numbers are those of the code."""

import re
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.corpus import load_corpus
from scansnap.explorer.build import explorer_html

ROOT = Path(__file__).parents[2]
README, OVERVIEW = ROOT / "README.md", ROOT / "docs" / "overview.md"


def examples(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


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


def test_the_moving_picture_moves_and_is_light():
    picture = ROOT / "docs" / "moving.svg"
    text = picture.read_text(encoding="utf-8")
    assert picture.stat().st_size < 700_000
    assert text.count("@keyframes b") == 26  # a bar for each context word of both classes
    for asked in ("prefers-color-scheme:dark", "prefers-reduced-motion:reduce"):
        assert asked in text
    assert not re.search(r"(href|src)=|url\((?!#)", text)  # nothing from elsewhere


def test_the_python_example_runs(run_as_main):
    (code,) = examples(README, "python")
    printed = run_as_main(code)
    assert printed.count("attention entropy") == 4
    assert re.search(r"[1-9]\d* of \d+ independent statements hold", printed)


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


def test_the_two_lines_for_a_training_run_run(run_as_main, tmp_path):
    (code,) = examples(README, "py")
    construct, measure = code.splitlines()
    run_as_main(f"{GIVEN}{construct}\nfor step in range(3):\n    loss = torch.tensor(1.0)\n    {measure}\n")
    assert ss.load(tmp_path / "probe.zarr").step.values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=["README", "overview"])
def test_every_file_it_names_exists(page):
    for name in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / name).exists(), name


def test_the_page_to_download_is_the_one_that_the_command_writes():
    """After a change of the page: scansnap explorer --out docs/scan-and-snap.html --overwrite --no-open"""
    shipped = ROOT / "docs" / "scan-and-snap.html"
    assert shipped.name in README.read_text(encoding="utf-8")
    assert shipped.read_text(encoding="utf-8") == explorer_html()


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
    assert {"lever", "probe", "alerts"} <= set(named)
    assert set(named) <= set(TARGETS)
