"""The same sweeps on a Ray cluster of this machine: the same store, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import ray_work
from sweeps import SMALL, contents, marks, write

from ray_cluster import LEFT_OPEN, killing_one, local_cluster, processes
from refusals import refused
from scansnap.cluster import Cluster, Failure, spread, watch
from scansnap.sweep.backends import TASK
from scansnap.sweep.config import read
from scansnap.sweep.run import prepare, run

pytestmark = LEFT_OPEN
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
    with local_cluster(os.path.dirname(__file__)) as result:
        yield result


def prepared(folder, text, store="s.zarr", cluster=None, **options):
    return prepare(read(write(folder, text)), folder / store, memory="200MB", cluster=cluster, **options)


@pytest.mark.integration
def test_ray_and_local_make_the_same_store_though_a_worker_is_killed(cluster, tmp_path):
    assert run(prepared(tmp_path, LONG, "local.zarr", device="cpu")).complete
    ready = prepared(tmp_path, LONG, cluster=cluster)
    with killing_one(TASK) as killed:
        outcome = run(ready, cluster=cluster)
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
    assert outcome.failures[0][1].startswith("classes")
    outcome = run(prepared(tmp_path, SMALL, cluster=cluster, resume=True), cluster=cluster)
    assert outcome.complete
    assert outcome.finished == 18
    assert contents(tmp_path / "s.zarr") == contents(tmp_path / "local.zarr")


def test_tasks_in_results_out_as_they_finish(cluster):
    result = dict(spread(ray_work.add, 5, [1, -2, 3], cluster, memory=lambda task: 1_000_000 * abs(task)))
    assert result == {1: 6, -2: Failure("ValueError: no negative numbers"), 3: 8}


@pytest.mark.integration
def test_a_task_whose_worker_is_killed_is_done_again(cluster, tmp_path):
    result = dict(spread(ray_work.tens_once_killed, str(tmp_path / "once"), range(6), cluster))
    assert result == {n: 10 * n for n in range(6)}
    assert (tmp_path / "once").exists()


def test_no_more_than_a_few_tasks_are_taken_at_a_time_and_shared_things_once(cluster, monkeypatch):
    monkeypatch.setattr("scansnap.cluster.tasks._IN_FLIGHT", 5)
    submitted, places = 0, set()

    def tasks():
        nonlocal submitted
        for i in range(30):
            submitted += 1
            yield i

    for done, (_, (_, place)) in enumerate(spread(ray_work.place_of, list(range(1000)), tasks(), cluster)):
        assert submitted - done <= 6
        places.add(place)
    assert submitted == 30
    assert len(places) == len({process for process, _ in places}) <= 2  # one copy in each worker


@pytest.mark.integration
def test_tasks_wait_for_nodes_that_do_not_exist_yet(cluster, monkeypatch):
    """A cluster may begin empty and grow: nothing is refused, but what is missing is said."""
    monkeypatch.setattr("scansnap.cluster.tasks._SILENCE", 0.1)
    messages = []

    class Enough(Exception):
        pass

    def note(words):
        messages.append(words)
        raise Enough

    with pytest.raises(Enough):
        list(spread(ray_work.add, 1, [1], Cluster("auto", cpus=50), memory=lambda task: 10**6, note=note))
    assert messages == ["no node of the cluster has 50 CPU, 1e+06 memory, which a task needs: it waits for one"]


def test_what_this_machine_alone_cannot_give_is_refused(cluster, tmp_path):
    have = ray.cluster_resources()
    for expected, memory, field in (
        (Cluster(cpus=3), 0, "--cpus-per-group"),
        (Cluster(gpus=1), 0, "--gpus-per-group"),
        (Cluster(), 10**15, "--memory"),
    ):
        with refused(field):
            expected.check_capacity(have, memory)
    Cluster().check_capacity(have, 10**6)
    with refused("--device"):
        prepare(read(write(tmp_path)), tmp_path / "t.zarr", device="cuda", cluster=cluster)


def test_what_a_cluster_refuses_changes_nothing_on_disk(tmp_path, monkeypatch):
    @contextmanager
    def connected(self, memory=0):
        Cluster.check_capacity(self, {"CPU": 2}, 0)
        yield

    monkeypatch.setattr(Cluster, "connected", connected)
    expected = Cluster(cpus=3)
    with refused("--cpus-per-group", "3"):
        run(prepared(tmp_path, SMALL, cluster=expected), cluster=expected)
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml"}


def test_without_ray_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused("--engine", "ray", names="scansnap[cluster]"):
        prepared(tmp_path, SMALL, cluster=Cluster())
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.integration
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
