"""How a training of several processes ends: well, by Ctrl-C in any of them, or by the loss of one."""

import json
import signal
import subprocess
import sys
import time

import pytest
from divided import start

from scansnap.text.model_files import check, read_header

LINES = ["the cat sat on the mat", "the dog ran in the park", "a cat and a dog met on the mat", "we saw the park"]
PATIENT = 300  # for hangs


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A folder with a text, and the words of a training on it."""
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for i, split in enumerate(("train", "valid", "test")):
        lines = [LINES[(n * (i + 1)) % 4] for n in range(200 if split == "train" else 30)]
        (tmp_path / "text" / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ("-m", "scansnap", "text", "train", "--data", "text", "--batch", 4, "--length", 8, "--eta-y", 20,
            "--eta-z", 2, "--device", "cpu", "--out", "m.safetensors")  # fmt: skip


def ended(processes):
    """Exit codes, and what was said."""
    said = [process.communicate(timeout=PATIENT) for process in processes]
    return [p.returncode for p in processes], [out for out, _ in said], [err for _, err in said]


def begun(folder):
    """Wait for the first checkpoint."""
    while not (folder / "m.safetensors").exists():
        time.sleep(0.02)


@pytest.mark.integration
def test_ctrl_c_in_any_process_ends_all_and_loses_nothing(text, tmp_path, scansnap):
    processes = start([*text, "--steps", 10**6, "--checkpoint-seconds", 0])
    begun(tmp_path)
    processes[1].send_signal(signal.SIGINT)
    codes, out, err = ended(processes)
    assert codes == [130, 130]
    assert out == ["", ""]
    assert err[1] == ""
    step = read_header(tmp_path / "m.safetensors").step
    assert err[0].splitlines()[1:] == [
        f"Stopped after {step} of 1000000 steps. Nothing is lost: add --resume to go on."
    ]
    steps = step + 5  # two processes go on, to where one comes without them
    codes, out, err = ended(start([*text, "--steps", steps, "--resume", "--json"]))
    assert codes == [0, 0], err
    assert out[1] == err[1] == ""
    told = json.loads(out[0])
    assert (told["steps"], told["processes"]) == (steps, 2)
    assert told["received_bytes_per_step"] > 0
    whole = json.loads(scansnap(*text[2:-1], "whole.safetensors", "--steps", steps, "--json")[1])
    assert told["perplexity"] == pytest.approx(whole["perplexity"], rel=1e-4)
    assert (whole["processes"], whole["received_bytes_per_step"]) == (1, 0)


@pytest.mark.integration
def test_a_process_that_dies_ends_the_others(text, tmp_path):
    processes = start([*text, "--steps", 10**6, "--checkpoint-seconds", 0])
    begun(tmp_path)
    processes[1].kill()
    codes, _, err = ended(processes)
    assert codes == [1, -signal.SIGKILL]
    assert err[1] == ""
    step = read_header(tmp_path / "m.safetensors").step
    said = err[0].splitlines()[1:]
    assert len(said) == 1
    assert said[0].startswith("Error: another of the 2 processes has ended or does not answer")
    assert said[0].endswith(f"the state after {step} steps is in m.safetensors, go on with resume.")
    check(tmp_path / "m.safetensors")


@pytest.mark.integration
def test_what_is_refused_is_told_once(text, tmp_path):
    codes, out, err = ended(start([*text, "--steps", 3, "--batch", 1]))
    assert sorted(codes) in ([1, 2], [2, 2])
    assert out == ["", ""]
    [line] = "".join(err).splitlines()
    assert line.startswith("Error: batch")
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.integration
def test_processes_that_do_not_come_are_not_waited_for_longer_than_asked(text):
    codes, _, err = ended(start([*text, "--patience", 1], there=[0]))
    assert codes == [1]
    assert err[0].startswith("Error: the 2 processes did not find each other at 127.0.0.1:")
    assert len(err[0].splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "field"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ("MASTER_ADDR", None)),
    ],
)
def test_a_group_that_cannot_be_is_refused(refuses, monkeypatch, names, field):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    refuses(field, "text", "train", "--steps", 3, "--device", "cpu")


def test_torchrun_starts_it(text, tmp_path):
    """As in the manual; a group of one is a group too."""
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 1, *text, "--steps", 3, "--json")
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["steps"], told["processes"]) == (3, 1)
