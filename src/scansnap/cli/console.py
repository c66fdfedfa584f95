"""What commands print: text, JSON, and progress (a bar on a terminal, plain lines elsewhere)."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from scansnap.storage.json_text import to_json

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False, soft_wrap=True)
SILENT = 2.0  # seconds between lines of progress, and before the first


@contextmanager
def progress_bar(label: str) -> Iterator[Any]:
    """A progress callback (done, total) that shows pace and time left: a bar on a terminal, else lines.

    The pace is that since the first call, which reports what was done before. Lines begin after two seconds.
    """
    printed = time.monotonic()
    first: tuple[float, float] | None = None  # time, and what was done by then

    def text(done: float, total: float) -> str:
        nonlocal first
        now = time.monotonic()
        began, before = first = first or (now, done)
        rate = (done - before) / max(now - began, 1e-9)
        pace = f", {rate:.3g}/s, about {duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{done:.0f}/{total:.0f}{pace}"

    if err.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task(label, total=None, text="")
            yield lambda done, total: bar.update(task, completed=done, total=total, text=text(done, total))
        return

    def print_line(done: float, total: float) -> None:
        nonlocal printed
        line = text(done, total)
        if time.monotonic() - printed >= SILENT:
            print(f"{label}: {line}", file=sys.stderr, flush=True)
            printed = time.monotonic()

    yield print_line


def duration(seconds: float) -> str:
    """12 s, 3 min, 2.5 h or 4.1 days."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def new_table(*columns: str, right: Iterable[str] = (), no_wrap: Iterable[str] = ()) -> Table:
    """A table without lines; ``right`` are columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    right, no_wrap = set(right), set(no_wrap)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in no_wrap)
    return table


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """Strict JSON: NumPy's numbers as Python's, NaN and infinities as null."""
    return to_json(finite(value), indent=2, ensure_ascii=True)


def finite(value: Any) -> Any:
    """``value`` with NaN and infinities as None, which JSON has and CSV leaves empty; also inside lists and dicts."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
