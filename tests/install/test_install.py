"""make installs the versions of the lock, by uv or pip, and leaves a torch that is already there as it is."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "packaging"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """packaging/install.py with what it calls recorded in ``calls`` in place of being done."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = runpy.run_path(str(SCRIPTS / "install.py"))
    calls: list[SimpleNamespace] = []

    def run(words: list[str], env: dict[str, str] | None = None, **more: object) -> SimpleNamespace:
        pins = Path(words[words.index("-c") + 1]).read_text() if "-c" in words else ""
        calls.append(SimpleNamespace(words=words, environment=env or {}, pins=pins))
        return SimpleNamespace(returncode=0)

    variables = names["install"].__globals__
    monkeypatch.setitem(variables, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setitem(variables, "shutil", SimpleNamespace(which=lambda name: f"/bin/{name}"))
    monkeypatch.setitem(variables, "pip_settings", dict)
    monkeypatch.setitem(variables, "torch_to_keep", lambda: None)
    return SimpleNamespace(**names, calls=calls, set=lambda name, value: monkeypatch.setitem(variables, name, value))


def install(script: SimpleNamespace, pins: str = "torch==2.13.0\n", **options: Any) -> list[SimpleNamespace]:
    script.install([".[dev]"], pins, **{"newest": False, "cpu": False, "uv": "uv", **options})
    return [call for call in script.calls if "install" in call.words]


@pytest.mark.parametrize("uv", ["uv", ""])
def test_the_build_requirements_come_first_and_all_is_locked(script: SimpleNamespace, uv: str) -> None:
    build, package = install(script, uv=uv)
    assert (build.words[0] == "/bin/uv") == bool(uv)
    assert build.words[-1].startswith("setuptools>=")
    assert package.words[-3:] == ["--no-build-isolation", "-e", ".[dev]"]
    assert build.pins == package.pins == "torch==2.13.0\n"
    assert "pytorch.org" not in str(script.calls)  # the default never asks PyTorch's index


def test_cpu_takes_torch_and_nothing_else_from_pytorch(script: SimpleNamespace) -> None:
    torch, *others = install(script, cpu=True)
    assert torch.words[-4:] == ["--no-deps", "--index-url", script.CPU_INDEX, "torch"]
    assert torch.pins == "torch==2.13.0\n"
    assert len(others) == 2
    assert script.CPU_INDEX not in str([call.words for call in others])


def test_uv_gets_the_settings_of_pip(script: SimpleNamespace) -> None:
    settings = {"find-links": "/wheels\nmore", "extra-index-url": "a\nb", "cert": "/c.pem", "timeout": "9"}
    script.set("pip_settings", lambda: settings)
    call = install(script)[0]
    assert call.words[:9] == ["/bin/uv", "pip", "install", "--python", sys.executable, "--find-links", "/wheels",
                              "--find-links", "more"]  # fmt: skip
    given = {name: call.environment.get(name) for name in ("UV_INDEX", "SSL_CERT_FILE", "UV_INDEX_STRATEGY")}
    assert given == {"UV_INDEX": "a b", "SSL_CERT_FILE": "/c.pem", "UV_INDEX_STRATEGY": "unsafe-best-match"}


@pytest.mark.parametrize("settings", [{"no-index": "1"}, {"only-binary": ":all:"}, {"constraint": "mine.txt"}])
def test_a_setting_that_uv_cannot_be_given_leaves_the_work_to_pip(
    script: SimpleNamespace, settings: dict[str, str]
) -> None:
    script.set("pip_settings", lambda: settings)
    assert {call.words[0] for call in install(script)} == {sys.executable}


def test_without_uv_pip_does_it(script: SimpleNamespace) -> None:
    script.set("shutil", SimpleNamespace(which=lambda name: None))
    assert {call.words[0] for call in install(script)} == {sys.executable}


def test_pip_settings_of_the_environment_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pip", reason="pip itself lists the settings")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    (tmp_path / "pip.conf").write_text("[global]\nfind-links = a\nindex-url = i\n[install]\nindex-url = j\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", "b c")
    settings = runpy.run_path(str(SCRIPTS / "install.py"))["pip_settings"]()
    assert (settings["find-links"], settings["index-url"]) == ("b c", "j")


def wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    """A wheel with metadata and an empty module."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


LOOK = """
import importlib.metadata as m, json
print(json.dumps({name: [m.version(name), str(m.distribution(name).locate_file(""))] for name in ("torch", "helper")}))
"""


@pytest.mark.parametrize("given", ["2.9.1+mine", "2.5.0", None], ids=["torch", "too old", "none"])
def test_a_torch_that_is_there_stays(given: str | None, tmp_path: Path) -> None:
    """The whole way, with wheels made here: pip installs from a folder into an environment made by a Python with torch.

    That torch needs another helper than the lock has. An environment without one is the control.
    """
    links, python = tmp_path / "links", tmp_path / "given" / "bin" / "python"
    links.mkdir()
    wheel(links, "setuptools", "84.0")
    wheel(links, "torch", "2.13.0", "helper")
    wheel(links, "helper", "1.0")
    wheel(links, "helper", "2.0")
    wheel(links, "package", "1.0", "torch>=2.6", "helper")
    (tmp_path / "lock.txt").write_text("# a comment\nsetuptools==84.0\ntorch==2.13.0\nhelper==2.0\n")
    venv.create(python.parents[1], symlinks=True)
    if given:
        site = next(python.parents[1].glob("lib/python*/site-packages"))
        wheel(tmp_path, "torch", given, "helper<2")
        zipfile.ZipFile(tmp_path / f"torch-{given}-py3-none-any.whl").extractall(site)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_CONFIG_FILE": os.devnull}
    new = tmp_path / "new" / "bin" / "python"
    for words in ([python, SCRIPTS / "environment.py", tmp_path / "new"],
                  [new, SCRIPTS / "install.py", "-c", tmp_path / "lock.txt", "package"]):  # fmt: skip
        done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(subprocess.run([new, "-c", LOOK], capture_output=True, text=True, check=True).stdout)
    mine = given == "2.9.1+mine"
    assert seen["torch"][0] == (given if mine else "2.13.0")
    assert Path(seen["torch"][1]).is_relative_to(tmp_path / ("given" if mine else "new"))
    assert seen["helper"][0] == ("1.0" if mine else "2.0")


def test_a_torch_that_make_installed_follows_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = runpy.run_path(str(SCRIPTS / "install.py"))
    there = SimpleNamespace(version="2.12.0", locate_file=lambda _: tmp_path / "lib")
    monkeypatch.setitem(names["torch_to_keep"].__globals__, "given_torch", lambda: there)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert names["torch_to_keep"]() is there
    (tmp_path / "installed-docs").touch()
    assert names["torch_to_keep"]() is None
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "elsewhere"))
    assert names["torch_to_keep"]() is there


def test_the_summary_of_test_newest(tmp_path: Path) -> None:
    names = runpy.run_path(str(SCRIPTS / "newest.py"))
    pins = names["locked"]("# x\na==1.0\nb==1 ; python_full_version < '3.12'\nb==2 ; python_full_version >= '3.12'\n")
    changed = names["changes"]({"a": "1.0+cpu", "b": "3", "c": "1"}, pins)
    assert changed == ["b 1 or 2 → 3", "c not in the lock → 1"]
    (tmp_path / "results.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.t" name="good"/><testcase classname="tests.t" name="left">'
        '<skipped/></testcase><testcase classname="tests.t" name="bad"><failure message="E: no&#10;more"/></testcase>'
        "</testsuite></testsuites>"
    )
    failed = names["failures"](tmp_path / "results.xml")
    assert failed == ["tests.t::bad: E: no"]
    page = names["summary"](changed, failed, 1)
    assert all(f"- {line}" in page for line in (*changed, *failed))
    assert "2 packages differ from the lock, 1 tests fail" in page
