"""Processes that work for this one: they end when it stops waiting for them or ends itself, and take one core each.

And its memory.
"""

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

from scansnap.interrupt import deaf_children

_warm = False  # whether there is a process to fork from


def warm(modules: list[str]) -> None:
    """Begin to load these modules in a process beside this one; those of :func:`ending_at_once` are forked from it.

    It has one thread and does nothing else, so that a fork of it is safe; where there is no such thing (Windows),
    each process loads them itself.
    """
    global _warm
    if "forkserver" in get_all_start_methods():
        from multiprocessing.forkserver import ensure_running, set_forkserver_preload

        set_forkserver_preload(modules)
        _tracked()
        with single_threaded_children(), deaf_children():
            ensure_running()
        _warm = True


def _tracked() -> None:
    """Start multiprocessing's tracker of shared things now: it comes with the first process, and where that is to hear
    no signals (:func:`~scansnap.interrupt.deaf_children`) its start would have them heard again.
    """
    if os.name == "posix":
        from multiprocessing.resource_tracker import ensure_running

        ensure_running()


@contextmanager
def ending_at_once(
    n: int, begin: Callable[..., None] | None = None, given: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Processes that do not finish all that was asked for when one stops waiting; each starts with begin(*given)."""
    others = set(active_children())
    _tracked()
    context = get_context("forkserver" if _warm else "spawn")
    with ProcessPoolExecutor(n, context, _begin, (begin, given)) as pool:
        try:
            yield pool
        except BaseException as error:
            for child in set(active_children()) - others:
                child.kill()
            pool.shutdown(cancel_futures=True)  # its thread joins them: of two that wait for a child one never hears
            if isinstance(error, BrokenProcessPool):
                raise MemoryError("a process at work was ended by the system") from None
            raise


def end_with_parent() -> None:
    """In a process that works for another: end at once when that one has ended, however it did.

    By a pipe whose other end only the parent has, as the parent's number does not tell: a process of the fork server
    has that as its parent, and a death signal of Linux comes with the end of the *thread* that started it.
    """
    threading.Thread(target=_wait_for_parent, daemon=True, name="wait-for-parent").start()


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _begin(begin: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    end_with_parent()
    if begin is not None:
        begin(*given)


@contextmanager
def single_threaded_children() -> Iterator[None]:
    """One process per core already: libraries in them that start threads of their own only get in the way.

    They read these variables when they are loaded, so nothing later than the start of the process helps.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cores() -> int:
    """How many this process may use, which in a container may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch could not allocate a tensor: on a GPU it has an error for that, on a CPU only words."""
    words = "DefaultCPUAllocator", "Storage size calculation overflowed"
    return type(error).__name__ == "OutOfMemoryError" or any(one in str(error) for one in words)


def peak_memory() -> int | None:
    """The most resident memory of this process so far, in bytes; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
