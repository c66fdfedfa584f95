"""How long one waits: for `import scansnap`, for the command's help, for the figures.

python benchmarks/waiting.py [--rounds 5] [--reproduce synthetic] [--data DIR]

Every start is a new process. Beside it stand the interpreter alone, which is the limit, and a plain import of what the
engine computes with (torch, numpy, scipy and xarray), which is what a package pays that imports them at once; the best
of the rounds, in turn.

With --reproduce the targets are also made, into a folder that is thrown away: the wall time of the command, its
processor time with that of its children, and the time one after the other (the sum of the targets' own seconds). The
limit is the processor time divided by the cores.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

STARTS = {
    "the interpreter alone": ["-c", "pass"],
    "import scansnap": ["-c", "import scansnap"],
    "scansnap --help": ["-m", "scansnap", "--help"],
    "import torch, numpy, scipy.integrate, xarray": ["-c", "import torch, numpy, scipy.integrate, xarray"],
}


def waited(words: list[str]) -> float:
    """Seconds of one process from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def starts(rounds: int) -> None:
    best = dict.fromkeys(STARTS, float("inf"))
    for _ in range(rounds):
        best = {name: min(best[name], waited(words)) for name, words in STARTS.items()}
    alone = best["the interpreter alone"]
    print(f"{'':46}{'seconds':>9}{'without the interpreter':>26}")
    for name, seconds in best.items():
        print(f"{name:46}{seconds:9.3f}{seconds - alone:26.3f}")


def adopting() -> None:
    """Processes whose parent has ended become this one's (Linux): one that others were forked from ends last of all,
    and its processor time with theirs counts only where somebody waits for it.
    """
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def reproduction(targets: list[str], data: str | None) -> None:
    adopting()
    with tempfile.TemporaryDirectory() as folder:
        words = ["reproduce", *targets, "--out", folder, "--json", *(["--data", data] if data else [])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "scansnap", *words], check=True, stdout=subprocess.PIPE)
        wall = time.perf_counter() - began
        with suppress(ChildProcessError):
            while True:
                os.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)["targets"]
    cores = len(os.sched_getaffinity(0))
    print(f"\nscansnap reproduce {' '.join(targets)}: {len(told)} targets, {cores} cores")
    one_by_one = sum(one["seconds"] for one in told.values())
    print(f"  wall {wall:.1f} s, one target after the other {one_by_one:.1f} s")
    print(f"  processor {busy:.1f} s, so the limit is {busy / cores:.1f} s")
    for name, one in sorted(told.items(), key=lambda item: -item[1]["seconds"]):
        print(f"  {name:12}{one['seconds']:8.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reproduce", nargs="+", default=[], help="targets to make, such as synthetic or all")
    parser.add_argument("--data", help="text for the targets on text")
    given = parser.parse_args()
    starts(given.rounds)
    if given.reproduce:
        reproduction(given.reproduce, given.data)
