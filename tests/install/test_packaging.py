"""What a release says of itself in several places is the same in all of them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import scansnap as ss

with suppress(ImportError):
    import setuptools  # noqa: F401  which replaces distutils, and must do so before a test imports it

ROOT = Path(ss.__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def test_the_version_is_declared_once() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ss.__version__)
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "scansnap.__version__"}


def test_the_citation_is_of_the_newest_entry_of_the_changelog() -> None:
    cited = re.search(r"^version: (\S+)\ndate-released: (\S+)$", read("CITATION.cff"), re.M)
    newest = re.search(r"^## (\d\S*)\W+(\d{4}-\d\d-\d\d)\)?$", read("CHANGELOG.md"), re.M)
    assert cited is not None
    assert newest is not None
    assert cited.groups() == newest.groups()


@pytest.mark.parametrize("version", ["1.2.3", "1.2.4"])
def test_packages_are_only_made_of_a_version_that_both_name(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    script = runpy.run_path(str(ROOT / "packaging" / "try_wheel.py"))
    (tmp_path / "src/scansnap").mkdir(parents=True)
    (tmp_path / "src/scansnap/__init__.py").write_text(f'__version__ = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-01-02\n\n## 1.2.4 - 2025-01-02\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.2.3\ndate-released: 2026-01-02\n")
    check = script["names_the_version"]
    check.__globals__["HERE"] = tmp_path
    if version == "1.2.3":
        check()
    else:
        with pytest.raises(SystemExit, match=r"version 1\.2\.4: expected"):
            check()


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
    assert {"torch", "numpy", "typer", "transformers", "ray"} <= set(lowest["stated"]())


def test_wheels_are_made_where_torch_has_them() -> None:
    config = PROJECT["tool"]["cibuildwheel"]
    assert config["environment"] == {"SCANSNAP_KERNELS": "required"}
    assert "musllinux" in config["skip"]
    assert config["macos"]["archs"] == "arm64"
    assert len(config["build"].split()) == 1  # one wheel of a platform fits every Python


PINS = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
PYTHONS = ("3.11.0", "3.11.9", "3.12.0", "3.13.0", "3.14.0")
PLATFORMS = (
    ("linux", "Linux", "x86_64", "posix"),
    ("linux", "Linux", "aarch64", "posix"),
    ("darwin", "Darwin", "arm64", "posix"),
    ("win32", "Windows", "AMD64", "nt"),
)


def pinned(python: str, platform: tuple[str, str, str, str]) -> dict[str, str]:
    """Package: version that the lock has for one Python on one platform."""
    system, name, machine, os_name = platform
    environment = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python,
                   "sys_platform": system, "platform_system": name, "platform_machine": machine, "os_name": os_name,
                   "implementation_name": "cpython", "platform_python_implementation": "CPython"}  # fmt: skip
    found: dict[str, str] = {}
    for line in map(Requirement, PINS):
        if line.marker is None or line.marker.evaluate(environment):
            assert line.name not in found, f"two pins of {line.name} for Python {python} on {system}"
            found[line.name] = str(line.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: f"{platform[0]}-{platform[2]}")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_a_version_of_every_requirement(python: str, platform: tuple[str, str, str, str]) -> None:
    table = PROJECT["project"]
    stated = [*PROJECT["build-system"]["requires"], *table["dependencies"],
              *(one for extra in table["optional-dependencies"].values() for one in extra)]  # fmt: skip
    pins = pinned(python, platform)
    for one in map(Requirement, stated):
        if one.name != "scansnap":
            assert one.specifier.contains(pins[canonicalize_name(one.name)]), one


def test_the_lock_has_all_that_comes_with_them(pytestconfig: pytest.Config) -> None:
    """Also what the requirements require, as far as it is installed here."""
    if pytestconfig.getoption("--newest"):
        pytest.skip("the newest versions may need other packages")
    names = {Requirement(line).name for line in PINS}
    seen: set[str] = set()
    queue = [("scansnap", frozenset(PROJECT["project"]["optional-dependencies"]))]
    while queue:
        name, extras = queue.pop()
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for one in map(Requirement, requires):
            asked = any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)) if one.marker else True
            if asked and (child := canonicalize_name(one.name)) not in seen:
                seen.add(child)
                queue.append((child, frozenset(one.extras)))
    assert len(seen) > 80
    assert seen - names == {"scansnap"}


def test_the_lock_names_versions_and_no_place() -> None:
    assert len(PINS) > 200
    strange = [line for line in PINS if not re.fullmatch(r"[a-z0-9-]+==[\d.]+(post\d+)?( ; [^/@]+)?", line)]
    assert strange == []
    assert not re.search(r"://|index|find-links|\.org|\.com|/", read("constraints.txt"))


def commands(target: str, *words: str, folder: Path) -> str:
    """What make would do from nothing."""
    if shutil.which("make") is None:
        pytest.skip("make is not here")
    environment = {name: value for name, value in os.environ.items() if name not in ("CPU", "UV", "TORCH", "MAKEFLAGS")}
    given = ["make", "-n", f"VENV={folder}/env", *words, target]
    return subprocess.run(given, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["install", "test", "reproduce", "docs", "wheel"])
def test_make_installs_the_lock_and_nothing_else(target: str, tmp_path: Path) -> None:
    done = commands(target, folder=tmp_path)
    installed = [line for line in done.splitlines() if "install.py" in line]
    assert installed
    assert all("-c constraints.txt" in line and "--cpu" not in line for line in installed)
    assert not re.search(r"(pip|uv) +install|-m +pip", done)
    if target in ("install", "wheel"):
        assert "--cpu" in commands(target, "CPU=1", folder=tmp_path)


def test_the_newest_are_asked_for_without_the_lock(tmp_path: Path) -> None:
    done = commands("test-newest", "TORCH=2.13.0", folder=tmp_path)
    assert re.search(r"install\.py .*--newest --torch 2\.13\.0", done)
    assert "constraints" not in done


def test_nothing_else_installs() -> None:
    """Workflows install by make; of the scripts only install.py and try_wheel.py call pip, the latter with the lock."""
    for file in (".github/workflows/ci.yml", ".github/workflows/release.yml"):
        assert not re.search(r"\bpip\b|uv (pip|sync)", read(file)), file
    for path in (ROOT / "packaging").glob("*.py"):
        if path.name not in ("install.py", "try_wheel.py"):
            assert '"pip", "install"' not in path.read_text(encoding="utf-8"), path.name
    script = read("packaging", "try_wheel.py")
    (only,) = re.findall(r'"pip", "install".*', script)
    assert '"-c", constraints' in only
    assert '"--constraints", type=Path, default=HERE / "constraints.txt"' in script


def test_every_python_of_the_lock_is_classified() -> None:
    classified = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.M)
    assert classified == list(dict.fromkeys(python.rpartition(".")[0] for python in PYTHONS))


@pytest.mark.parametrize(("file", "targets"), [("ci.yml", {"test", "docs", "wheel"}), ("release.yml", {"wheel"})])
def test_the_workflows_call_what_is_there_to_make(file: str, targets: set[str]) -> None:
    called = set(re.findall(r"run: make (?:[A-Z]+=\S+ )*([a-z]+)", read(".github", "workflows", file), re.M))
    assert targets <= called
    there = {name for line in re.findall(r"^([a-z][a-z -]*):", read("Makefile"), re.M) for name in line.split()}
    assert called <= there
