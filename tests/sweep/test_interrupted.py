"""The real command in processes of its own, ended in every way a process can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import contents, marks, write

from scansnap.sweep.config import read
from scansnap.sweep.run import prepare, run

# 6 groups on the general path
LONG = """
[classes]
preset = "syn-medium"
n_queries = [2, 3]
[grid]
eta_z = 0.5
ratio = [1, 2, 5, 10]
seed = "0:3"
[run]
steps = 40
batch_size = 32
optimizer = "adam"
record = [0, 10, 40]
[measure]
recall = {}
[groups]
runs = 4
"""


# after HOLD groups it waits for its end
COMMAND = """
import os, time
from unittest.mock import patch
from scansnap.sweep.store import RegionWriter
from scansnap.cli.app import main

write, written = RegionWriter.write, []

def counted(self, group, arrays):
    found = write(self, group, arrays)
    written.append(group)
    if len(written) == int(os.environ["HOLD"]):
        print("held", flush=True)
        time.sleep(600)
    return found

patch.object(RegionWriter, "write", counted).start()
main()
"""


def start(folder: Path, *words: str, hold: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COMMAND, "sweep", "sweep.toml", "--out", "s.zarr"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HOLD": str(hold)}
    return subprocess.Popen([*command, "--device", "cpu", *words], cwd=folder, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run(prepare(read(write(folder, LONG)), folder / "s.zarr", device="cpu")).complete
    return contents(folder / "s.zarr")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.integration),
        pytest.param(signal.SIGKILL, id="SIGKILL"),
    ],
)
def test_ended_in_the_middle_and_resumed_it_is_the_same_store(tmp_path, whole, number):
    write(tmp_path, LONG)
    store = tmp_path / "s.zarr"
    process = start(tmp_path, hold=3)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.send_signal(number)
    code, _, err = finish(process)
    assert marks(store) == 3
    if number == signal.SIGINT:
        assert code == 130
        assert "--resume" in err
        assert "Traceback" not in err
    else:
        assert code == -signal.SIGKILL
    code, out, err = finish(start(tmp_path, "--resume"))
    assert code == 0, err
    assert "were finished before" in out
    assert contents(store) == whole
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml", "s.zarr"}
