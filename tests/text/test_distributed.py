"""Batches of a transformer in parts, in turn or over two processes, and how trainings of several processes end.

Run as a program by each of two processes, this file trains the models that `test_two_processes` compares.
"""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import small_text
import torch
from small_text import stream, transformer, yz

from refusals import refused
from scansnap.text.distributed import World, joined
from scansnap.text.model_files import check, read_header
from scansnap.text.training import train

# Sums over parts are rounded otherwise, a few 1e-16 in each step. Adam divides by the root of a mean square, which is
# tiny where a gradient is, so there weights differ by 1e-12; losses never by more than 1e-15.
LOSS, WEIGHT = 1e-13, 1e-10
COMMON = {"steps": 12, "batch": 6, "length": 7, "shuffle": 1}
KINDS = {
    "clipped": {"clip": 0.5},
    "adam, tied, 2 layers": {"optimizer": "adam", "eta": 0.01, "layers": 2, "tied": True},
    "no bias, weight decay": {"bias": False, "weight_decay": 0.01},
}
DRAWN = {"dropout": 0.2, "objective": "masked"}


def trained(options, **training):
    model = transformer(**({"dtype": "float64", "dropout": 0.0} | options))
    losses = train(model, stream(), **(COMMON | training)).losses
    return losses, {name: tensor.clone() for name, tensor in model.tensors().items()}


