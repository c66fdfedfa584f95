"""Trainings that leave most of a GPU, or of a machine's cores, idle: several at once, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

from scansnap.interrupt import deaf_children
from scansnap.processes import ending_at_once, single_threaded_children

T = TypeVar("T")
Work = Callable[[Callable[..., Any], dict[Any, tuple[Any, ...]], Callable[[Any], None]], dict[Any, Any]]


def cores() -> int:
    return os.cpu_count() or 1


@contextmanager
def crew(n: int, begin: Callable[..., None], *given: Any) -> Iterator[Work]:
    """work(function, tasks, told): function(*arguments) for each named task, n at a time, the first ones begun first.

    begin  is called with what is given in each process before its first task (here, if n is 1)
    told   is called with a task's name when it is done
    """
    if n == 1:
        begin(*given)

        def one_by_one(
            function: Callable[..., T], tasks: dict[Any, tuple[Any, ...]], told: Callable[[Any], None]
        ) -> dict[Any, T]:
            found = {}
            for name, arguments in tasks.items():
                found[name] = function(*arguments)
                told(name)
            return found

        yield one_by_one
        return
    with single_threaded_children(), ending_at_once(n, begin, given) as pool:

        def together(
            function: Callable[..., T], tasks: dict[Any, tuple[Any, ...]], told: Callable[[Any], None]
        ) -> dict[Any, T]:
            with deaf_children():
                pending = {pool.submit(function, *arguments): name for name, arguments in tasks.items()}
            found = {}
            for finished in as_completed(pending):
                found[pending[finished]] = finished.result()
                told(pending[finished])
            return {name: found[name] for name in tasks}

        yield together
