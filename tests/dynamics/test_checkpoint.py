"""A run can be stopped at any moment, by Ctrl-C or by the end of its process, and continued exactly."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from refusals import refused
from scansnap import storage
from scansnap.dynamics import checkpoint, loop
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.trainers import YZMeasurement
from scansnap.storage import put
from scansnap.storage.checksums import Damaged
from scansnap.storage.work_cache import WorkCache

CLASSES = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=2, distinct=3)
OPTIONS: dict[str, Any] = {"steps": 8, "batch_size": 16, "init": "uniform", "device": "cpu"}
MOMENTUM = {"momentum": 0.9}
ADAM = {"optimizer": {"name": "adam", "schedule": "cosine"}}


@pytest.fixture(autouse=True)
def _one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_STRETCH_FLOATS", 1)


def runs() -> ss.Runs:
    return ss.grid(eta_z=[0.5, 1.0], ratio=2, seed=[0, 1])


def simulate(**options: Any) -> xr.Dataset:
    return ss.simulate(CLASSES, runs(), **{**OPTIONS, **options})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Interrupt:
    """Raises KeyboardInterrupt in the n-th call of a function, before or after the function's own work."""

    def __init__(self, function: Callable[..., Any], call: int, *, after: bool = False) -> None:
        self.function, self.left, self.after = function, call, after

    def __get__(self, instance: Any, owner: Any) -> Any:  # as a method
        return self if instance is None else lambda *args, **options: self(instance, *args, **options)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        result = self.function(*args, **options)
        if self.left == 0:
            raise KeyboardInterrupt
        return result


def at_step(wanted: int) -> Callable[[int, int], None]:
    """A progress callback that is interrupted."""

    def progress(step: int, total: int) -> None:
        if step == wanted:
            raise KeyboardInterrupt

    return progress


def interrupted(**options: Any) -> xr.Dataset:
    with pytest.raises(ss.Interrupted) as interrupted:
        simulate(**options)
    return interrupted.value.partial


# --- Ctrl-C ---------------------------------------------------------------------------------------------------


def test_ctrl_c_in_the_last_step_is_not_swallowed() -> None:
    data = interrupted(record=[8], progress=at_step(8), **MOMENTUM)
    assert data.attrs["complete"] == 1


@pytest.mark.parametrize("plan", [MOMENTUM, ADAM], ids=["momentum", "adam"])
def test_ctrl_c_raises_with_what_was_done_until_then(plan: dict[str, Any]) -> None:
    whole = simulate(record="all", **plan)
    part = interrupted(record=[0, 3, 8], progress=at_step(5), **plan)
    assert part.attrs["complete"] == 0
    assert part.step.values.tolist() == [0, 3, 5]
    for name in part.data_vars:
        np.testing.assert_array_equal(part[name], whole[name].sel(step=[0, 3, 5]))


@pytest.mark.parametrize(
    ("plan", "checkpoint_seconds"),
    [(MOMENTUM, 1e3), (MOMENTUM, 0), (ADAM, 1e3)],
    ids=["momentum", "often", "adam"],
)
@pytest.mark.parametrize(
    ("owner", "name", "call", "after", "done"),
    [
        (Engine, "advance", 1, False, 0),  # before anything was done
        (Engine, "advance", 5, False, 4),
        (Engine, "advance", 5, True, 4),  # the work of the stretch is dropped
        (YZMeasurement, "__call__", 2, False, 3),  # the state moved, its record is missing
        (YZMeasurement, "__call__", 2, True, 3),
        (loop.Loop, "_record", 5, True, 4),
    ],
)
def test_ctrl_c_anywhere_and_on_to_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    plan: dict[str, Any],
    checkpoint_seconds: float,
    owner: Any,
    name: str,
    call: int,
    after: bool,
    done: int,
) -> None:
    target = tmp_path / "result.zarr"
    options = {**plan, "record": [0, 3, 8], "checkpoint_seconds": checkpoint_seconds}
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, Interrupt(getattr(owner, name), call, after=after))
        part = interrupted(save_to=target, **options)
    assert part.attrs["complete"] == 0
    assert part.step.values[-1] == done
    assert names(tmp_path) == ["result.zarr.partial"]
    with refused("the result path", names="resume"):
        ss.load(target)
    whole = simulate(**options)
    assert simulate(save_to=target, resume=True, **options).identical(whole)
    assert ss.load(target).identical(whole)
    assert names(tmp_path) == ["result.zarr"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name", "times"),
    [(WorkCache, "put", 4), (checkpoint.RunCheckpoint, "append", 2), (checkpoint.RunCheckpoint, "save", 2),
     (checkpoint, "discard", 1)],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_ctrl_c_while_a_checkpoint_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: Any, name: str, times: int, after: bool
) -> None:
    """Before or after each of the operations that checkpoints consist of, in turn."""
    options = {"record": "all", "steps": 2, "variables": ["loss"]}
    whole = simulate(**options)
    for call in itertools.count(1):
        options["save_to"] = tmp_path / str(call) / "a.zarr"
        interrupt = Interrupt(getattr(owner, name), call, after=after)
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(owner, name, interrupt)
            simulate(checkpoint_seconds=0, **options)
        if interrupt.left > 0:
            break
        assert simulate(resume=True, **options).identical(whole), f"interrupted in call {call}"
        assert names(tmp_path / str(call)) == ["a.zarr"]
    assert call > times


