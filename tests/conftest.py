"""What all tests share.

**Property tests** (hypothesis, ``@given``) run under one of two profiles, registered here:

* ``ci``, the default: the inputs follow from the test's own code, so ``make test`` does the same on every machine.
* ``fuzz``: new inputs each time, and more of them. ``make fuzz`` runs all property tests with it, ROUNDS times with new
  seeds; it prints each seed, and ``make fuzz SEED=…`` does that round again. By hand:
  ``pytest -m hypothesis --hypothesis-profile fuzz --hypothesis-seed 7``.

Neither has a deadline or keeps a database of examples. A test decorated with ``@given`` gets the marker ``hypothesis``
by itself (the plugin does it); one that calls a ``@given`` function inside is marked ``@pytest.mark.hypothesis`` by
hand. Give ``@settings`` only what differs from the profile: ``max_examples`` where 100 are too many or too few, never
``derandomize`` or ``deadline``.

**Time**: a test waits for an event, not for a while. Timeouts are for hangs only, at least two minutes, so that no
result depends on how fast or busy the machine is.
"""

from __future__ import annotations

import gc
import math
import os
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import ANY

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: BLAS threads of several processes only wait

import pytest
import torch
import typer

from chromium import browser  # noqa: F401  (a fixture of all tests of pages)
from refusals import Field, Names, assert_refusal
from scansnap.checks import InputError
from scansnap.cli import app as cli
from scansnap.cli import console
from warning_rules import pytest_addoption, pytest_configure  # noqa: F401

if find_spec("hypothesis") is not None:  # the tests on a GPU do without it
    from hypothesis import HealthCheck, settings

    _STEADY = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("ci", derandomize=True, **_STEADY)
    settings.register_profile("fuzz", max_examples=500, print_blob=True, **_STEADY)
    settings.load_profile("ci")  # --hypothesis-profile comes later and wins


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the modules of all tests, half a million objects, out of every later garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the skipped tests by reason, so that nobody takes a skip for a pass."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "unknown"
        for report in terminalreporter.stats.get("skipped", [])
    )
    if reasons:
        terminalreporter.section("skipped tests by reason")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5d}  {reason}")


@pytest.fixture(autouse=True, scope="session")
def no_lines_of_progress() -> Iterator[None]:
    """What a command says must not depend on how fast the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "SILENT", math.inf)
        yield


@pytest.fixture(autouse=True)
def default_signal_handlers() -> None:
    """Restore the handlers of a new process: Ray replaces SIGTERM's, and a shell's background job ignores SIGINT."""
    for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) != default:
            signal.signal(number, default)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The tensors are small: more threads would only wait for each other, and long where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def command_tree() -> Callable[..., Any]:
    """The commands with their options; to build them takes longer than most commands that are refused."""
    return typer.main.get_command(cli.commands())


@pytest.fixture
def scansnap(
    command_tree: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process and an empty folder; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "commands", lambda: command_tree)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scansnap", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        seen = capsys.readouterr()
        code = stop.value.code or 0
        assert isinstance(code, int)
        return code, seen.out, seen.err

    return call


@pytest.fixture
def run_as_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., str]:
    """Run a snippet, or a script with its options, as ``python`` would in an empty folder; returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(program: str | Path, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(program), *options])
        if isinstance(program, Path):
            monkeypatch.syspath_prepend(program.parent)
            runpy.run_path(str(program), run_name="__main__")
        else:
            exec(compile(program, "snippet", "exec"), {"__name__": "__main__"})
        printed = capsys.readouterr()
        sizes = [line for line in printed.err.splitlines() if line.startswith("scansnap probe: ")]  # of a probe's file
        assert printed.err.splitlines() == sizes
        gc.collect()  # what its names held, such as the claim of a file
        return printed.out

    return call


@pytest.fixture
def refuses(
    scansnap: Callable[..., tuple[int, str, str]], command_tree: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, InputError]]:
    """Bad input on the command line: exit code 2, no stdout, one line on stderr; returns (stderr, the error)."""
    caught = list[InputError]()

    def recording(**options: Any) -> Any:
        try:
            return command_tree(**options)
        except InputError as error:
            caught.append(error)
            raise

    def call(field: Field, *words: object, value: Any = ANY, names: Names = ()) -> tuple[str, InputError]:
        caught.clear()
        with monkeypatch.context() as patch:
            patch.setattr(cli, "commands", lambda: recording)
            code, out, err = scansnap(*words)
        assert (code, out) == (2, ""), err
        [line] = [line for line in err.splitlines() if not line.startswith(("Corpus(", "Note: "))]
        assert line.startswith("Error: ")
        [error] = caught
        assert_refusal(error, field, value, names=names)
        error.__traceback__ = None  # it keeps what the command held, such as the claim of a file
        gc.collect()
        return err, error

    return call
