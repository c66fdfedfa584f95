"""Install requirements into the environment of the Python that runs this, in versions that a file of constraints names.

.venv/bin/python packaging/install.py [-c FILE] [--newest] [--torch VERSION] [--cpu] [--uv PROGRAM] REQUIREMENT…

By uv, where there is one that finds what pip would find (the settings of pip are handed over to it), by pip otherwise.
What builds the package is installed first, under the same constraints. A torch that is visible here and that no earlier
call has installed stays, whatever its version: `-c` then leaves out the pins that contradict it. --cpu takes torch from
PyTorch's index of builds for CPUs; --newest upgrades everything, but for torch if --torch names its version.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from environment import given_torch

HERE = Path(__file__).resolve().parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIP = [sys.executable, "-m", "pip"]
# settings of pip that do not change what it finds; with any other that uv is not given, pip does the work
HARMLESS = {
    "break-system-packages", "cache-dir", "config-file", "default-timeout", "disable-pip-version-check", "no-cache-dir",
    "no-color", "no-input", "no-python-version-warning", "no-warn-script-location", "prefer-binary", "progress-bar",
    "quiet", "require-virtualenv", "retries", "root-user-action", "timeout", "verbose",
}  # fmt: skip
HANDED_OVER = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "cert": "SSL_CERT_FILE",
               "trusted-host": "UV_INSECURE_HOST", "proxy": "ALL_PROXY"}  # fmt: skip


def pip_settings() -> dict[str, str]:
    """What the user has set for `pip install`, in files and in the environment, by name."""
    if importlib.util.find_spec("pip") is None:  # an environment that uv made
        subprocess.run([sys.executable, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run([*PIP, "config", "list"], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", listed, re.M)
    found.sort(key=lambda setting: ("global", "install", ":env:").index(setting[0]))  # the last one decides
    return {name: ast.literal_eval(value) for _, name, value in found}


def uv_command(uv: str, settings: dict[str, str]) -> tuple[list[str], dict[str, str]] | None:
    """The command and the environment that make uv find what pip would; None where it cannot."""
    path = shutil.which(uv) if uv else None
    if path is None or settings.keys() - HARMLESS - HANDED_OVER.keys() - {"find-links"}:
        return None
    if subprocess.run([path, "--version"], capture_output=True).returncode:
        return None
    environment = {HANDED_OVER[name]: " ".join(settings[name].split()) for name in settings.keys() & HANDED_OVER.keys()}
    environment["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip: the best of all indexes, not of the first
    links = [word for link in settings.get("find-links", "").split() for word in ("--find-links", link)]
    return [path, "pip", "install", "--python", sys.executable, *links], environment


def torch_to_keep() -> importlib.metadata.Distribution | None:
    """The torch that is visible here and that we have not installed ourselves."""
    torch = given_torch()
    inside = torch is not None and Path(str(torch.locate_file(""))).resolve().is_relative_to(Path(sys.prefix).resolve())
    ours = inside and next(Path(sys.prefix).glob("installed*"), None) is not None
    return None if ours else torch


def compatible(pins: str, torch: importlib.metadata.Distribution) -> str:
    """The constraints without those that contradict torch or what it asks for; torch itself stays as it is."""
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name

    def requirements(package: importlib.metadata.Distribution, seen: set[str]) -> Iterator[Requirement]:
        for text in package.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement
                if (name := canonicalize_name(requirement.name)) not in seen:
                    try:
                        there = importlib.metadata.distribution(name)
                    except importlib.metadata.PackageNotFoundError:
                        continue
                    yield from requirements(there, seen | {name})

    asked = [(canonicalize_name(one.name), one.specifier) for one in requirements(torch, {"torch"})]
    lines = [f"torch=={torch.version}"]
    for line in pins.splitlines():
        name, _, version = line.partition(";")[0].strip().partition("==")
        if name != "torch" and all(specifier.contains(version) for other, specifier in asked if other == name):
            lines.append(line)
    return "\n".join(lines) + "\n"


def install(wanted: list[str], pins: str, *, newest: bool, cpu: bool, uv: str) -> None:
    """First what builds the package, then what is wanted."""
    build = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    settings = pip_settings()
    torch = torch_to_keep()
    command, environment = (None if torch else uv_command(uv, settings)) or ([*PIP, "install", "--no-compile"], {})
    print(f"Installing {' '.join(wanted)} with {'pip' if command[0] == sys.executable else 'uv'}", flush=True)
    if torch:  # uv does not see packages outside the environment
        print(f"torch {torch.version} in {torch.locate_file('')} is used as it is", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text(compatible(pins, torch) if torch else pins, encoding="utf-8")

        def call(*words: str) -> None:
            all_words = [*command, "--quiet", "-c", str(constraints), *words]
            if subprocess.run(all_words, env={**os.environ, **environment}).returncode:
                by_pip = "" if command[0] == sys.executable else "; make UV= … installs with pip"
                raise SystemExit(f"{' '.join(words)} could not be installed{by_pip}")

        if cpu and not torch:
            call("--no-deps", "--index-url", CPU_INDEX, "torch")
        upgrade = ["--upgrade"] if newest else []
        call(*upgrade, *build)
        editable = [word for one in wanted for word in (("-e", one) if one.startswith(".") else (one,))]
        call(*upgrade, "--no-build-isolation", *editable)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="+", metavar="REQUIREMENT", help="a folder is installed as it is, editable")
    parser.add_argument("-c", dest="constraints", type=Path)
    parser.add_argument("--torch", metavar="VERSION", help="this version of torch")
    parser.add_argument("--newest", action="store_true", help="upgrade everything")
    parser.add_argument("--cpu", action="store_true", help="torch from PyTorch's own index of builds for CPUs")
    parser.add_argument("--uv", default="uv", help="an empty word: always by pip")
    given = parser.parse_args()
    pins = given.constraints.read_text(encoding="utf-8") if given.constraints else ""
    if given.torch:
        pins += f"torch=={given.torch}\n"
    install(given.wanted, pins, newest=given.newest, cpu=given.cpu, uv=given.uv)