def test_ctrl_c_while_the_result_is_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = {"save_to": tmp_path / "a.zarr", "checkpoint_seconds": 0}
    with monkeypatch.context() as patch:
        patch.setattr(xr.Dataset, "to_zarr", Interrupt(xr.Dataset.to_zarr, 1, after=True))
        with pytest.raises(KeyboardInterrupt):
            simulate(**options)
    assert names(tmp_path) == ["a.zarr.partial"]
    assert simulate(resume=True, **options).identical(simulate())


@pytest.mark.parametrize("record", [[0, 8], [4, 8], [8], "all"])
def test_interrupted_again_and_again(tmp_path: Path, record: Any) -> None:
    """Also where nothing was recorded between two checkpoints, or nothing at all."""
    target = tmp_path / "a.nc"
    for done in (1, 3, 4, 6):
        part = interrupted(record=record, save_to=target, checkpoint_seconds=0, resume=True, progress=at_step(done))
        assert part.step.values[-1] == done
    whole = simulate(record=record)
    assert set(whole.data_vars) == {"attention", "loss", "entropy", "z"}
    assert simulate(record=record, save_to=target, resume=True).identical(whole)
    assert ss.load(target).identical(whole)


def test_a_failed_run_stays_as_it_is_through_a_checkpoint(tmp_path: Path) -> None:
    wild = ss.grid(eta_y=[1.0, 1e38], eta_z=1.0)
    whole = ss.simulate(CLASSES, wild, **OPTIONS)
    assert whole.status.values.tolist() == ["ok", "non-finite"]
    with pytest.raises(ss.Interrupted):
        ss.simulate(CLASSES, wild, save_to=tmp_path / "a.zarr", progress=at_step(4), **OPTIONS)
    assert ss.simulate(CLASSES, wild, save_to=tmp_path / "a.zarr", resume=True, **OPTIONS).identical(whole)


# --- where results go -----------------------------------------------------------------------------------------


def test_a_result_is_not_overwritten_unasked(tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    old = simulate(save_to=target)
    with refused("save_to"):
        simulate(momentum=0.5, save_to=target)
    assert ss.load(target).identical(old)
    new = simulate(momentum=0.5, save_to=target, overwrite=True)
    assert ss.load(target).identical(new)
    assert not new.identical(old)
    assert names(tmp_path) == ["a.zarr"]


def test_a_finished_run_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"save_to": tmp_path / "a.zarr", "resume": True}
    first = simulate(**options)  # nothing to continue: it begins
    monkeypatch.setattr(Engine, "advance", None)
    assert simulate(**options).identical(first)
    assert simulate(overwrite=True, **options).identical(first)
    with refused("save_to"):
        simulate(momentum=0.5, **options)


