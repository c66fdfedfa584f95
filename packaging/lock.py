"""Renew constraints.txt, the lock: one version of every package that `make` installs, with all they depend on.

python packaging/lock.py [--torch VERSION] [--into constraints.txt]

One resolution by uv for Python 3.11 to 3.14 on Linux, macOS and Windows: of every extra, and of what builds the
package. torch keeps the version of the lock unless another is named, because the documentation's numbers come from it.
The file is written only if every platform finds a wheel of every package.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from install import pip_settings

HERE = Path(__file__).resolve().parent.parent
LOCK = HERE / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin", "x86_64-pc-windows-msvc")
HEAD = """\
# The lock: one version of every package that `make` installs, for Python 3.11 to 3.14 on Linux, macOS and Windows.
# It is a constraints file (`pip install -c constraints.txt …`): a pin installs nothing that nobody asks for.
# `make lock` renews it; torch stays at its version unless `make lock TORCH=…` names another.
"""


def compiled(*words: str, torch: str) -> str:
    """What uv resolves of pyproject.toml with every extra and the build requirements."""
    build = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environment["MACOSX_DEPLOYMENT_TARGET"] = "14.0"  # the oldest macOS for which torch has wheels
    if index := pip_settings().get("index-url"):
        environment["UV_DEFAULT_INDEX"] = index
    with tempfile.TemporaryDirectory() as folder:
        besides, pin = Path(folder, "build.in"), Path(folder, "torch.txt")
        besides.write_text("\n".join(build), encoding="utf-8")
        pin.write_text(f"torch=={torch}\n", encoding="utf-8")
        command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--prerelease", "disallow",
                   "--all-extras", "-c", str(pin), *words, "pyproject.toml", str(besides)]  # fmt: skip
        done = subprocess.run(command, cwd=HERE, env=environment, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def renewed(torch: str) -> str:
    """The file."""
    pins = compiled("--universal", "--python-version", PYTHONS[0], torch=torch)
    if strange := [line for line in pins.splitlines() if not re.match(r"[a-z0-9-]+==[\w.!]+( ;|$)", line)]:
        raise SystemExit(f"not a pin of a public version: {strange}")
    return HEAD + pins


def check(lock: Path, torch: str) -> None:
    """Every Python of every platform finds a wheel of all that the lock names for it."""
    for python in PYTHONS:
        for platform in PLATFORMS:
            print(f"checking Python {python}, {platform}", flush=True)
            compiled("--only-binary", ":all:", "--python-version", python, "--python-platform", platform,
                     "-c", str(lock), torch=torch)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="the version of torch; as the lock has it if left out")
    parser.add_argument("--into", type=Path, default=LOCK)
    given = parser.parse_args()
    if shutil.which("uv") is None:
        raise SystemExit("`make lock` needs uv, which resolves for several platforms at once: pip install uv")
    torch = given.torch or dict(re.findall(r"^([\w-]+)==(\S+)", LOCK.read_text(encoding="utf-8"), re.M))["torch"]
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "constraints.txt")
        lock.write_text(renewed(torch), encoding="utf-8")
        check(lock, torch)
        given.into.write_text(lock.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
