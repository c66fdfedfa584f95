"""The same sweeps on a Ray cluster of this machine: the same store, also when a worker is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from sweeps import SMALL, contents, marks, write

from scansnap.checks import InputError
from scansnap.sweep.config import read
from scansnap.sweep.places import ray_watch
from scansnap.sweep.places.ray import TASK, Cluster
from scansnap.sweep.run import prepare, run

pytestmark = [
    # Ray leaves pipes and log files to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ray = pytest.importorskip("ray")

# 12 groups of about half a second
LONG = (
    SMALL.replace("steps = 6", 'steps = 300\noptimizer = "adam"')
    .replace("momentum = 0.9\n", "")
    .replace("3, 6]", "300]")
    .replace("runs = 4", "runs = 3")
)


@pytest.fixture(scope="module")
def cluster():
    """Two workers; in a folder with a short name, as sockets cannot have long ones."""
    folder = tempfile.mkdtemp(prefix="ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20,
                 log_to_driver=False, logging_level="ERROR", _temp_dir=folder)  # fmt: skip
        yield Cluster()
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def prepared(folder, text, store="s.zarr", cluster=None, **options):
    return prepare(read(write(folder, text)), folder / store, memory="200MB", cluster=cluster, **options)


def test_ray_and_local_make_the_same_store_though_a_worker_is_killed(cluster, tmp_path):
    assert run(prepared(tmp_path, LONG, "local.zarr", device="cpu")).complete
    killed: list[int] = []

    def kill_one(done, skipped, total):
        """When a group comes back, others are being worked on."""
        if not killed and (busy := busy_workers()):
            killed.append(busy[0])
            os.kill(busy[0], signal.SIGKILL)

    outcome = run(prepared(tmp_path, LONG, cluster=cluster), cluster=cluster, report=kill_one)
    assert killed
    assert not Path(f"/proc/{killed[0]}/cwd").exists()
    assert outcome.failures == []
    assert outcome.complete
    assert contents(tmp_path / "s.zarr") == contents(tmp_path / "local.zarr")


def test_a_group_that_raises_on_a_worker_is_reported_and_tried_again(cluster, tmp_path):
    assert run(prepared(tmp_path, SMALL, "local.zarr", device="cpu")).complete
    ready = prepared(tmp_path, SMALL, cluster=cluster)
    first, second = ready.sweep.class_sets
    broken = replace(ready, sweep=replace(ready.sweep, class_sets=(first, replace(second, classes=None))))
    outcome = run(broken, cluster=cluster)
    assert not outcome.complete
    assert marks(tmp_path / "s.zarr") == 5
    assert len(outcome.failures) == 5
    assert {group.class_set for group, _ in outcome.failures} == {1}
    assert outcome.failures[0][1] == "classes is None; it must be a SequenceClasses object."
    outcome = run(prepared(tmp_path, SMALL, cluster=cluster, resume=True), cluster=cluster)
    assert outcome.complete
    assert outcome.finished == 18
    assert contents(tmp_path / "s.zarr") == contents(tmp_path / "local.zarr")


def test_what_no_node_can_give_is_refused(cluster, tmp_path):
    for wanted, option in ((Cluster(cpus=3), "--cpus-per-group is '3'"), (Cluster(gpus=1), "--gpus-per-group is '1'")):
        with pytest.raises(InputError, match=option):
            run(prepared(tmp_path, SMALL, cluster=wanted, overwrite=True), cluster=wanted)
    with pytest.raises(InputError, match="--device"):
        prepare(read(write(tmp_path)), tmp_path / "t.zarr", device="cuda", cluster=cluster)


def test_without_ray_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--engine is 'ray'; it must be local, .*scansnap\[cluster\]"):
        prepared(tmp_path, SMALL, cluster=Cluster())
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by Linux's /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_is_ended_leaves_no_process_of_its_cluster(tmp_path, number):
    write(tmp_path, LONG)
    code = "import scansnap.sweep.store.store as s; s._SYNC_SECONDS = 0; from scansnap.cli.app import main; main()"
    words = ["sweep", "sweep.toml", "--out", "s.zarr", "--engine", "ray", "--memory", "200MB"]
    driver = subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
    while marks(tmp_path / "s.zarr") < 1:
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.1)
    children = {pid: words for pid, parent, words in processes() if parent == driver.pid}
    raylet = next(pid for pid, words in children.items() if b"/raylet/raylet" in words)
    watcher = next(pid for pid, words in children.items() if b"ray_watch.py" in words)
    assert ray_watch.left(str(raylet))
    driver.send_signal(number)
    _, err = driver.communicate()
    assert driver.returncode == (143 if number == signal.SIGTERM else -number), err
    assert number == signal.SIGKILL or "--resume" in err
    while any(pid == watcher and b"ray_watch.py" in words for pid, _, words in processes()):
        time.sleep(0.1)
    assert ray_watch.left(str(raylet)) == []
    assert not {pid for pid, _, words in processes() if words and words == children.get(pid)}
    if number == signal.SIGKILL:
        assert run(prepare(read(tmp_path / "sweep.toml"), tmp_path / "s.zarr", resume=True)).complete
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml", "s.zarr"}


def processes() -> list[tuple[int, int, bytes]]:
    """Number, parent and words of every process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found.append((int(folder.name), parent, (folder / "cmdline").read_bytes()))
        except OSError:  # it ended meanwhile
            continue
    return found


def busy_workers() -> list[int]:
    """Processes below this one that are working on a group."""
    parents = {pid: parent for pid, parent, _ in processes()}
    busy = [pid for pid, _, words in processes() if words.startswith(b"ray::" + TASK.encode())]
    return [pid for pid in busy if os.getpid() in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found
