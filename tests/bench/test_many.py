"""Very many runs: every run once, in batches, and what the limits count."""

import json

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap.bench import many, plain
from scansnap.paper.experiment import SYN_MEDIUM


def test_batches_make_every_run_once(monkeypatch):
    """Three batches are the runs of one list, with the means over all of them; the plain loop is scaled up."""
    made, done = [], []
    train = SYN_MEDIUM.train
    monkeypatch.setattr(many, "BATCH", 20 * 128)
    monkeypatch.setattr(
        type(SYN_MEDIUM), "train", lambda _, classes, runs, **o: made.append(runs) or train(classes, runs, **o)
    )
    monkeypatch.setattr(plain, "train", lambda classes, steps, **_: np_attention(classes))
    result = many.measure(50, "cpu", n_queries=1, progress=lambda n, of: done.append((n, of)))
    _, *batches, _ = made  # a warm-up before and the plain loop's runs after
    assert [len(runs) for runs in batches] == [20, 20, 10]
    assert done == [(20, 50), (40, 50), (50, 50)]
    table = np.concatenate([np.stack([runs.eta_y, runs.eta_z, runs.seed], 1) for runs in batches])
    whole = ss.grid(eta_z=SYN_MEDIUM.eta_z, ratio=SYN_MEDIUM.ratio, seed=range(4))
    wanted = np.stack([whole.eta_y, whole.eta_z, whole.seed], 1)
    wanted = wanted[np.lexsort(wanted.T[::-1])]
    assert len(np.unique(table, axis=0)) == 50
    assert {tuple(row) for row in table} <= {tuple(row) for row in wanted}
    assert result.runs_per_second == pytest.approx(50 / result.seconds)
    assert 0 < result.entropy < np.log(10)


def np_attention(classes):
    import torch

    return torch.tensor(classes.p_context)


def test_what_a_run_costs():
    """Syn-Medium(1): 2 classes of 20 tokens, 30 rows of Y, M = 33; 100 steps of 128 samples."""
    flop, table_bytes = many.work(ss.SequenceClasses.syn_medium(1))
    assert flop == 100 * 128 * 20 * 33 * 2 * 2
    assert table_bytes == 100 * 33 * 4 * (2 * 20 + 4 * 30)


def test_the_command_tells_and_refuses(monkeypatch, capsys):
    from scansnap.cli.bench import bench

    with refused("runs"):
        many.measure(0, "cpu")
    monkeypatch.setattr(plain, "train", lambda classes, steps, **_: np_attention(classes))
    assert bench(runs=16, queries=1, device="cpu", as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 16
    assert found["vocab_size"] == 33
    assert found["flop_limit"] is None
