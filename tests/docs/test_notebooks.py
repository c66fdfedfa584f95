"""The tutorials as notebooks: made from the .py files, without outputs, and able to run from nothing."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from test_site import hook

import scansnap as ss

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
notebooks = hook("notebooks")


def sources(notebook: dict, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_it_has_the_cells_of_the_tutorial_and_one_that_installs(tutorial: Path) -> None:
    made = json.loads(notebooks.notebook(tutorial))
    text = tutorial.read_text(encoding="utf-8")
    assert made["cells"][0]["source"][0].startswith("# ")
    install, *code = sources(made, "code")
    assert install == "".join(made["cells"][1]["source"]) == notebooks.INSTALL
    assert "\n\n".join(code) in re.sub(r"\n+# %%\n", "\n\n", re.sub(r"\n+(# %% \[markdown\]\n(#.*\n)+)", "", text))
    for cell in code:
        ast.parse(cell)
    assert sum(len(cell.get("outputs", [])) for cell in made["cells"]) == 0
    assert not re.search(r"\]\((?!https?:)[^)]*\.(?:md|py)\b", "\n".join(sources(made, "markdown")))


def test_links_lead_to_the_site_if_it_has_an_address_and_to_notebooks_beside() -> None:
    text = "[a](../theory.md#memory) [b](3_adam.py) [c](https://x.org/y.md)"
    assert notebooks.linked(text, None) == "a (`docs/theory.md`) [b](3_adam.ipynb) [c](https://x.org/y.md)"
    assert notebooks.linked(text, "https://s.org/d/").startswith("[a](https://s.org/d/theory.html#memory) [b](3_adam")


EXECUTE = """
import sys, nbclient, nbformat
nbclient.NotebookClient(nbformat.read(sys.argv[1], as_version=4), timeout=600, kernel_name="python3").execute()
"""


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Executes a notebook where a notebook service's packages are, and scansnap is a wheel that pip can find."""
    folder = tmp_path_factory.mktemp("notebooks")
    copy, links, home = folder / "source", folder / "wheels", folder / "home"
    home.mkdir()
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)

    def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if k.lower().startswith("pip_") or k.lower().endswith("_proxy")}
        if config := os.environ.get("PIP_CONFIG_FILE") or next(iter(Path.home().glob(".config/pip/pip.conf")), None):
            kept["PIP_CONFIG_FILE"] = str(config)
        environment = kept | {"HOME": str(home), "PATH": os.environ["PATH"], "MPLBACKEND": "agg"} | more
        return subprocess.run([str(word) for word in words], cwd=home, env=environment, text=True, capture_output=True)

    def done(*words: object) -> None:
        result = run(*words, CC="false")  # without a compiler the package has no kernels, and needs none
        assert result.returncode == 0, result.stdout + result.stderr

    pip = ("-m", "pip", "--quiet")
    done(sys.executable, *pip, "wheel", "--no-deps", "--no-build-isolation", "-w", links, copy)
    done(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    services = folder / "services"  # what is installed here, without scansnap: torch is too large to install again
    services.mkdir()
    for place in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not place.name.startswith(("scansnap", "__editable__")):
            (services / place.name).symlink_to(place)
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip()
    Path(own, "services.pth").write_text(f"{services}\n", encoding="utf-8")
    done(python, *pip, "install", "-c", ROOT / "constraints.txt", "ipykernel", "nbclient", "nbformat")
    assert run(python, "-c", "import scansnap").returncode != 0  # it is not there yet
    constraints = folder / "constraints.txt"  # the wheel made here, whatever the package index has
    constraints.write_text(f"scansnap=={ss.__version__}\n" + (ROOT / "constraints.txt").read_text(encoding="utf-8"))

    def execute(notebook: str) -> subprocess.CompletedProcess[str]:
        (home / "tutorial.ipynb").write_text(notebook, encoding="utf-8")
        find = f"{links} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        return run(python, "-c", EXECUTE, "tutorial.ipynb", PIP_FIND_LINKS=find, PIP_CONSTRAINT=str(constraints))

    return execute


@pytest.mark.integration
def test_a_notebook_runs_from_nothing(empty_environment: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """The first one passes; with attention that hardly learns, its statements are false and it fails."""
    first = notebooks.notebook(TUTORIALS[0])
    result = empty_environment(first)
    assert result.returncode == 0, result.stderr
    slow = first.replace("eta_z=1.0", "eta_z=0.01")
    assert slow != first
    result = empty_environment(slow)
    assert result.returncode != 0
    assert "AssertionError" in result.stderr
