"""Theory, reading and plotting results and building the page need no torch: NumPy, SciPy, xarray and matplotlib do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import scansnap as ss

BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("torch is not installed", name="torch")
sys.meta_path.insert(0, Blocked())
import scansnap as ss
"""

USES = {
    "theory": "assert ss.theory.h(10.0, eta_y=1.0, vocab_size=100) > 0; ss.theory.crossover",
    "classes": "ss.SequenceClasses.syn_medium(n_queries=3)",
    "results": "data = ss.load('run.zarr'); ss.save(data, 'again.zarr'); assert data.loss.shape; ss.load('run.nc')",
    "measure": "ss.measure.snap_time(ss.load('run.zarr'))",
    "plot": "ss.plot(ss.load('run.zarr'))",
    "page": "from scansnap.explorer.build import explorer_html; assert 'html' in explorer_html()",
    "command": "from scansnap.cli.app import commands; commands()(['info', 'run.zarr'], standalone_mode=False)",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, steps=20)
    folder = tmp_path_factory.mktemp("results")
    ss.save(data, folder / "run.zarr")
    ss.save(data, folder / "run.nc")
    return folder


def without_torch(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], cwd=folder, capture_output=True, text=True)


def test_it_works_without_torch(folder: Path) -> None:
    """In one process, as an import is what takes the time."""
    code = "".join(f"print({name!r}); {line}\n" for name, line in USES.items())
    result = without_torch(code, folder)
    assert result.returncode == 0, result.stdout.splitlines()[-1] + result.stderr


def test_training_without_torch_says_what_is_missing(folder: Path) -> None:
    """The control: torch really is out of reach."""
    result = without_torch("ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, steps=1)", folder)
    assert result.returncode != 0
    assert "torch is not installed" in result.stderr
    result = without_torch(
        "import sys; sys.argv[1:] = ['run', '--steps', '1']; from scansnap.cli.app import main; main()", folder
    )
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert "pip install torch" in result.stderr
