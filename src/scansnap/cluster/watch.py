"""A process that kills what is left of a local Ray cluster after its driver has ended.

When a driver is killed, Ray's agents wait for a minute for a server that is gone, and a worker may just be starting.
All of them have the number of their raylet in their environment. This file runs as a script with that number. The
driver holds the other end of its standard input, which closes when the driver ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PROC = Path("/proc")  # Linux; elsewhere nothing is watched


def start() -> subprocess.Popen[bytes] | None:
    """A watcher of the raylet that this process has just started, if there is one."""
    for folder in _PROC.glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:  # it ended meanwhile
            continue
        if name.endswith("(raylet") and int(rest.split()[1]) == os.getpid():
            # a session of its own: Ctrl-C at the terminal is not for it
            return subprocess.Popen([sys.executable, "-I", __file__, folder.name], stdin=subprocess.PIPE,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    start_new_session=True)  # fmt: skip
    return None


def left(raylet: str) -> list[int]:
    """Processes of that raylet."""
    mark, pids = f"RAY_RAYLET_PID={raylet}".encode(), []
    for folder in _PROC.glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


def _watch(raylet: str) -> None:
    sys.stdin.buffer.read()
    while pids := left(raylet):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.2)


if __name__ == "__main__":
    _watch(sys.argv[1])
