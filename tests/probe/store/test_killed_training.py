"""A training killed before any change to the probe's file, and resumed from its checkpoint, ends with the same file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import xarray as xr
from small import STEPS

import scansnap as ss

# Works in forked children, so that everything is imported once. A child counts its changes to files in its folder (the
# interpreter reports each before it is made) and does to itself before one of them what it is told.
_SERVER = """
import json, os, signal, sys, traceback, warnings
sys.path.insert(0, sys.argv[1])
import torch, xarray
from pathlib import Path
from unittest.mock import patch
from scansnap.probe.store import probe_file
from scansnap.storage import writing
from small import train

torch.set_num_threads(1)
patch.object(probe_file, "SAMPLES", 4).start()  # so that samples are dropped too
changes = 0


def change(job):
    global changes
    changes += 1
    if changes == job["last"]:
        os.kill(os.getpid(), job["signal"])


def watch(job):
    folder = os.path.realpath(job["folder"]) + "/"

    def hook(event, args):
        if event == "open":
            writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and isinstance(args[0], str) and os.path.abspath(args[0]).startswith(folder):
                change(job)
        elif event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link"):
            inside = isinstance(args[0], (str, bytes)) and os.path.abspath(os.fsdecode(args[0])).startswith(folder)
            if inside or (event not in ("os.rename", "os.link") and args[-1] != -1):
                change(job)

    swap = writing._swap

    def watched(one, other):  # a call of the system that the interpreter does not report
        change(job)
        done = swap(one, other)
        change(job)
        return done

    patch.object(writing, "_swap", watched).start()
    sys.addaudithook(hook)


def work(job):
    warnings.simplefilter("error")
    os.chdir(job["folder"])
    watch(job)
    try:
        # without a checkpoint training begins again
        train(Path("probe.zarr"), Path("../checkpoint.pt"), steps=job["steps"], overwrite=True)
    except KeyboardInterrupt:
        print("interrupted")


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(json.loads(line))
            print(changes, flush=True)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
KILL, INTERRUPT = 9, 2


class Server:
    """A process whose children train for us until they end themselves."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SERVER, str(Path(__file__).parent)]
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)  # fmt: skip

    def __call__(self, folder: Path, last: int = -1, signal: int = KILL, steps: int = STEPS) -> list[str]:
        """What the child said; nothing if it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        job = {"folder": str(folder), "last": last, "signal": signal, "steps": steps}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        said = [self.process.stdout.readline()]
        while not said[-1].startswith("ended"):
            assert said[-1], self.process.stderr.read()
            said.append(self.process.stdout.readline())
        if said[-1].split()[1] not in ("0", "-9"):
            self.process.stdin.close()
            raise AssertionError(self.process.stderr.read())
        return said[:-1]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.process.communicate()


def begin(folder: Path) -> Path:
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def found(folder: Path) -> xr.Dataset:
    """The file, compared with its checksums."""
    with ss.load(folder / "probe.zarr") as data:
        return data.load()


@dataclass(frozen=True)
class Trained:
    """Trainings that nobody stops."""

    changes: int  # to files, in all
    files: dict[int, xr.Dataset]  # after so many steps

    @property
    def whole(self) -> xr.Dataset:
        return self.files[STEPS]


@pytest.fixture(scope="module")
def trained(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    files = {}
    for steps in range(1, STEPS + 1):
        folder = begin(tmp_path_factory.mktemp("whole") / "x" / "y")
        (changes,) = server(folder, steps=steps)
        files[steps] = found(folder)
    return Trained(int(changes), files)


def kill_and_resume(server: Server, folder: Path, moments: list[int], trained: Trained) -> None:
    begin(folder)
    for moment in moments:
        assert server(folder, moment) == []
        if (folder / "probe.zarr").exists():  # sound at this moment, too, the attention of the last step included
            now = found(folder)
            xr.testing.assert_identical(now, trained.files[now.sizes["step"]])
    server(folder)
    xr.testing.assert_identical(found(folder), trained.whole)
    assert [place.name for place in folder.iterdir()] == ["probe.zarr"], f"killed before change {moments}"


@pytest.mark.integration
def test_killed_anywhere_and_resumed_it_is_the_file_of_one_training(server, tmp_path: Path, trained: Trained) -> None:
    assert trained.whole.sizes["step"] == STEPS
    assert int(trained.whole.moved.notnull().all(("layer", "head")).sum()) == STEPS - 1
    for i in range(12):  # the last ones are those of one measurement, its index and what it removes
        moment = trained.changes - i if i < 8 else trained.changes * (i - 7) // 5
        kill_and_resume(server, tmp_path / "a" / "b", [moment], trained)
    twice = [trained.changes // 2, trained.changes // 7]  # the second while it goes back
    kill_and_resume(server, tmp_path / "a" / "b", twice, trained)


def test_ctrl_c_amid_a_write_loses_nothing_that_was_measured(server, tmp_path: Path, trained: Trained) -> None:
    folder = begin(tmp_path / "a" / "b")
    assert server(folder, trained.changes // 2, INTERRUPT)[0] == "interrupted\n"
    now = found(folder)
    assert 0 < now.sizes["step"] < STEPS
    xr.testing.assert_identical(now, trained.files[now.sizes["step"]])
    server(folder)
    xr.testing.assert_identical(found(folder), trained.whole)


@pytest.mark.campaign
def test_killed_before_each_change(server, tmp_path: Path, trained: Trained) -> None:
    """Every one of some hundred changes in turn, some of them twice: minutes."""
    for moment in range(1, trained.changes + 1):
        kill_and_resume(server, tmp_path / "a" / "b", [moment], trained)
    for moment in range(trained.changes // 3, trained.changes, 10):  # and again, soon after it was resumed
        kill_and_resume(server, tmp_path / "a" / "b", [moment, 1 + moment // 10 % 47], trained)
