"""Run the tests on the newest dependencies; summarise the packages that differ from the lock and the tests that fail.

.venv-newest/bin/python packaging/newest.py [PATH…]

Without a path all tests run. The summary is printed, and appended to the file that GITHUB_STEP_SUMMARY names, if any.
The exit code is pytest's. Deprecations of what we call are in pytest's summary of warnings (tests/warning_rules.py).
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def normalized(name: str) -> str:
    """A package's name as the lock writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text: str) -> dict[str, set[str]]:
    """Package: its versions in the lock, which may differ between versions of Python."""
    pins: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w-]+)==([^\s;]+)", text, re.M):
        pins.setdefault(name, set()).add(version)
    return pins


def changes(installed: Mapping[str, str], pins: Mapping[str, set[str]]) -> list[str]:
    """Lines of what is installed and not in the lock, in that version; a local version (+cpu) is the same one."""
    lines = []
    for name, version in sorted(installed.items()):
        if version.partition("+")[0] not in pins.get(name, set()):
            lines.append(f"{name} {' or '.join(sorted(pins.get(name, {'not in the lock'})))} → {version}")
    return lines


def failures(results: Path) -> list[str]:
    """Lines of the tests that failed, from pytest's results, each with the first line of its message."""
    lines = []
    for case in ElementTree.parse(results).iter("testcase"):
        for outcome in case:
            if outcome.tag in ("failure", "error"):
                message = (outcome.get("message") or "").strip().partition("\n")[0]
                lines.append(f"{case.get('classname')}::{case.get('name')}: {message[:200]}")
    return lines


def summary(changed: list[str], failed: list[str], code: int) -> str:
    """The page in Markdown."""
    parts = ["## The newest dependencies", f"{len(changed)} packages differ from the lock, {len(failed)} tests fail."]
    if code and not failed:
        parts.append(f"pytest ended with exit code {code} and no failed test: see its output.")
    for title, lines in (("Failed", failed), ("Changed against the lock", changed)):
        if lines:
            parts += [f"### {title}", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def main(paths: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        words = ["-m", "pytest", "-n", "2", "--dist", "loadfile", "--newest", "--junitxml", str(results), *paths]
        code = subprocess.run([sys.executable, *words], cwd=HERE).returncode
        failed = failures(results) if results.exists() else []
    installed = {normalized(one.name): one.version for one in importlib.metadata.distributions()}
    installed = {name: version for name, version in installed.items() if name not in ("pip", "scansnap")}
    changed = changes(installed, locked((HERE / "constraints.txt").read_text(encoding="utf-8")))
    page = summary(changed, failed, code)
    print(f"\n{page}", flush=True)
    if into := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(into, "a", encoding="utf-8") as file:
            file.write(page)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