def assert_same(a, b):
    np.testing.assert_allclose(a[0], b[0], rtol=0, atol=LOSS)
    assert np.abs(np.diff(a[0])).min() > 1e-6  # the model learns
    for name, tensor in a[1].items():
        torch.testing.assert_close(tensor, b[1][name], rtol=0, atol=WEIGHT, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_gradients_are_those_of_the_larger_batch(kind):
    assert_same(trained(KINDS[kind]), trained(KINDS[kind], batch=2, accumulate=3))


def test_a_resumed_accumulation_is_the_same_to_the_bit(tmp_path):
    options = {"batch": 2, "accumulate": 3, "checkpoint": tmp_path / "run.safetensors"}
    trained(DRAWN, **options, steps=5)
    losses, weights = trained(DRAWN, **options, resume=True)
    whole = trained(DRAWN, batch=2, accumulate=3)
    np.testing.assert_array_equal(losses, whole[0])
    assert all(torch.equal(tensor, weights[name]) for name, tensor in whole[1].items())
    assert read_header(tmp_path / "run.safetensors").data["batch"] == 6
    with refused("checkpoint", names="data"):
        trained(DRAWN, **options | {"accumulate": 2}, resume=True)


@pytest.mark.parametrize(
    ("field", "build", "options"),
    [
        (("accumulate", 2), yz, {"accumulate": 2}),
        (("WORLD_SIZE", 2), yz, {"world": World(0, 2, 0)}),
        (("batch", 5), transformer, {"batch": 5, "world": World(0, 2, 0)}),
    ],
)
def test_divisions_that_cannot_be_are_refused(field, build, options):
    with refused(field):
        train(build(), stream(), **(COMMON | options))


def start(words, n=2, ranks=None):
    """Processes of one training, as torchrun starts them; ``ranks``: only those."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(small_text.__file__).parent
    paths = os.pathsep.join([str(folder), str(folder.parent), os.environ.get("PYTHONPATH", "")])
    common = os.environ | {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                           "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}  # fmt: skip
    return [
        subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in (range(n) if ranks is None else ranks)
    ]  # fmt: skip


def ended(processes):
    """Exit codes, outputs and errors."""
    texts = [process.communicate(timeout=300) for process in processes]
    return [process.returncode for process in processes], *map(list, zip(*texts, strict=True))


def main(folder):
    torch.set_num_threads(1)
    with joined() as world:
        results = {kind: trained(options, world=world) for kind, options in KINDS.items()}
        results["accumulated"] = trained(KINDS["clipped"], world=world, batch=2, accumulate=3)
        file = Path(folder) / "run.safetensors"
        trained(DRAWN, world=world, checkpoint=file, steps=5)
        results["resumed"] = trained(DRAWN, world=world, checkpoint=file, resume=True)
        results["whole"] = trained(DRAWN, world=world)
        (Path(folder) / f"{world.rank}.pickle").write_bytes(pickle.dumps(results))


def test_two_processes(tmp_path):
    """They train as one process does, to rounding; both have the same weights; a resumed training is the same."""
    codes, out, err = ended(start([__file__, tmp_path]))
    assert (codes, out) == ([0, 0], ["", ""]), err
    first, second = (pickle.loads((tmp_path / f"{rank}.pickle").read_bytes()) for rank in range(2))
    for kind, (losses, weights) in first.items():
        np.testing.assert_array_equal(losses, second[kind][0], err_msg=kind)
        assert all(torch.equal(tensor, second[kind][1][name]) for name, tensor in weights.items()), kind
    for kind, options in KINDS.items():
        assert_same(trained(options), first[kind])
    assert_same(trained(KINDS["clipped"]), first["accumulated"])
    np.testing.assert_array_equal(first["resumed"][0], first["whole"][0])


LINES = ["the cat sat on the mat", "the dog ran in the park", "a cat and a dog met on the mat", "we saw the park"]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A folder with a text, and the words of a training on it."""
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for i, split in enumerate(("train", "valid", "test")):
        lines = [LINES[(n * (i + 1)) % 4] for n in range(200 if split == "train" else 30)]
        (tmp_path / "text" / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ("-m", "scansnap", "text", "train", "--model", "transformer", "--width", 8, "--dropout", 0, "--data", "text",
            "--batch", 4, "--length", 8, "--device", "cpu", "--out", "m.safetensors")  # fmt: skip


def wait_for_checkpoint(folder, processes):
    while not (folder / "m.safetensors").exists():
        assert [process.poll() for process in processes] == [None, None], ended(processes)
        time.sleep(0.02)


@pytest.mark.integration
def test_ctrl_c_in_any_process_ends_all_and_loses_nothing(command, tmp_path, scansnap):
    processes = start([*command, "--steps", 10**6, "--checkpoint-seconds", 0])
    wait_for_checkpoint(tmp_path, processes)
    processes[1].send_signal(signal.SIGINT)
    codes, out, err = ended(processes)
    assert (codes, out, err[1]) == ([130, 130], ["", ""], "")
    step = read_header(tmp_path / "m.safetensors").step
    assert err[0].splitlines()[-1].startswith(f"Stopped after {step} of 1000000 steps.")
    steps = step + 5
    codes, out, err = ended(start([*command, "--steps", steps, "--resume", "--json"]))
    assert codes == [0, 0], err
    assert out[1] == err[1] == ""
    summary = json.loads(out[0])
    assert (summary["steps"], summary["processes"]) == (steps, 2)
    whole = json.loads(scansnap(*command[2:-1], "whole.safetensors", "--steps", steps, "--json")[1])
    assert summary["perplexity"] == pytest.approx(whole["perplexity"], rel=1e-3)
    assert whole["processes"] == 1


@pytest.mark.integration
def test_a_process_that_dies_ends_the_others(command, tmp_path):
    processes = start([*command, "--steps", 10**6, "--checkpoint-seconds", 0])
    wait_for_checkpoint(tmp_path, processes)
    processes[1].kill()
    codes, _, err = ended(processes)
    assert (codes, err[1]) == ([1, -signal.SIGKILL], "")
    assert err[0].splitlines()[-1].startswith("Error: one of the 2 processes has ended")
    assert "m.safetensors" in err[0].splitlines()[-1]
    check(tmp_path / "m.safetensors")


@pytest.mark.integration
@pytest.mark.parametrize(("options", "field"), [(("--batch", 1), "--batch"), (("--model", "yz"), "WORLD_SIZE")])
def test_one_process_reports_an_error(command, tmp_path, options, field):
    words = command[:6] + command[10:] if "yz" in options else command
    codes, out, err = ended(start([*words, "--steps", 3, *options]))
    assert sorted(codes) in ([1, 2], [2, 2])
    assert out == ["", ""]
    [line] = "".join(err).splitlines()
    assert line.startswith(f"Error: {field}")
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.integration
def test_processes_that_do_not_join_are_waited_for_as_long_as_the_timeout(command):
    codes, _, err = ended(start([*command, "--timeout", 1], ranks=[0]))
    assert codes == [1]
    [line] = err[0].splitlines()
    assert line.startswith("Error: the 2 processes could not connect at 127.0.0.1:")


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ("MASTER_ADDR", None)),
    ],
)
def test_an_environment_that_names_no_processes_is_refused(refuses, monkeypatch, environment, field):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    refuses(field, "text", "train", "--steps", 3, "--device", "cpu")


@pytest.mark.integration
def test_torchrun_starts_it(command):
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *command, "--steps", 3, "--json")
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["steps"], summary["processes"]) == (3, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
