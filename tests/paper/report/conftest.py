"""A reproduction made by the command, for all tests that look at its files."""

import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def reproduce():
    """``scansnap reproduce`` in a process of its own."""

    def run(*arguments, **options):
        command = [sys.executable, "-m", "scansnap", "reproduce", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory, reproduce):
    """Two cheap targets and the contract's figure, made by the command."""
    out = tmp_path_factory.mktemp("reproduced")
    done = reproduce("fig6", "fig3", "table1", "--quick", "--device", "cpu", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done
