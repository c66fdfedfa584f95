"""The lowest version of every dependency that pyproject.toml states, as constraints for pip.

python packaging/lowest.py > constraints-lowest.txt

A test fails where the file and pyproject.toml disagree. Beside them stands what the lowest versions need and do not
say themselves: packages that they ask for without a limit, whose later versions they do not work with.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
BESIDES: dict[str, str] = {}
HEAD = """\
# The lowest stated version of every dependency, for `make test-lowest`; made by packaging/lowest.py.
"""


def stated(project: Path = PROJECT) -> dict[str, str]:
    """Package: lowest version, of the base and of every extra; the highest of them where there are several."""
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    every = [*table["dependencies"], *(one for some in table["optional-dependencies"].values() for one in some)]
    lowest: dict[str, str] = {}
    for requirement in every:
        if requirement.startswith("scansnap["):
            continue
        found = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement)
        if found is None:
            raise SystemExit(f"{requirement} does not state its lowest version as package>=version")
        name, version = found[1].lower(), found[2]
        lowest[name] = max(lowest.get(name, version), version, key=lambda one: [int(part) for part in one.split(".")])
    return lowest


def constraints() -> str:
    """The file."""
    pins = [f"{name}=={version}" for name, version in sorted(stated().items())]
    besides = [f"{name}{limit}" for name, limit in sorted(BESIDES.items())]
    return HEAD + "\n".join([*pins, *(["# What these need, and do not say:"] if besides else []), *besides]) + "\n"


if __name__ == "__main__":
    print(constraints(), end="")
