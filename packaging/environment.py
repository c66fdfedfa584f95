"""Create a virtual environment that uses the torch of the Python that creates it, if that has one.

PYTHON packaging/environment.py FOLDER

Without torch the environment is an ordinary, empty one. With a torch that the package works with, the folder of torch
is on the path of the environment, after its own packages, so that packaging/install.py finds torch and leaves it alone.
`--system-site-packages` would not do: it shows nothing of a PYTHON that is in a virtual environment itself.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them: 2.13.0+cpu is (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))


def given_torch() -> importlib.metadata.Distribution | None:
    """The torch that this Python has, unless it is older than pyproject.toml allows."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest = next(one.partition(">=")[2] for one in project["dependencies"] if one.startswith("torch>="))
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    return torch if release(torch.version) >= release(lowest) else None


def create(folder: Path) -> None:
    """The environment; where this Python has torch, the folder that torch is in is the last on its path."""
    torch = given_torch()
    venv.create(folder, with_pip=True, symlinks=sys.platform != "win32")
    if torch is not None:
        place = str(folder.resolve())
        paths = sysconfig.get_paths(sysconfig.get_preferred_scheme("prefix"), {"base": place, "platbase": place})
        link = Path(paths["purelib"], "given-torch.pth")
        link.write_text(f"{Path(str(torch.locate_file(''))).resolve()}\n", encoding="utf-8")


if __name__ == "__main__":
    create(Path(sys.argv[1]))
