"""Find the shared library for this CPU, and call it on several threads."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import torch


def available() -> bool:
    """Whether the kernels of training were built when the package was installed."""
    return find("sampling") is not None and find("fused") is not None


@cache
def find(name: str, variant: str | None = None) -> Path | None:
    """The kernel's library: of a variant, or the best for this CPU's instruction set."""
    folder = Path(__file__).parent
    for build in (variant,) if variant else (torch.backends.cpu.get_cpu_capability().lower(), "default"):
        path = folder / f"_{name}_{build}{EXTENSION_SUFFIXES[-1]}"  # as setup.py calls it
        if path.exists():
            return path
    return None


@cache
def load(name: str) -> ctypes.CDLL:
    path = find(name)
    if path is None:
        raise RuntimeError(f"the compiled kernel {name} is not installed")
    return ctypes.CDLL(str(path))  # functions return int, which is what ctypes assumes


def in_threads(function: Any, total: int, constants: tuple[Any, ...], chunk: int) -> None:
    """function(first, last, *constants) over [0, total) in chunks, on as many threads as torch would use."""
    constants = tuple(ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else
                      ctypes.c_int64(a) if isinstance(a, int) else a for a in constants)  # fmt: skip
    threads = torch.get_num_threads()
    failed: list[Any]
    if threads == 1:  # no pool to start and to wait for: a live run makes many short calls
        failed = [function(ctypes.c_int64(0), ctypes.c_int64(total), *constants)]
    else:
        failed = _spread(function, total, constants, max(1, min(chunk, -(-total // threads))), threads)
    if any(failed):
        raise MemoryError("not enough memory for the scratch tables of a run")


def _spread(function: Any, total: int, constants: tuple[Any, ...], chunk: int, threads: int) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(function, ctypes.c_int64(a), ctypes.c_int64(min(a + chunk, total)), *constants)
                for a in range(0, total, chunk)]  # fmt: skip
        wait(jobs)
    return [job.result() for job in jobs]
