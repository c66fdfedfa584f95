"""Groups on a Ray cluster: each task is one batched group, and its arrays come back through Ray's object store.

Workers share no disk with us, so the driver alone writes. Only a few more groups than the cluster can work on are
under way at any time, which bounds what waits to be written. The classes and all settings are shipped once; a task
is four numbers. A task whose worker dies is started again by Ray, and gives the same numbers.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scansnap.checks import InputError, real, whole
from scansnap.classes import SequenceClasses
from scansnap.results.trajectory import versions
from scansnap.sweep.config import Sweep
from scansnap.sweep.places import ray_watch
from scansnap.sweep.plan import Group, in_words
from scansnap.sweep.work import Arrays, Failure, Job, run_group

TASK = "scansnap-group"  # how a task is called in Ray's own views
_RETRIES = 5  # of a task whose worker died


@dataclass(frozen=True)
class Cluster:
    """Where to run, and what a group gets there."""

    address: str | None = None  # None: a cluster of this machine alone, for the time of the sweep
    cpus: int = 1  # and as many threads
    gpus: float = 0.0
    memory: int = 0  # bytes that Ray reserves for a group

    def __post_init__(self) -> None:
        whole("--cpus-per-group", self.cpus, least=1)
        real("--gpus-per-group", self.gpus, least=0)

    def execute(
        self, sweep: Sweep, job: Job, groups: Iterable[Group], report: Any
    ) -> Generator[tuple[Group, Arrays | Failure]]:
        """Each group with its arrays, or why there are none, in the order in which they are finished."""
        ray = import_ray()
        ours, watcher = not ray.is_initialized(), None
        running: dict[Any, Group] = {}
        try:
            if ours:
                self._start(ray)
                watcher = ray_watch.start()
            self._check(ray)
            shared = ray.put((job, _made_with()))
            classes = [ray.put(one.classes) for one in sweep.class_sets]
            task = ray.remote(_task).options(name=TASK, num_cpus=self.cpus, num_gpus=self.gpus, memory=self.memory,
                                             max_retries=_RETRIES, retry_exceptions=False)  # fmt: skip
            waiting = iter(groups)
            more = True
            while more or running:
                while more and len(running) < self._most_running(ray):
                    group = next(waiting, None)
                    if group is None:
                        more = False
                        break
                    ref = task.remote(shared, classes[group.class_set], group.start, group.stop, self.cpus)
                    running[ref] = group
                for ref in ray.wait(list(running), num_returns=1, timeout=1.0)[0] if running else ():
                    result: Arrays | Failure
                    try:
                        result = ray.get(ref)
                    except ray.exceptions.RayError as error:  # its workers died too often
                        result = Failure.of(error)
                    yield running.pop(ref), result
                    del ref, result  # lets Ray free the arrays
        finally:
            # What is ours ends with the connection. A task cancelled as it ends trips a check inside Ray, which then
            # ends this process before its results are kept; so only on somebody else's connection, which stays.
            for ref in () if ours else running:
                ray.cancel(ref, force=True)
            if ours:
                ray.shutdown()
            if watcher is not None:
                watcher.communicate()  # it ends what is left, and itself

    def _start(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what it warns will be the default
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        options |= {"address": self.address} if self.address else {"address": "local", "include_dashboard": False}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves its log files to the collector
                warnings.simplefilter("ignore", FutureWarning)
                with _own_signals():
                    ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError("--address", self.address, f"the address of a running Ray cluster ({reason})") from None

    def _check(self, ray: Any) -> None:
        """A group that fits on no node would wait for ever."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        wanted = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        if any(all(node.get(name, 0) >= n for name, n in wanted.items()) for node in nodes):
            return
        best = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
        options = {"CPU": "--cpus-per-group", "GPU": "--gpus-per-group", "memory": "--memory"}
        short = next((name for name, n in wanted.items() if best[name] < n), "CPU")
        show = in_words if short == "memory" else "{:g}".format
        have = f"at most {show(best[short])}, the largest node of the cluster"
        raise InputError(options[short], show(wanted[short]), have)

    def _most_running(self, ray: Any) -> int:
        """Tasks that have room, asked anew each time as nodes come and go, and a few to follow them."""
        have = ray.cluster_resources()
        wanted = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        room = int(min(have.get(name, 0) // n for name, n in wanted.items() if n > 0))
        return max(1, room) * 5 // 4 + 2


@contextmanager
def _own_signals() -> Iterator[None]:
    """SIGTERM stays whose it was: Ray takes it for itself, and ends the driver before its results are kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    ended = False
    try:
        yield
    except SystemExit:  # how Ray answers it while it starts
        ended = True
    finally:
        signal.signal(signal.SIGTERM, before)
    if ended:
        signal.raise_signal(signal.SIGTERM)


def import_ray() -> Any:
    """Ray, or a plain word that it is missing."""
    try:
        import ray
    except ImportError:
        raise InputError(
            "--engine", "ray", "local, since Ray is not installed (pip install 'scansnap[cluster]')"
        ) from None
    return ray


def _task(
    shared: tuple[Job, dict[str, str]], classes: SequenceClasses, start: int, stop: int, cpus: int
) -> Arrays | Failure:
    """In a worker: one group, on as many threads as it has CPUs. What it raises goes back as words."""
    import torch

    job, made_with = shared
    if (here := _made_with()) != made_with:
        return Failure(f"this node has {here}, the driver {made_with}")
    torch.set_num_threads(cpus)
    try:
        return run_group(job, classes, start, stop)
    except Exception as error:
        return Failure.of(error)


def _made_with() -> dict[str, str]:
    """What must be the same on all nodes for the numbers to be."""
    found = versions()
    return {name: found[name] for name in ("scansnap", "torch", "numpy")}
