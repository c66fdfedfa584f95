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

import math
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from scansnap.cli import app as cli
from scansnap.cli import console

if find_spec("hypothesis") is not None:  # the tests on a GPU do without it
    from hypothesis import HealthCheck, settings

    _STEADY = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("ci", derandomize=True, **_STEADY)
    settings.register_profile("fuzz", max_examples=500, print_blob=True, **_STEADY)
    settings.load_profile("ci")  # --hypothesis-profile comes later and wins


@pytest.fixture(autouse=True, scope="session")
def no_lines_of_progress() -> None:
    """What a command says must not depend on how fast the machine is."""
    console.SILENT = math.inf


@pytest.fixture(autouse=True)
def signals_of_a_new_process() -> None:
    """Libraries such as Ray take SIGTERM and keep it, and the next test may be about what a program does with it."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The tensors are small: more threads would only wait for each other, and long where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def scansnap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process and an empty folder; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scansnap", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        seen = capsys.readouterr()
        code = stop.value.code or 0
        assert isinstance(code, int)
        return code, seen.out, seen.err

    return call
