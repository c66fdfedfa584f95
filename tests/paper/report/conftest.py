"""A reproduction made by the command, for all tests that look at its files."""

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
from least_entropy import any_least_entropy

from scansnap.cli import app as cli
from scansnap.paper.figures import fig6


@pytest.fixture(scope="session")
def reproduce():
    """``scansnap reproduce`` in this process: one of its own would only load the same libraries for seconds."""

    def run(*arguments, cwd=None):
        words = ["scansnap", "reproduce", *map(str, arguments)]
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(StringIO()) as out,
            redirect_stderr(StringIO()) as err,
        ):
            patch.setattr(sys, "argv", words)
            if cwd is not None:
                patch.chdir(cwd)
            with pytest.raises(SystemExit) as stop:
                cli.main()
        return subprocess.CompletedProcess(words, stop.value.code or 0, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory, reproduce):
    """Two cheap targets and the contract's figure, made by the command."""
    out = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig6, "least_entropy", lambda *_: any_least_entropy())
        done = reproduce("fig6", "fig3", "table1", "--quick", "--device", "cpu", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done
