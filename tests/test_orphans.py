"""Processes that work for another end when that one is killed.

They have their parent's output, so that its end is reached only when all of them are gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import get_all_start_methods
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")

# each process says that it is at work, in one write, and then waits for ever; the parent waits for them
POOL = """
from scansnap.interrupt import block_signals_in_children
from scansnap.processes import killable_pool, start_forkserver
work = "__import__('os').write(1, b'working\\\\n') and __import__('time').sleep(10**6)"
if __name__ == "__main__":
    {warm}
    with killable_pool(2) as pool:
        with block_signals_in_children():
            jobs = [pool.submit(eval, work) for _ in range(2)]
        jobs[0].result()
"""

# a command that says when it begins to wait for the processes that work for it
COMMAND = """
if __name__ == "__main__":
    import scansnap.{module} as module
    from scansnap.cli.app import main
    wait = module.{wait}
    def said(*given, **named):
        print("working", flush=True)
        return wait(*given, **named)
    module.{wait} = said
    main()
"""
DIAL = ("dial", "--component", "norm", "--quick", "--device", "cpu", "--jobs", "2", "--out", "dial")
HANGS = 600  # seconds
MAP = ("verify", "--map", "theorem-1", "--points", "8", "--out", "map.png")


def killed_and_alone(folder: Path, program: str, *words: str, n_lines: int = 1) -> None:
    """Kill a program when it has said that many lines, and wait until nobody has its output any more."""
    (folder / "program.py").write_text(program)
    process = subprocess.Popen([sys.executable, "program.py", *words], cwd=folder, text=True, process_group=0,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(n_lines)] == ["working\n"] * n_lines
        process.kill()
        process.communicate(timeout=HANGS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "warm",
    ["",
     pytest.param('start_forkserver(["wave"])', marks=pytest.mark.skipif("forkserver" not in get_all_start_methods(),
                                                                reason="this system does not fork"))],
    ids=["spawn", "forkserver"],
)  # fmt: skip
def test_a_pool_ends_with_its_parent(tmp_path, warm):
    killed_and_alone(tmp_path, POOL.format(warm=warm), n_lines=2)


@pytest.mark.parametrize(
    ("words", "module", "wait"), [(DIAL, "dial.cells", "wait"), (MAP, "claims.regime_map", "as_completed")]
)
def test_a_command_that_is_killed_leaves_no_process(tmp_path, words, module, wait):
    killed_and_alone(tmp_path, COMMAND.format(module=module, wait=wait), *words)