# that every setting counts is in test_fingerprint.py
@pytest.mark.parametrize(
    "other",
    [
        {"runs": ss.grid(eta_z=[0.5, 1.0], ratio=2, seed=[0, 2])},
        {"classes": ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=3, distinct=3)},
        {"momentum": 0.5},
        {"variables": ["loss"]},
    ],
    ids=lambda other: "-".join(other),
)
def test_an_unfinished_run_is_continued_only_as_itself(tmp_path: Path, other: dict[str, Any]) -> None:
    target = tmp_path / "a.zarr"
    interrupted(save_to=target, progress=at_step(1))
    changed = {"classes": CLASSES, "runs": runs(), **OPTIONS, **other}
    with refused("the unfinished run"):
        ss.simulate(**changed, save_to=target, resume=True)
    with refused("save_to", names=("resume", "overwrite")):
        ss.simulate(**changed, save_to=target)
    again = ss.simulate(**changed, save_to=target, overwrite=True)  # from the beginning
    assert again.identical(ss.simulate(**changed))
    assert names(tmp_path) == ["a.zarr"]


def test_momentum_may_come_from_the_grid_or_from_the_call(tmp_path: Path) -> None:
    """Two ways to say the same run."""
    interrupted(save_to=tmp_path / "a.zarr", momentum=0.5, progress=at_step(4))
    named = ss.grid(eta_z=[0.5, 1.0], ratio=2, seed=[0, 1], momentum=0.5)
    resumed = ss.simulate(CLASSES, named, save_to=tmp_path / "a.zarr", resume=True, **OPTIONS)
    assert resumed.identical(simulate(momentum=0.5))


