"""A warning fails a test if it is ours and only then: each kind in a separate run of pytest, with a control."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from warning_rules import our_modules, rules

OTHER = """
import warnings

def in_its_own_code():
    warnings.warn("news of the package")

def of_its_caller():
    warnings.warn("use the new name", DeprecationWarning, stacklevel=2)

def of_scansnap(category):
    code = "import warnings; warnings.warn('ours', category)"
    exec(code, {"__name__": "scansnap.measure.entropy", "category": category})
"""
CASES = """
import warnings
import numpy
import other

def test_other():
    other.in_its_own_code()

def test_nothing():
    pass

def test_deprecated_call():
    other.of_its_caller()

def test_numbers():
    numpy.mean([])

def test_own():
    warnings.warn("ours")

def test_scansnap():
    other.of_scansnap(UserWarning)

def test_scansnap_uses_a_deprecated_name():
    other.of_scansnap(FutureWarning)

def test_unclosed():
    open(__file__)
"""
OURS = {"own", "scansnap", "unclosed"}


@pytest.mark.parametrize(
    ("options", "failing"),
    [
        ([], OURS | {"deprecated_call", "scansnap_uses_a_deprecated_name", "numbers"}),
        (["--newest"], OURS),
    ],
    ids=["test", "test-newest"],
)
def test_only_our_warnings_are_errors(options: list[str], failing: set[str], tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "test_cases.py").write_text(CASES)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = ["-m", "pytest", "-q", "-p", "warning_rules", "-p", "no:xdist", "--junitxml", "results.xml", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    results = {case.get("name", "").removeprefix("test_"): len(case) > 0
               for case in ElementTree.parse(tmp_path / "results.xml").iter("testcase")}  # fmt: skip
    assert len(results) == CASES.count("def test_"), done.stdout
    assert {name for name, failed in results.items() if failed} == failing
    assert "news of the package" in done.stdout  # reported all the same


def test_this_run_follows_the_rules(pytestconfig: pytest.Config) -> None:
    filters = pytestconfig.getini("filterwarnings")
    expected = rules(pytestconfig.getoption("--newest"))
    assert filters[-len(expected) :] == expected
    assert our_modules().count(":") == 0
