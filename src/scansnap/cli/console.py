"""Talking to people: a progress bar on a terminal, plain lines off one; and numbers read from options."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scansnap.checks import InputError

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
MOST = 1_000_000  # numbers in a range
SILENT = 2.0  # seconds between lines of progress, and before the first
err = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(label: str) -> Iterator[Any]:
    """A callback (done, total); off a terminal silent for what ends within two seconds."""
    if err.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    began = said = time.monotonic()

    def line(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SILENT:
            left = (now - began) * (total - done) / max(done, 1)
            print(f"{label}: {done}/{total}, about {left:.0f} s left", file=sys.stderr, flush=True)
            said = now

    yield line


def say_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, default=_number))


def _number(value: Any) -> Any:
    return value.item()  # NumPy's numbers as Python's


def number(field: str, text: str) -> float | int:
    """An int where it looks like one, else a float."""
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise InputError(field, text, "a number") from None


def numbers(field: str, text: str) -> list[float | int]:
    """``0.5,1,2`` or, for whole numbers, ``0:10`` (10 not included)."""
    low, colon, high = text.partition(":")
    if colon:
        first, last = number(field, low), number(field, high)
        if not (isinstance(first, int) and isinstance(last, int) and first < last):
            raise InputError(field, text, "numbers separated by commas, or a range such as 0:10")
        if last - first > MOST:
            raise InputError(field, text, f"at most {MOST:,} numbers")
        return list(range(first, last))
    return [number(field, part.strip()) for part in text.split(",")]


def knobs(pairs: list[str]) -> dict[str, Any]:
    """``n_queries=3`` options as a dictionary; a list of numbers has commas."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError("--set", pair, "name=value, for example n_queries=3")
        values = numbers(name, text)
        found[name] = values if "," in text else values[0]
    return found
