"""Processes that are forked from one that has loaded what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from multiprocessing import get_all_start_methods
from pathlib import Path

import pytest

# asked of a process at work: is a module there that nobody imports, how many threads, which signals it does not hear
ASKED = """
import json
from scansnap.interrupt import block_signals_in_children
from scansnap.processes import killable_pool, start_forkserver
questions = ("'wave' in __import__('sys').modules", "__import__('os').environ.get('OMP_NUM_THREADS')",
             "sorted(map(int, __import__('signal').pthread_sigmask(0, [])))")
if __name__ == "__main__":
    {warm}
    with killable_pool(2) as pool:
        with block_signals_in_children():
            answers = [pool.submit(eval, one) for one in questions]
        print(json.dumps([one.result() for one in answers]))
"""


def answers(warm: str, folder: Path) -> list[object]:
    program = folder / "asked.py"
    program.write_text(ASKED.format(warm=warm))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.skipif("forkserver" not in get_all_start_methods(), reason="this system does not fork")
def test_they_find_the_modules_loaded_have_one_thread_and_leave_signals_to_their_parent(tmp_path):
    assert answers('start_forkserver(["wave"])', tmp_path) == [True, "1", [2, 15]]


def test_without_one_to_fork_from_each_begins_anew(tmp_path):
    loaded, _, deaf = answers("", tmp_path)
    assert not loaded
    assert deaf == [2, 15]