def test_an_interrupted_overwrite_keeps_the_old_result_and_can_be_continued(tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    old = simulate(save_to=target)
    interrupted(momentum=0.5, save_to=target, overwrite=True, progress=at_step(4))
    assert ss.load(target).identical(old)
    with refused("save_to"):  # not the old result as the new one
        simulate(momentum=0.5, save_to=target, resume=True)
    new = simulate(momentum=0.5, save_to=target, resume=True, overwrite=True)
    assert new.identical(simulate(momentum=0.5))
    assert ss.load(target).identical(new)
    assert names(tmp_path) == ["a.zarr"]


def test_a_finished_result_does_not_cost_another_unfinished_run(tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    simulate(save_to=target)
    interrupted(momentum=0.5, save_to=target, overwrite=True, progress=at_step(4))
    simulate(save_to=target, resume=True)
    assert names(tmp_path) == ["a.zarr", "a.zarr.partial"]


# --- on disk --------------------------------------------------------------------------------------------------


STATE = {"y": np.arange(6, dtype=np.float32).reshape(1, 2, 3), "scalar": np.array(2.5), "flag": np.array([True])}
RECORDS = {"loss": np.array([[0.1, np.nan]], dtype=np.float32)}


def test_a_checkpoint_gives_back_state_and_records(tmp_path: Path) -> None:
    written = checkpoint.RunCheckpoint(tmp_path / "a.zarr", "run")
    assert not written.exists()
    written.append({"steps": [0, 4]}, RECORDS)
    written.save({"step": 4}, {})
    written.save({"step": 6}, STATE)
    written.append({"steps": [9]}, RECORDS)
    written.save({"step": 9}, STATE)
    written.append({"steps": [10]}, RECORDS)  # by a process that is killed before the next state
    assert written.exists()
    folder = tmp_path / "a.zarr.partial"
    (folder / ".scansnap-writing").mkdir()
    (folder / ".scansnap-writing" / "left").touch()
    assert checkpoint.read(folder).files.files == 3

    again = checkpoint.RunCheckpoint(tmp_path / "a.zarr", "run")
    saved = again.load()
    assert saved.values == {"step": 9}
    assert again.appended == [values for values, _ in saved.records] == [{"steps": [0, 4]}, {"steps": [9]}]
    for found, expected in [(saved.arrays, STATE), *((records, RECORDS) for _, records in saved.records)]:
        assert list(found) == list(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    assert names(folder) == ["records-00001", "records-00002", "state"]
    again.append({"steps": [10]}, RECORDS)
    again.save({"step": 10}, STATE)
    assert names(folder) == ["records-00001", "records-00002", "records-00003", "state"]
    again.discard()
    assert names(tmp_path) == []


def test_pieces_of_two_checkpoints_are_not_mixed(tmp_path: Path) -> None:
    for target, step in (("a.zarr", 0), ("b.zarr", 1)):
        written = checkpoint.RunCheckpoint(tmp_path / target, "run")
        written.append({"steps": [step]}, RECORDS)
        written.save({"step": step}, STATE)
    (tmp_path / "b.zarr.partial" / "records-00001").replace(tmp_path / "a.zarr.partial" / "records-00001")
    for target in ("a.zarr", "b.zarr"):  # changed, missing
        with pytest.raises(Damaged) as error:
            checkpoint.RunCheckpoint(tmp_path / target, "run").load()
        assert error.value.part == "records-00001"


def test_an_unfinished_run_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    written = checkpoint.RunCheckpoint(tmp_path / "a.zarr", "run")
    put(written.folder / "progress.json", "{}")
    with refused("the unfinished run", names="version"):
        written.load()


def test_junk_beside_a_finished_result_is_removed(tmp_path: Path) -> None:
    """A run that was started again with overwrite and killed before its first checkpoint."""
    simulate(save_to=tmp_path / "a.zarr")
    (tmp_path / "a.zarr.partial").mkdir()
    (tmp_path / "a.zarr.partial" / "records-00001").touch()
    simulate(save_to=tmp_path / "a.zarr", resume=True)
    assert names(tmp_path) == ["a.zarr"]


def test_a_checkpoint_of_another_run_is_recognised(tmp_path: Path) -> None:
    checkpoint.RunCheckpoint(tmp_path / "a.zarr", "mine").save({}, STATE)
    assert checkpoint.RunCheckpoint(tmp_path / "a.zarr", "mine").is_same_run()
    other = checkpoint.RunCheckpoint(tmp_path / "a.zarr", "other")
    assert not other.is_same_run()
    assert not checkpoint.RunCheckpoint(tmp_path / "b.zarr", "mine").is_same_run()
    with refused("the unfinished run"):
        other.load()


# --- the end of the process -----------------------------------------------------------------------------------

_SERVER = """
import json, os, signal, sys, time
from unittest.mock import patch
import torch, xarray, zarr
import scansnap as ss
from scansnap.dynamics import checkpoint
from scansnap import storage
from scansnap.dynamics import loop

torch.set_num_threads(1)
patch.object(loop, "_STRETCH_FLOATS", 1).start()


def say(*words):
    print(*words, flush=True)


def run(job):
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def progress(step, total):
        say("step", step)
        while job["gate"] and not os.path.exists(job["gate"] + str(step)):
            time.sleep(0.002)

    def linger(function, word):
        def lingering(*args, **options):
            result = function(*args, **options)
            say(word)
            time.sleep(600)
            return result
        return lingering

    if job["linger"] == "saving":  # all is written, under another name
        exchange = storage.writing._exchange
        def slowly(scratch, target):
            if str(target) == job["options"]["save_to"]:
                say("saving")
                time.sleep(600)
            exchange(scratch, target)
        patch.object(storage.writing, "_exchange", slowly).start()
    if job["linger"] == "saved":  # all is in place, the checkpoint not yet tidied away
        patch.object(loop, "write", linger(loop.write, "saved")).start()
    runs = ss.grid(eta_z=[0.5, 1.0], ratio=2, seed=[0, 1])
    classes = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=2, distinct=3)
    try:
        data = ss.simulate(classes, runs, progress=progress, checkpoint_seconds=0, resume=True, **job["options"])
    except ss.Interrupted as interrupted:
        data = interrupted.partial
    say("returned", data.attrs["complete"], int(data.step[-1]))


for line in sys.stdin:
    child = os.fork()  # before any thread is started; saves importing everything again for each run
    if child == 0:
        run(json.loads(line))
        os._exit(0)
    say("child", child)
    os.waitpid(child, 0)
    say("gone")
"""


class Server:
    """A process that runs simulations in children of its own, one at a time, for us to kill."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.child = 0

    def start(self, options: dict[str, Any], *, gate: Path | None = None, linger: str = "") -> None:
        """``gate``: the run waits after each step for a file in this folder with the step as its name."""
        job = {"options": {**options, "save_to": str(options["save_to"])}, "linger": linger,
               "gate": f"{gate}/" if gate else ""}  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        self.child = int(self.wait_for("child")[0])

    def wait_for(self, word: str) -> list[str]:
        """What is said after the word; fails if the child ends before."""
        assert self.process.stdout is not None
        while True:
            watchdog = threading.Timer(300, self.stop)  # for hangs
            watchdog.start()
            first, *rest = self.process.stdout.readline().split() or ["nothing"]
            watchdog.cancel()
            if first == word:
                return rest
            assert first not in ("gone", "nothing"), f"ended before it said '{word}'"

    def kill(self) -> None:
        """The run, at once and without a chance to do anything about it."""
        os.kill(self.child, signal.SIGKILL)
        self.wait_for("gone")
        self.child = 0

    def stop(self) -> None:
        """Everything, also a run that is still going on."""
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
        self.process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()
    running.process.communicate()


KILLED = [
    pytest.param({**MOMENTUM, "record": [0, 3, 20, 80], "steps": 80}, "a.zarr", id="momentum-zarr"),
    pytest.param({**ADAM, "record": "all", "steps": 80}, "a.nc", id="adam-netcdf"),
]


@pytest.mark.parametrize(("plan", "name"), KILLED)
def test_killed_at_random_moments_and_continued_bit_for_bit(
    server: Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, plan: dict[str, Any], name: str
) -> None:
    target = tmp_path / name
    chance = random.Random()
    moments = []
    for after in (1, 2, 2, 2):  # steps beyond those of the processes before
        gate = tmp_path_factory.mktemp("gate")
        server.start({**OPTIONS, **plan, "save_to": target}, gate=gate)
        for _ in range(after):
            [step] = server.wait_for("step")
            with pytest.raises(ss.InputError):
                ss.load(target)
            (gate / step).touch()
        moments.append(chance.uniform(0, 0.03))  # in the checkpoint, in the step after it, or before the next gate
        time.sleep(moments[-1])
        server.kill()
        assert not target.exists()
        with pytest.raises(ss.InputError):
            ss.load(target)
    whole, resumed = simulate(**plan), simulate(**plan, save_to=target, resume=True)
    xr.testing.assert_identical(resumed, whole)
    for variable in whole.data_vars:
        np.testing.assert_array_equal(resumed[variable], whole[variable], err_msg=f"killed after {moments} seconds")
    assert ss.load(target).identical(whole)
    assert names(tmp_path) == [name]


@pytest.mark.parametrize(("plan", "name"), KILLED)
def test_killed_while_the_result_is_saved(server: Server, tmp_path: Path, plan: dict[str, Any], name: str) -> None:
    target = tmp_path / name
    plan = {**plan, "record": [0, 4], "steps": 4}
    server.start({**OPTIONS, **plan, "save_to": target}, linger="saving")
    server.wait_for("saving")
    server.kill()
    left = [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]
    assert len(left) == 1  # complete, but it does not pass for the result
    for path in (target, *tmp_path.iterdir(), *(tmp_path / f"{name}.partial").iterdir()):
        with pytest.raises(ss.InputError):
            ss.load(path)
    whole = simulate(**plan)
    storage.scratch._cleaned_folders.clear()  # as in a new process
    assert simulate(**plan, save_to=target, resume=True).identical(whole)
    assert ss.load(target).identical(whole)
    assert names(tmp_path) == [name]


def test_killed_between_saving_and_tidying_up(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "a.zarr"
    server.start({**OPTIONS, "save_to": target}, linger="saved")
    server.wait_for("saved")
    server.kill()
    assert [name for name in names(tmp_path) if not name.endswith(".lock")] == ["a.zarr", "a.zarr.partial"]
    assert ss.load(target).identical(simulate())
    assert simulate(save_to=target, resume=True).identical(simulate())
    assert names(tmp_path) == ["a.zarr"]


def test_a_real_ctrl_c(server: Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target, gate = tmp_path / "a.zarr", tmp_path_factory.mktemp("gate")
    server.start({**OPTIONS, "save_to": target}, gate=gate)
    [step] = server.wait_for("step")
    (gate / step).touch()
    [step] = server.wait_for("step")
    os.kill(server.child, signal.SIGINT)
    (gate / step).touch()  # the step under way is finished first
    complete, last = server.wait_for("returned")
    server.wait_for("gone")
    server.child = 0
    assert (complete, last) == ("0", step)
    assert 2 <= int(last) < 8
    assert names(tmp_path) == ["a.zarr.partial"]
    assert simulate(save_to=target, resume=True).identical(simulate())
