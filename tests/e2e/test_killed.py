"""A process killed before any of its changes to a file leaves nothing behind once the work was resumed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SWEEP = """
[classes]
preset = "syn-medium"
n_queries = [1, 2]
[grid]
eta_z = 1
ratio = 2
seed = 0
[run]
steps = 1
batch_size = 4
record = [0, 1]
variables = ["loss"]
[groups]
runs = 1
"""

# Works in forked children, so that everything is imported once. A child counts its changes to files in its folder (the
# interpreter reports each before it is made) and kills itself before the one it is told.
_SERVER = """
import contextlib, io, json, os, signal, sys, warnings
from unittest.mock import patch
import h5netcdf, numpy as np, safetensors.torch, torch, xarray, zarr, zarr.codecs
import scansnap as ss
from scansnap.cli import app as cli
from scansnap import storage
from scansnap.cli import sweep as _
from scansnap.corpus.corpus import load_corpus
from scansnap.dynamics import loop
from scansnap.dynamics.checkpoint import RunCheckpoint
from scansnap.text.training import train
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.sweep import run as _
from scansnap.storage import objects

torch.set_num_threads(1)
patch.object(loop, "_STRETCH_FLOATS", 1).start()  # a checkpoint after each step
patch.object(objects, "sync", lambda path: None).start()  # a killed process loses nothing that was written
changes = 0


def change(last):
    global changes
    changes += 1
    if changes == last:
        os.kill(os.getpid(), signal.SIGKILL)


def watch(folder, last):
    def hook(event, args):
        if event == "open":
            writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and isinstance(args[0], str) and os.path.abspath(args[0]).startswith(folder):
                change(last)
        elif event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
            inside = isinstance(args[0], (str, bytes)) and os.path.abspath(os.fsdecode(args[0])).startswith(folder)
            if inside or (event != "os.rename" and args[-1] != -1):  # shutil.rmtree says folder and name
                change(last)

    swap = storage.writing._swap

    def watched(one, other):  # a call of the system that the interpreter does not report
        change(last)
        done = swap(one, other)
        change(last)
        return done

    patch.object(storage.writing, "_swap", watched).start()
    sys.addaudithook(hook)


def simulate(target):
    save, checkpoints = RunCheckpoint.save, []
    patch.object(RunCheckpoint, "save", lambda *args: (checkpoints.append(args[1]), save(*args))).start()
    new = not os.path.exists(target) and not os.path.exists(target + ".partial")
    classes = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=1, distinct=2)
    ss.simulate(classes, ss.grid(eta_z=1.0, ratio=2, seed=[0]), steps=2, batch_size=4, record=[0, 2],
                variables=["loss"], device="cpu", save_to=target, resume=True, checkpoint_seconds=0)
    assert len(checkpoints) > 1 or not new, checkpoints  # one amid the run, to be killed after


def text(target):
    corpus = load_corpus("text", cache_dir="cache")
    model = YZTransformer(YZSettings(vocab_size=corpus.vocab_size, init="zero", eta_y=5.0, eta_z=1.0))
    train(model, corpus.train, steps=3, batch=2, length=4, shuffle=0, checkpoint=target, checkpoint_seconds=0,
          resume=os.path.exists(target), vocabulary=corpus.vocabulary)


def sweep(target):
    sys.argv[:] = ["scansnap", "sweep", "sweep.toml", "--out", target, "--device", "cpu", "--resume"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        cli.main()


def work(job):
    os.chdir(job["folder"])
    watch(os.path.realpath(job["folder"]) + "/", job["last"])
    warnings.simplefilter("ignore")
    {"a.zarr": simulate, "a.nc": simulate, "m.safetensors": text, "s.zarr": sweep}[job["target"]](job["target"])


for line in sys.stdin:
    child = os.fork()  # before any thread is started
    if child == 0:
        code = 1
        try:
            work(json.loads(line))
            print(changes, flush=True)
            code = 0
        finally:
            os._exit(code)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Server:
    """A process whose children work for us until they kill themselves."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", _SERVER], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def __call__(self, folder: Path, target: str, last: int = -1) -> int:
        """How many files were changed; −1 if it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "target": target, "last": last}) + "\n")
        self.process.stdin.flush()
        changes, line = -1, self.process.stdout.readline()
        while not line.startswith("ended"):
            assert line, self.process.stderr.read()
            changes, line = int(line), self.process.stdout.readline()
        if line.split()[1] not in ("0", "-9"):
            self.process.stdin.close()
            raise AssertionError(self.process.stderr.read())
        return changes


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.process.communicate()


def begin(folder: Path) -> Path:
    """A folder with what the work needs."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "text").mkdir(parents=True)
    (folder / "sweep.toml").write_text(SWEEP)
    for split in ("train", "valid", "test"):
        (folder / "text" / f"{split}.txt").write_text("the cat sat on the mat\nthe dog sat\n" * 6)
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    """All names in a folder with what they hold, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def kill_and_resume(
    server: Server, folder: Path, target: str, moments: list[int], whole: dict[str, bytes | None]
) -> None:
    begin(folder)
    for moment in moments:
        server(folder, target, moment)
    assert server(folder, target) >= 0
    found = contents(folder)
    assert sorted(found) == sorted(whole), f"killed before change {moments}"
    assert found == whole, f"killed before change {moments}"


TARGETS = ["a.zarr", "a.nc", "m.safetensors", "s.zarr"]


@pytest.mark.parametrize("target", [*TARGETS[:3], pytest.param("s.zarr", marks=pytest.mark.integration)])
def test_killed_anywhere_and_resumed_there_is_nothing_but_the_result(
    server: Server, tmp_path: Path, target: str
) -> None:
    total = server(begin(tmp_path / "whole"), target)
    whole = contents(tmp_path / "whole")
    assert total > 20
    assert server(tmp_path / "whole", target) >= 0  # once more: there is nothing to do
    assert contents(tmp_path / "whole") == whole
    for i in range(8):
        kill_and_resume(server, tmp_path / "work", target, [total * (i + 1) // 8], whole)


@pytest.mark.campaign
@pytest.mark.parametrize("target", TARGETS)
def test_killed_before_each_change_of_a_file(server: Server, tmp_path: Path, target: str) -> None:
    """Every one of some hundred changes in turn, some of them twice: minutes."""
    total = server(begin(tmp_path / "whole"), target)
    whole = contents(tmp_path / "whole")
    for moment in range(1, total + 1):
        kill_and_resume(server, tmp_path / "work", target, [moment], whole)
    for moment in range(1, total, 10):  # and again, soon after it was resumed
        kill_and_resume(server, tmp_path / "work", target, [moment, 1 + moment // 10 % 7], whole)
