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


# the control: torch really is out of reach, and a command that needs it says what to install
CONTROL = """
try:
    ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, steps=1)
except ModuleNotFoundError as error:
    print(error)
from scansnap.cli.app import main
sys.argv[1:] = ["run", "--steps", "1"]
main()
"""


def test_it_works_without_torch_and_training_says_what_is_missing(folder: Path) -> None:
    """In one process, as an import is what takes the time."""
    code = BLOCK + "".join(f"{line}\nprint({name!r})\n" for name, line in USES.items()) + CONTROL
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    printed = [line for line in done.stdout.splitlines() if line in {*USES, "torch is not installed"}]
    assert printed == [*USES, "torch is not installed"], done.stderr
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "pip install torch" in done.stderr
