"""The CUDA kernels compiled by the C++ compiler and run on the CPU (emulated.h), in the place of the driver's."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from scansnap.kernels.cuda.runs import Machine

COMPILER = shutil.which("g++") or shutil.which("clang++")
_STRUCTS = {"train": "Job", "sample": "Draws"}
_FOLDER = tempfile.TemporaryDirectory()


class Kernel:
    """As ``compiler.Kernel``."""

    def __init__(self, source: str, name: str, options: tuple[str, ...], shared_bytes: int) -> None:
        defined = tuple(option for option in options if option.startswith("-D"))
        self.library, self.shared_bytes = _compiled(source, name, defined), shared_bytes

    def blocks(self, threads: int) -> int:
        return 1

    def launch(self, blocks: int, threads: int, job: ctypes.Structure) -> None:
        self.library.emulate(blocks, threads, self.shared_bytes, ctypes.byref(job))


@cache
def _compiled(source: str, name: str, options: tuple[str, ...]) -> ctypes.CDLL:
    kind = _STRUCTS[name]
    text = "\n".join([
        (Path(__file__).parent / "emulated.h").read_text(), source,
        f"static const {kind} *given;", f"static void call() {{ {name}(*given); }}",
        f'extern "C" void emulate(int blocks, int threads, int shared_bytes, const {kind} *job) {{',
        "    given = job;", "    emulated::launch(blocks, threads, shared_bytes, call);", "}",
    ])  # fmt: skip
    stem = Path(_FOLDER.name) / hashlib.sha256("\n".join([text, *options]).encode()).hexdigest()[:24]
    stem.with_suffix(".cpp").write_text(text)
    assert COMPILER is not None
    command = [COMPILER, "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC", *options,
               str(stem.with_suffix(".cpp")), "-o", str(stem.with_suffix(".so"))]  # fmt: skip
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(stem.with_suffix(".so")))


MACHINE = Machine(torch.device("cpu"), Kernel, multiprocessors=2, shared_bytes=227 << 10, tensor_cores=True)
