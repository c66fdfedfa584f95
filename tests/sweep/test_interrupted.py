"""The real command in processes of its own, ended in every way a process can end."""

from __future__ import annotations

import os
import resource
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


def start(folder: Path, *words: str, limit: int | None = None, hold: int = 0) -> subprocess.Popen[str]:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-c", COMMAND, "sweep", "sweep.toml", "--out", "s.zarr"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "HOLD": str(hold)}
    return subprocess.Popen([*command, "--device", "cpu", *words], cwd=folder, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limited)  # fmt: skip


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


@pytest.mark.integration
def test_a_file_size_limit_is_one_sentence_and_resumable(tmp_path):
    """RLIMIT_FSIZE makes the kernel refuse writes, as a full disk does, from a file of this size on."""
    text = LONG.replace("steps = 40", "steps = 80").replace(
        "record = [0, 10, 40]", 'record = "all"\nvariables = ["attention", "loss"]'
    )
    reference, store = tmp_path / "reference.zarr", tmp_path / "s.zarr"
    assert run(prepare(read(write(tmp_path, text)), reference, device="cpu")).complete
    first, second = (
        [p.stat().st_size for p in reference.glob(f"classes-{s}.zarr/attention/c/*/*/*/*")] for s in (0, 1)
    )
    limit = (max(first) + min(second)) // 2  # the second class set has more tokens
    assert max(first) < limit < min(second)
    assert max(p.stat().st_size for p in reference.rglob("zarr.json")) < limit, "the store itself could not be begun"
    code, out, err = finish(start(tmp_path, limit=limit))
    assert code == 1, err
    assert out == ""
    assert "could not be written" in " ".join(err.split())
    assert "--resume" in err
    assert "Traceback" not in err
    assert marks(store) == 3
    assert run(prepare(read(tmp_path / "sweep.toml"), store, resume=True)).complete
    assert contents(store) == contents(reference)
