"""Talking to people: a progress bar on a terminal, plain lines off one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
SILENT = 2.0  # seconds between lines of progress, and before the first
err = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(label: str) -> Iterator[Any]:
    """A progress callback (done, total) that shows pace and time left: on a terminal a bar, off one lines.

    The pace is that since the first call, which says what was done before.

    Off a terminal it is silent for what ends within two seconds.
    """
    said = time.monotonic()
    first: tuple[float, float] | None = None  # when, and what was done by then

    def words(done: float, total: float) -> str:
        nonlocal first
        now = time.monotonic()
        began, before = first = first or (now, done)
        rate = (done - before) / max(now - began, 1e-9)
        pace = f", {rate:.3g}/s, about {duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{done:.0f}/{total:.0f}{pace}"

    if err.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task(label, total=None, words="")
            yield lambda done, total: bar.update(task, completed=done, total=total, words=words(done, total))
        return

    def line(done: float, total: float) -> None:
        nonlocal said
        text = words(done, total)
        if time.monotonic() - said >= SILENT:
            print(f"{label}: {text}", file=sys.stderr, flush=True)
            said = time.monotonic()

    yield line


def duration(seconds: float) -> str:
    """12 s, 3 min, 2.5 h or 4.1 days."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def say_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, default=_number))


def _number(value: Any) -> Any:
    return value.item()  # NumPy's numbers as Python's
