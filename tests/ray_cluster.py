"""A Ray cluster of this machine for tests, and which of its processes are at work."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from scansnap.cluster import Cluster

# Ray leaves pipes and log files to the garbage collector
LEFT_OPEN = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@contextmanager
def local_cluster(*paths: str) -> Iterator[Cluster]:
    """Two workers, which find modules in ``paths`` too; in a folder with a short name, as sockets cannot have long
    ones."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]))
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20,
                 log_to_driver=False, logging_level="ERROR", _temp_dir=folder)  # fmt: skip
        yield Cluster()
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


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


def at_work(task: str) -> list[int]:
    """Processes below this one that are working on such a task: Ray names them by it."""
    every = processes()
    parents = {pid: parent for pid, parent, _ in every}
    busy = [pid for pid, _, words in every if words.startswith(b"ray::" + task.encode())]
    return [pid for pid in busy if os.getpid() in _ancestors(pid, parents)]


@contextmanager
def killing_one(task: str) -> Iterator[list[int]]:
    """Kill the first process that works on such a task; yields a list that receives its number."""
    killed: list[int] = []
    stop = Event()

    def kill() -> None:
        while not killed and not stop.wait(0.02):
            for pid in at_work(task)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found
