"""Connect to a running Ray cluster, or start Ray on this machine for the duration of the work."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scansnap.checks import InputError, check_float, check_integer
from scansnap.checks.extras import missing_package
from scansnap.cluster import watch

_owns_connection = False  # whether the connection ends with the work


@dataclass(frozen=True)
class Cluster:
    """The address of a cluster and the resources of a task."""

    address: str | None = None  # None: start Ray on this machine
    cpus: int = 1  # and as many threads
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_integer("--cpus-per-group", self.cpus, least=1)
        check_float("--gpus-per-group", self.gpus, least=0)

    @contextmanager
    def connected(self, memory: int = 0) -> Iterator[Any]:
        """Connect to Ray unless it is connected. ``memory``: bytes of the largest task."""
        global _owns_connection
        ray = import_ray()
        if ray.is_initialized():
            yield ray
            return
        watcher = None
        try:
            self._start(ray)
            _owns_connection, watcher = True, watch.start()
            if self.address is None:
                self.check_capacity(ray.cluster_resources(), memory)
            yield ray
        finally:
            ray.shutdown()
            _owns_connection = False
            if watcher is not None:
                watcher.communicate()  # it ends what is left, and itself

    def check_capacity(self, have: Mapping[str, float], memory: int) -> None:
        """Refuse a task larger than this machine: it would wait forever."""
        wanted = {"CPU": ("--cpus-per-group", self.cpus), "GPU": ("--gpus-per-group", self.gpus),
                  "memory": ("--memory", memory)}  # fmt: skip
        for name, (option, n) in wanted.items():
            if have.get(name, 0) < n:
                show = "{:.4g} bytes".format if name == "memory" else "{:g}".format
                raise InputError(option, show(n), f"at most {show(have.get(name, 0))}, what Ray has on this machine")

    def _start(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what it warns will be the default
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        options |= {"address": self.address} if self.address else {"address": "local", "include_dashboard": False}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves its log files to the collector
                warnings.simplefilter("ignore", FutureWarning)
                with _keep_signal_handlers():
                    ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError("--address", self.address, f"the address of a running Ray cluster ({reason})") from None


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore the handler of SIGTERM: Ray's own ends the driver before it has saved its results."""
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


def owns_connection() -> bool:
    """Whether the connection was made here, and ends with the work."""
    return _owns_connection


def import_ray() -> Any:
    """Import Ray; InputError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise missing_package("--engine", "ray", "local", "ray") from None
    return ray
