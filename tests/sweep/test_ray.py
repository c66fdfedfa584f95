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
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import ray_work
from sweeps import SMALL, contents, marks, write

from scansnap.checks import InputError
from scansnap.cluster import Cluster, Failure, spread, watch
from scansnap.sweep.config import read
from scansnap.sweep.places.ray import TASK
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
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20,
                 log_to_driver=False, logging_level="ERROR", _temp_dir=folder)  # fmt: skip
        yield Cluster()
        ray.shutdown()
    patch.undo()
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


def test_tasks_in_results_out_as_they_finish(cluster):
    found = dict(spread(ray_work.add, 5, [1, -2, 3], cluster, memory=lambda task: 1_000_000 * abs(task)))
    assert found == {1: 6, -2: Failure("ValueError: no negative numbers"), 3: 8}


def test_a_task_whose_worker_is_killed_is_done_again(cluster, tmp_path):
    found = dict(spread(ray_work.tens_once_killed, str(tmp_path / "once"), range(6), cluster))
    assert found == {n: 10 * n for n in range(6)}
    assert (tmp_path / "once").exists()


def test_no_more_than_a_few_tasks_are_taken_at_a_time_and_shared_things_once(cluster, monkeypatch):
    monkeypatch.setattr("scansnap.cluster.tasks._IN_FLIGHT", 5)
    taken, places = 0, set()

    def tasks():
        nonlocal taken
        for i in range(30):
            taken += 1
            yield i

    for done, (_, (_, place)) in enumerate(spread(ray_work.place_of, list(range(1000)), tasks(), cluster)):
        assert taken - done <= 6
        places.add(place)
    assert taken == 30
    assert len(places) == len({process for process, _ in places}) <= 2  # one copy in each worker


def test_tasks_wait_for_nodes_that_do_not_exist_yet(cluster, monkeypatch):
    """A cluster may begin empty and grow: nothing is refused, but what is missing is said."""
    monkeypatch.setattr("scansnap.cluster.tasks._SILENCE", 0.1)
    said = []

    class Enough(Exception):
        pass

    def note(words):
        said.append(words)
        raise Enough

    with pytest.raises(Enough):
        list(spread(ray_work.add, 1, [1], Cluster("auto", cpus=50), memory=lambda task: 10**6, note=note))
    assert said == ["no node of the cluster has 50 CPU, 1e+06 memory, which a task needs: it waits for one"]


def test_what_this_machine_alone_cannot_give_is_refused(cluster, tmp_path):
    have = ray.cluster_resources()
    for wanted, memory, message in (
        (Cluster(cpus=3), 0, "--cpus-per-group is '3'; it must be at most 2"),
        (Cluster(gpus=1), 0, "--gpus-per-group is '1'; it must be at most 0"),
        (Cluster(), 10**15, "--memory is '1e\\+15 bytes'; it must be at most"),
    ):
        with pytest.raises(InputError, match=message):
            wanted.refuse_what_never_fits(have, memory)
    Cluster().refuse_what_never_fits(have, 10**6)
    with pytest.raises(InputError, match="--device"):
        prepare(read(write(tmp_path)), tmp_path / "t.zarr", device="cuda", cluster=cluster)


def test_what_a_cluster_refuses_changes_nothing_on_disk(tmp_path, monkeypatch):
    @contextmanager
    def refused(self, memory=0):
        Cluster.refuse_what_never_fits(self, {"CPU": 2}, 0)
        yield

    monkeypatch.setattr(Cluster, "connected", refused)
    wanted = Cluster(cpus=3)
    with pytest.raises(InputError, match="--cpus-per-group is '3'"):
        run(prepared(tmp_path, SMALL, cluster=wanted), cluster=wanted)
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml"}


def test_without_ray_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--engine is 'ray'; it must be local unless .*scansnap\[cluster\]"):
        prepared(tmp_path, SMALL, cluster=Cluster())
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by Linux's /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_is_ended_leaves_no_process_of_its_cluster(tmp_path, number):
    write(tmp_path, LONG)
    code = "from scansnap.cli.app import main; main()"
    words = ["sweep", "sweep.toml", "--out", "s.zarr", "--engine", "ray", "--memory", "200MB"]
    driver = subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
    while marks(tmp_path / "s.zarr") < 1:
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.1)
    children = {pid: words for pid, parent, words in processes() if parent == driver.pid}
    raylet = next(pid for pid, words in children.items() if b"/raylet/raylet" in words)
    watcher = next(pid for pid, words in children.items() if b"cluster/watch.py" in words)
    assert watch.left(str(raylet))
    driver.send_signal(number)
    _, err = driver.communicate()
    assert driver.returncode == (143 if number == signal.SIGTERM else -number), err
    assert number == signal.SIGKILL or "--resume" in err
    while any(pid == watcher and b"cluster/watch.py" in words for pid, _, words in processes()):
        time.sleep(0.1)
    assert watch.left(str(raylet)) == []
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
