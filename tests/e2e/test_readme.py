"""What the README shows runs as written."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_python_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("entropy of attention") == 4
    assert (tmp_path / "sweep.zarr").is_dir()


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
