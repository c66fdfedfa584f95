"""Run each example as a user does and check its output."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import scansnap as ss

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(run_as_main, tmp_path):
    def run(name: str, *options: str, files: tuple[str, ...] = ()) -> str:
        printed = run_as_main(EXAMPLES / name, *options)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
        return printed

    return run


def test_own_optimizer(run_example) -> None:
    numbers = [
        [float(n) for n in re.findall(r"\d+\.\d+", line)] for line in run_example("own_optimizer.py").splitlines()
    ]
    assert len(numbers) == 3
    for loss, after, *_ in numbers:
        assert after < loss
    assert numbers[0] != numbers[1] != numbers[2]


@pytest.mark.integration
def test_own_module(run_example) -> None:
    loss, difference = run_example("own_module.py").splitlines()
    before, after = map(float, re.findall(r"\d+\.\d+", loss))
    assert after < before
    assert float(difference.rsplit(" ", 1)[1]) < 1e-10


def test_own_data(run_example) -> None:
    *_, same, loss = run_example("own_data.py").splitlines()
    assert same == "seed 1 alone gives the same data: True"
    before, after, entropy = map(float, re.findall(r"\d+\.\d+", loss))
    assert before > 2 * entropy
    assert entropy - 0.02 < after < entropy + 0.05


def test_probe_seeds(run_example) -> None:
    by_index, by_similarity = run_example("probe_seeds.py", "20").splitlines()
    shares = [int(share) for line in (by_index, by_similarity) for share in re.findall(r"(\d+)%", line)]
    assert len(shares) == 8
    assert all(0 <= share <= 100 for share in shares)


def test_predict_transformer(run_example) -> None:
    """The full prediction is better than that of the embeddings; an early twin at a small rate is almost exact."""
    lines = run_example("predict_transformer.py", "--max-words", "60", "--steps", "10", "--rates", "0.5").splitlines()[
        2:
    ]
    rank = {
        name: float(value)
        for name, value in (re.match(r"\s+0.5\s+10 (.*?)\s+([+-]\S+)", line).groups() for line in lines)
    }
    assert list(rank) == ["all", "embeddings", "W_Q and W_K", "twin"]
    assert rank["twin"] > 0.999
    assert rank["twin"] > rank["all"] > rank["embeddings"]


def test_own_norm(run_example) -> None:
    """Half the rate, half the distance from the flow; another norm's flow would stay as far as it is."""
    numbers = [
        [float(n) for n in re.findall(r"\d+\.\d+(?:e-\d+)?", line)] for line in run_example("own_norm.py").splitlines()
    ]
    (rate, off), (smaller, less) = numbers
    assert (rate, smaller) == (0.1, 0.05)
    assert 0 < off < 0.01
    assert off / less == pytest.approx(2, abs=0.1)


def test_own_component(run_example) -> None:
    """Sigmoid attention beside softmax: the same observables, other numbers."""
    softmax, sigmoid = (
        dict(re.findall(r"(\w+) (-?\d+\.\d+) ", line)) for line in run_example("own_component.py").splitlines()
    )
    assert softmax.keys() == sigmoid.keys() > {"distinct_gap", "scan_order_end"}
    assert float(softmax["scan_order_end"]) == float(sigmoid["scan_order_end"]) == 1.0
    assert softmax["distinct_gap"] != sigmoid["distinct_gap"]


def test_probe_in_a_loop(run_example, tmp_path: Path) -> None:
    printed = run_example("probe_loop.py", files=("probe.zarr", "probe.html"))
    start, end = map(float, re.findall(r"\d\.\d+", printed))
    assert end > start + 0.05
    assert printed.endswith("; the probe captured all 2 attention modules\n")
    with ss.load(tmp_path / "probe.zarr") as data:
        assert float(data.train_loss[-1]) < 0.8 * float(data.train_loss[0])
        assert data.step.values.tolist()[-1] > 99


@pytest.mark.integration
@pytest.mark.skipif(find_spec("accelerate") is None, reason="the Trainer needs accelerate")
def test_probe_in_a_trainer(run_example, tmp_path: Path) -> None:
    lines = run_example("probe_trainer.py", files=("probe.zarr",)).splitlines()
    lines = [line for line in lines if not line.startswith("{")]  # what the Trainer says of its loss
    assert lines[0].startswith("No problem found in 4 heads")
    assert any(line.startswith("4 heads, ") and "from step 0 to " in line for line in lines)
    assert sum(line.startswith("transformer.h.") for line in lines) == 4
    with ss.load(tmp_path / "probe.zarr") as data:
        assert "".join(data.words.values[data.tokens.values[0]]).startswith("the cat sat on the mat")


def test_probe_of_checkpoints(run_example, tmp_path: Path) -> None:
    lines = run_example("probe_checkpoints.py", files=("probe.zarr", "run", "ids.npy")).splitlines()
    assert re.fullmatch(
        r"step_1000.pt has the weights of step_100.pt \(sha \w+\): measured once, at step 100", lines[0]
    )
    assert any("3 measurements from step 0 to 100" in line for line in lines)
