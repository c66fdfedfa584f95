"""A pool of processes that does its work in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any


class LocalPool:
    """Stands for ``ProcessPoolExecutor``, whatever its options."""

    def __init__(self, *args: object, **options: object) -> None: ...

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *problem: object) -> None: ...

    def shutdown(self, **options: object) -> None: ...

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done


@contextmanager
def local_pool(n: int) -> Iterator[LocalPool]:
    """Stands for `scansnap.processes.killable_pool`."""
    yield LocalPool()
