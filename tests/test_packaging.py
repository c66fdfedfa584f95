"""What a release says of itself in several places is the same in all of them."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss

ROOT = Path(ss.__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def test_the_version_is_declared_once() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ss.__version__)
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "scansnap.__version__"}


def test_the_citation_and_the_changelog_are_of_this_version() -> None:
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", read("CITATION.cff"), re.M))
    newest = re.search(r"^## (\S+) \((.+)\)$", read("CHANGELOG.md"), re.M)
    assert newest is not None
    assert (cited["version"], cited["date-released"]) == (newest[1], newest[2]) == (ss.__version__, newest[2])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2])


def test_python_m_says_the_version() -> None:
    words = [sys.executable, "-m", "scansnap", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == f"scansnap {ss.__version__}\n"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """setup.py, which does nothing when it is only read."""
    pytest.importorskip("setuptools", minversion="77")
    return runpy.run_path(str(ROOT / "setup.py"))


@pytest.mark.parametrize(
    ("machine", "target", "arch_flags", "expected"),
    [
        ("x86_64", "linux-x86_64", "", {"default", "avx2", "avx512"}),
        ("AMD64", "win-amd64", "", {"default", "avx2", "avx512"}),
        ("x86_64", "macosx-10.13-x86_64", "-arch x86_64", {"default", "avx2", "avx512"}),
        ("aarch64", "linux-aarch64", "", {"default"}),
        ("arm64", "macosx-11.0-arm64", "-arch arm64", {"default"}),
        ("arm64", "macosx-10.13-universal2", "", {"default"}),
        ("x86_64", "macosx-10.13-universal2", "", {"default"}),  # both machines in one file
        ("x86_64", "macosx-11.0-arm64", "-arch arm64", {"default"}),  # for the other machine
        ("arm64", "macosx-10.13-x86_64", "-arch x86_64", {"default"}),
    ],
)
def test_no_machine_is_given_instructions_of_another(
    script: dict[str, Any], machine: str, target: str, arch_flags: str, expected: set[str]
) -> None:
    sets = script["instruction_sets"](machine, target, arch_flags)
    assert set(sets) == expected
    assert sets["default"] == []  # the base of each machine, which every one of its kind has


def test_every_kernel_is_built_for_every_instruction_set(script: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-aarch64")
    built = {one.name: one.extra_compile_args for one in script["kernels"]()}
    sources = {path.stem for path in (ROOT / "src/scansnap/kernels/cpu").glob("*.c")}
    assert set(built) == {f"scansnap.kernels.cpu._{source}_default" for source in sources}
    assert not any(flag.startswith("-m") for flags in built.values() for flag in flags)
    assert "-ffp-contract=off" in built["scansnap.kernels.cpu._sampling_default"]  # or its numbers are not torch's


def test_kernels_that_must_be_there_are_not_optional(script: dict[str, Any], monkeypatch: Any) -> None:
    for said, optional in (("required", False), ("optional", True)):
        monkeypatch.setenv("SCANSNAP_KERNELS", said)
        assert {one.optional for one in script["kernels"]()} == {optional}


def test_the_lowest_versions_are_those_stated() -> None:
    lowest = runpy.run_path(str(ROOT / "packaging/lowest.py"))
    assert read("constraints-lowest.txt") == lowest["constraints"]()
    assert {"torch", "numpy", "typer", "fastapi", "transformers", "ray"} <= set(lowest["stated"]())


def test_wheels_are_made_where_torch_has_them() -> None:
    config = PROJECT["tool"]["cibuildwheel"]
    assert config["environment"] == {"SCANSNAP_KERNELS": "required"}
    assert "musllinux" in config["skip"]
    assert config["macos"]["archs"] == "arm64"
    assert len(config["build"].split()) == 1  # one wheel of a platform fits every Python


@pytest.mark.parametrize(("file", "commands"), [("ci.yml", {"test", "docs", "wheel"}), ("release.yml", {"wheel"})])
def test_the_workflows_call_what_is_there_to_make(file: str, commands: set[str]) -> None:
    called = set(re.findall(r"run: make ([a-z]+)(?: #.*)?$", read(".github", "workflows", file), re.M))
    assert commands <= called
    targets = {name for line in re.findall(r"^([a-z][a-z -]*):", read("Makefile"), re.M) for name in line.split()}
    assert called <= targets
