"""Ctrl-C and SIGTERM at points all over a sweep: the command ends, and the rest is done by --resume."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sweeps import contents, write

import scansnap as package
from scansnap.interrupt import DelayedInterrupt
from scansnap.sweep import backends
from scansnap.sweep.config import read
from scansnap.sweep.run import prepare, run

OWN = str(Path(package.__file__).parent)
TOML = """
[classes]
preset = "syn-small"
[grid]
eta_z = [1, 2, 3]
ratio = 1
[run]
steps = 3
optimizer = "adam"
[groups]
runs = 1
"""
POINTS = 8


@contextmanager
def calls_of_ours(seen: Callable[[FrameType], None]) -> Iterator[None]:
    """Each call of a function of the package while groups are run is reported."""
    execute = backends.run_locally

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OWN):
            sys.setprofile(None)  # what ``seen`` does is not reported
            try:
                seen(frame)
            finally:
                sys.setprofile(look)

    def profiled(*given: Any) -> Iterator[Any]:
        assert threading.current_thread() is threading.main_thread()
        sys.setprofile(look)
        try:
            yield from execute(*given)
        finally:
            sys.setprofile(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "run_locally", profiled)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("whole")
    assert run(prepare(read(write(folder, TOML)), folder / "s.zarr", device="cpu")).complete
    return contents(folder / "s.zarr")


@pytest.fixture
def sweep(scansnap, tmp_path):
    write(tmp_path, TOML)
    return lambda *words: scansnap("sweep", "sweep.toml", "--device", "cpu", *words)


def test_a_signal_anywhere_in_a_group_ends_the_sweep(sweep, whole, tmp_path):
    n_calls = count()
    with calls_of_ours(lambda frame: next(n_calls)):
        assert sweep("--out", "counted.zarr")[0] == 0
    total = next(n_calls)
    for i in range(POINTS):
        number = (signal.SIGINT, signal.SIGTERM)[i % 2]
        at, calls, late = total * i // POINTS, count(), list[str]()

        def seen(frame: FrameType, at: int = at, number: int = number, calls: Any = calls, late: Any = late) -> None:
            call = next(calls)
            if call == at:
                signal.raise_signal(number)
            elif call > at and frame.f_code is backends.run_group.__code__:
                late.append(frame.f_code.co_name)

        store = tmp_path / f"{i}.zarr"
        with calls_of_ours(seen):
            code, out, _ = sweep("--out", store.name)
        assert (code, out) == (128 + number, ""), f"call {at} of {total}"
        assert not late, f"call {at} of {total}: another group was begun"
        assert sweep("--out", store.name, "--resume")[0] == 0
        assert contents(store) == whole, f"call {at} of {total}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("group", range(3))
def test_a_signal_in_the_last_steps_of_a_group_ends_the_sweep(sweep, whole, monkeypatch, tmp_path, number, group):
    """There the run is complete and simulate only hands on that somebody asked for the end."""
    finished, leave = count(), DelayedInterrupt.__exit__

    def leaving(interrupt: DelayedInterrupt, *error: Any) -> None:
        if calls and next(finished) == group:
            signal.raise_signal(number)
        leave(interrupt, *error)

    calls: list[None] = []
    execute = backends.run_locally
    with monkeypatch.context() as patch:
        patch.setattr(backends, "run_locally", lambda *given: calls.append(None) or execute(*given))
        patch.setattr(DelayedInterrupt, "__exit__", leaving)
        code, out, _ = sweep("--out", "s.zarr")
    assert (code, out) == (128 + number, "")
    assert len(list((tmp_path / "s.zarr").glob("classes-0.zarr/done/c/*"))) == group
    assert sweep("--out", "s.zarr", "--resume")[0] == 0
    assert contents(tmp_path / "s.zarr") == whole
