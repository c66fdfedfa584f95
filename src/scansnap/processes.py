"""Child processes: they end with this process, or when it stops waiting for them, and use one core each."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_all_start_methods, get_context, parent_process
from typing import Any

from scansnap.interrupt import block_signals_in_children

_has_forkserver = False


def start_forkserver(modules: list[str]) -> None:
    """Load modules in a server process, from which `killable_pool` forks its processes.

    The server has one thread, so forking it is safe. Without one (Windows) each process loads the modules itself.
    """
    global _has_forkserver
    if "forkserver" in get_all_start_methods():
        from multiprocessing.forkserver import ensure_running, set_forkserver_preload

        set_forkserver_preload(modules)
        _start_resource_tracker()
        with single_threaded_children(), block_signals_in_children():
            ensure_running()
        _has_forkserver = True


def _start_resource_tracker() -> None:
    """Start multiprocessing's resource tracker now: started with the first process, it would unblock the signals that
    `scansnap.interrupt.block_signals_in_children` blocks.
    """
    if os.name == "posix":
        from multiprocessing.resource_tracker import ensure_running

        ensure_running()


@contextmanager
def killable_pool(
    n: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``n`` processes that are killed when the block raises; each starts with initializer(*initargs)."""
    earlier = set(active_children())
    _start_resource_tracker()
    context = get_context("forkserver" if _has_forkserver else "spawn")
    with ProcessPoolExecutor(n, context, _initialize, (initializer, initargs)) as pool:
        try:
            yield pool
        except BaseException as error:
            for child in set(active_children()) - earlier:
                child.kill()
            pool.shutdown(cancel_futures=True)  # its thread joins them: of two that wait for a child one never returns
            if isinstance(error, BrokenProcessPool):
                raise MemoryError("the system ended a worker process") from None
            raise


def exit_with_parent() -> None:
    """In a child process: exit at once when the parent has ended, for whatever reason.

    A pipe to the parent shows its end. The parent's number does not, as a process of the fork server has that as its
    parent, and Linux sends a death signal at the end of the *thread* that started the child.
    """
    threading.Thread(target=_wait_for_parent, daemon=True, name="wait-for-parent").start()


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _initialize(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    exit_with_parent()
    if initializer is not None:
        initializer(*initargs)


@contextmanager
def single_threaded_children() -> Iterator[None]:
    """Child processes started in the block run their numerical libraries with one thread, and reuse freed memory.

    The libraries read these variables when they are loaded, so they must be set before the process starts. Memory that
    goes back to the system after each operation costs a seventh of a small training step.
    """
    values = {**dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
              "MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}  # fmt: skip
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cpu_count() -> int:
    """Cores that this process may use; in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch could not allocate a tensor: on a GPU it has an error class for that, on a CPU only a message."""
    messages = "DefaultCPUAllocator", "Storage size calculation overflowed"
    return type(error).__name__ == "OutOfMemoryError" or any(message in str(error) for message in messages)


def peak_memory() -> int | None:
    """Peak resident memory of this process in bytes; None where the system does not report it (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
