"""``scansnap bench``: the plain loop and the engine train to the same entropy; every run is trained once."""

import json

import numpy as np
import pytest
import torch

import scansnap as ss
from refusals import refused
from scansnap.cli import benchmark
from scansnap.cli.bench import bench
from scansnap.paper.shared.medium_runs import SYN_MEDIUM


@pytest.fixture
def no_plain_loop(monkeypatch):
    monkeypatch.setattr(benchmark, "plain_loop", lambda classes, **_: torch.tensor(classes.p_context))


def test_the_plain_loop_and_the_engine_agree_within_their_noise():
    classes = ss.SequenceClasses.syn_medium(1)
    n = 4
    plain = [
        ss.measure.distinct_entropy(
            benchmark.plain_loop(classes, eta_y=2.0, eta_z=1.0, seed=s, steps=40).numpy(), classes
        ).mean()
        for s in range(n)
    ]
    engine = ss.simulate(classes, ss.grid(eta_z=1.0, eta_y=2.0, seed=range(4 * n)), steps=40, momentum=0.9,
                         init="uniform", record=[40]).entropy.isel(step=0).values.mean(1)  # fmt: skip
    error = np.hypot(np.std(plain, ddof=1) / np.sqrt(n), engine.std(ddof=1) / np.sqrt(4 * n))
    gap = abs(np.mean(plain) - engine.mean())
    assert gap < 5 * error, f"plain {np.mean(plain):.4f}, engine {engine.mean():.4f}, standard error {error:.4f}"
    assert np.mean(plain) < 2.1  # the start is 2.15


def test_batches_hold_every_run_once(monkeypatch, no_plain_loop):
    trained, done = [], []
    train = SYN_MEDIUM.train
    monkeypatch.setitem(benchmark.BATCH, "cpu", 20)
    monkeypatch.setattr(
        type(SYN_MEDIUM), "train", lambda _, classes, runs, **o: trained.append(runs) or train(classes, runs, **o)
    )
    result = benchmark.measure(50, (1,), "cpu", progress=lambda n, of: done.append((n, of)))
    _, *batches, _ = trained  # a warm-up before and the runs beside the plain loop after
    assert [len(runs) for runs in batches] == [20, 20, 10]
    assert done == [(20, 50), (40, 50), (50, 50)]
    table = np.concatenate([np.stack([runs.eta_y, runs.eta_z, runs.seed], 1) for runs in batches])
    grid = SYN_MEDIUM.runs(seeds=4)
    assert len(np.unique(table, axis=0)) == 50
    assert set(map(tuple, table)) <= set(zip(grid.eta_y, grid.eta_z, grid.seed, strict=True))
    assert result.runs_per_second == pytest.approx(50 / result.seconds)
    assert 0 < result.sizes[0].mean_entropy < np.log(10)


def test_cost_of_a_run():
    """Syn-Medium(1): 2 classes of 20 tokens, 30 rows of Y, M = 33; 100 steps of 128 samples."""
    flop, table_bytes = benchmark.work(ss.SequenceClasses.syn_medium(1))
    assert flop == 100 * 128 * 20 * 33 * 2 * 2
    assert table_bytes == 100 * 33 * 4 * (2 * 20 + 4 * 30)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_sizes_and_totals(no_plain_loop, capsys, as_json):
    assert bench(runs=16, queries=1, device="cpu", as_json=as_json) == 0
    printed = capsys.readouterr().out
    if not as_json:
        assert "runs/s" in printed
        return
    result = json.loads(printed)
    assert (result["runs"], result["sizes"][0]["vocab_size"], result["flop_limit"]) == (16, 33, None)


def test_no_runs_are_refused():
    with refused("runs"):
        benchmark.measure(0, (1,), "cpu")
