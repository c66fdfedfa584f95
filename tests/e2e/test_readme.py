"""What the README shows runs as written."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def examples():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


def test_the_python_example_runs(tmp_path):
    code, _ = examples()
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
    _, code = examples()
    given = [sys.executable, "-W", "error", "-c", GIVEN + code]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "probe.zarr").is_dir()
    assert "<html" in (tmp_path / "probe.html").read_text()


def test_every_file_it_names_exists():
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / name).exists(), name


def test_every_command_it_shows_is_understood():
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^scansnap (\w+)", text, flags=re.M)
    assert {"info", "run", "bench"} <= set(commands)
    for command in set(commands):
        done = subprocess.run([sys.executable, "-m", "scansnap", command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Example" in done.stdout
