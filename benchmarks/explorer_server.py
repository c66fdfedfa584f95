"""The explorer as a process of its own, and what it and all it started take of the machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(*options: str) -> Iterator[tuple[int, str]]:
    """Its process and its link; it ends with the block."""
    command = [sys.executable, "-m", "scansnap", "serve", "--port", "0", "--no-open", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            link = re.search(r"http://\S+", server.stderr.readline())
            if link is None:
                sys.exit("Error: the server did not start.")
            yield server.pid, link.group()
        finally:
            server.send_signal(signal.SIGINT)


def family(pid: int) -> list[int]:
    """A process and all it started."""
    found, parents = [pid], {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def mebibytes(pid: int) -> float:
    """Memory of a process and all it started, what they share counted once (PSS)."""
    total = 0
    for one in family(pid):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])  # type: ignore[index]
    return total / 1024


def processor_seconds(pid: int) -> float:
    total = 0.0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total
