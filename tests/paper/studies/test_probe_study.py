"""The study with the probe: its runs on a tiny text, what a row is, and a head that scans by construction."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from refusals import refused
from scansnap.paper.report import targets
from scansnap.paper.shared import job_pool
from scansnap.paper.shared.language_models import Architecture, Scale, TextSplits, build
from scansnap.paper.shared.text_runs import text_setting
from scansnap.paper.studies import probe
from scansnap.paper.studies.chosen_rates import SEEDS
from scansnap.paper.studies.probe import runs, training
from scansnap.paper.studies.probe.findings import halfway, share_learned
from scansnap.paper.studies.probe.training import DEEP, MODELS, TrainingProbes, TrainingRun

pytest.importorskip("transformers")

TINY = {"max_words": 40, "steps": 12, "seeds": 2, "valid_tokens": 400}
SCALE = Scale(width=16, heads=2, length=17, batch=8, watched=8)


@pytest.fixture(scope="module")
def small(effort, tmp_path_factory):
    """The tiny effort with models and grids to match, and a folder for finished runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runs.SIZES, (False, True), TINY)
        patch.setitem(runs.SCALE, "cpu", SCALE)
        patch.setattr(job_pool, "count_processes", lambda device: 1)
        patch.setitem(MODELS, DEEP, Architecture("gpt2", 3))
        patch.setitem(MODELS, "Llama, 4 layers", Architecture("llama", 2))
        for name, grid in runs.GRID.items():
            patch.setitem(runs.GRID, name, grid[1:3])
        yield replace(effort, cache_folder=tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def computed(small):
    calls = []
    result = probe.compute(small, lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1]
    return result


def test_every_head_of_every_training_has_a_row(computed):
    table = computed.table
    heads = table[table.kind == "head"]
    trainings = len(MODELS) * 2 * TINY["seeds"]
    assert len(heads) == sum(kind.layers for kind in MODELS.values()) * SCALE.heads * 2 * TINY["seeds"]
    assert not heads.duplicated(["model", "optimizer", "seed", "layer", "head"]).any()
    assert heads[["idf", "pmi", "cooccurrence"]].stack().between(-1, 1).all()
    assert heads.sink_end.between(0, 1).all()
    assert (heads.scan_low <= heads.scan_index).all()
    assert (heads.scan_index <= heads.scan_high).all()
    loss = table[table.kind == "loss"]
    assert loss.step.min() == 0
    assert loss.step.max() == TINY["steps"]
    ends = loss.groupby(["model", "optimizer", "seed"]).value.agg(["first", "last"])
    assert len(ends) == trainings
    assert (ends["last"] < ends["first"]).all()
    assert ends["last"].nunique() == trainings


def test_the_scan_of_a_layer_is_the_mean_of_its_heads(computed):
    table = computed.table
    keys = ["model", "optimizer", "seed", "layer"]
    last = table[(table.kind == "scan") & (table.step == TINY["steps"])].set_index(keys).value.sort_index()
    mean = table[table.kind == "head"].groupby(keys).scan_index.mean().sort_index()
    np.testing.assert_allclose(last, mean, atol=1e-12)
    assert (table[(table.kind == "scan") & (table.step == 0)].value == 0).all()


def test_rates_are_those_with_the_lowest_loss_and_the_grid_is_told(computed):
    told = computed.settings["rates"]
    assert len(told) == len(MODELS) * 2
    for name, rule in told.items():
        best = min(rule["grid"], key=lambda row: row["perplexity"])
        assert rule["chosen"] == {"eta": best["eta"]}, name
        assert rule["seeds"] == list(SEEDS)
        assert not set(rule["seeds"]) & set(computed.settings["seeds"])
    assert computed.settings["length"] == SCALE.length
    json.dumps(computed.settings)


def test_ten_statements_none_decided_by_so_little(computed):
    assert len(computed.findings) == 10
    assert {finding.kind for finding in computed.findings} == {"measured"}
    control = computed.findings[2]
    assert control.says.startswith("With distinctness permuted")
    assert control.of == (computed.table.kind == "head").sum()


def test_finished_runs_are_not_made_again(computed, small, monkeypatch):
    def never(job, text):
        raise AssertionError("trained again")

    monkeypatch.setattr(runs, "run", never)
    again = probe.compute(small)
    assert again.table.equals(computed.table)
    other = replace(small, cache_folder=None)
    with pytest.raises(AssertionError, match="trained again"):
        probe.compute(other)


def test_it_draws(computed):
    figure = probe.draw(computed)
    figure.draw_without_rendering()
    assert [ax.get_title() for ax in figure.axes[:3]] == list(MODELS)


def test_it_draws_and_counts_with_trainings_that_failed(computed):
    table = computed.table.copy()
    gone = (table.optimizer == "SGD") & (table.seed == 1) & (table.kind == "head")
    numbers = table.select_dtypes("float").columns.difference(["seed", "step", "layer", "head"])
    table.loc[gone, numbers] = np.nan
    table.loc[gone, ["verdict", "t_snap_ln_reason"]] = "failed"
    result = probe.findings(table)
    assert all(finding.disagree >= 3 for finding in result[:2])  # of the models with SGD none agrees
    probe.draw(replace(computed, table=table)).draw_without_rendering()


def streams(vocab_size=40, n=4_000):
    rng = np.random.default_rng(0)
    return TextSplits(*(rng.integers(vocab_size, size=size) for size in (n, 400, 400)))


def job(**changes):
    return replace(TrainingRun("GPT-2, 2 layers", "SGD", 0.1, 0, 3, SCALE, 40, "cpu", watch=True), **changes)


def test_a_rate_is_chosen_without_a_look_at_attention(monkeypatch):
    def never(*_, **__):
        raise AssertionError("looked")

    monkeypatch.setattr(training, "TrainingProbes", never)
    result = training.run(job(watch=False), streams())
    assert list(result) == ["loss"]
    assert result["loss"] == pytest.approx(math.log(40), abs=0.2)
    with pytest.raises(AssertionError, match="looked"):
        training.run(job(), streams())


def test_the_rate_stays_after_the_warm_up():
    """A schedule that decays would freeze attention by itself."""
    case = job(steps=60)
    model = build(MODELS[case.model], SCALE, 40, 0)
    optimizer = training.optimizer_of(case, model)
    windows = training.Windows(streams().train, SCALE.batch, SCALE.length)
    rates = [optimizer.param_groups[0]["lr"] for _ in training.updates(case, model, optimizer, windows)][1:]
    np.testing.assert_allclose(rates[:3], [0.1 / 3, 0.2 / 3, 0.1])
    assert set(rates[3:]) == {0.1}


def test_a_training_that_diverges_has_no_numbers():
    result = training.run(job(eta=1e9, steps=30), streams())
    assert set(result["verdict"].ravel()) == {"failed"}
    assert np.isnan(result["scan_index"]).all()
    assert np.isnan(result["control_scans"]).all()


@pytest.mark.integration
def test_another_process_gives_the_same(small, monkeypatch):
    jobs, setting, effort = {"one": job()}, text_setting(small, **TINY), replace(small, cache_folder=None)
    records, calls = [], []

    def progress(*at):
        calls.append(at)

    for n in (1, 2):
        monkeypatch.setattr(job_pool, "count_processes", lambda device, n=n: n)
        with job_pool.job_pool("probe", training.run, streams(), setting, effort, 3, progress) as run_jobs:
            records.append(run_jobs(jobs)["one"])
    assert calls == [(3, 3)] * 2
    for key, values in records[0].items():
        np.testing.assert_array_equal(records[1][key], values, err_msg=key)


class Scanner(torch.nn.Module):
    """Two heads whose logits are written down: one looks at rare words by ``strength``, one always alike."""

    def __init__(self, score):
        super().__init__()
        self.score, self.strength = score, torch.nn.Parameter(torch.zeros(2))

    def forward(self, input_ids):
        key = self.score[input_ids][:, None, :, None].expand(-1, 2, -1, -1)
        query = torch.ones_like(key) * self.strength.detach()[:, None, None]
        return F.scaled_dot_product_attention(query, key, key, is_causal=True, scale=1.0)


def test_a_head_built_to_scan_does_and_its_control_does_not():
    """Words are Zipf's; the first head turns to rare ones within thirty steps, the other stays."""
    m, steps = 200, [0, 1, 2, 3, 5, 8, 12, 18, 30]
    weights = 1 / np.arange(1, m + 1)
    train = np.random.default_rng(1).choice(m, size=20_000, p=weights / weights.sum())
    model = Scanner(torch.log(torch.arange(1.0, m + 1)))
    ids = torch.from_numpy(train[: 16 * 33].reshape(16, 33))
    controls = []
    for renaming in range(5):
        probes = TrainingProbes(model, ids, train, steps, vocab_size=m, renaming=renaming)
        for step in steps:
            model.strength.data[0] = step / 30
            probes.measure(step, loss=1.0)
        result = probes.record()
        assert result["scans"].tolist() == [[1.0, 0.0]]
        assert result["scan_index"][0, 0] > 0.1
        controls.append(result["control_scans"][0])
    assert not (np.array(controls) == 1).any()


def test_halfway_and_the_share_of_the_fall():
    steps = np.array([0, 1, 10, 100])
    assert halfway(steps, np.array([np.nan, 0.1, 0.3, 0.4])) == 10
    assert halfway(steps, np.array([np.nan, 0.3, 0.1, 0.4])) == 100  # it must stay
    assert math.isnan(halfway(steps, np.array([np.nan, 0.0, 0.0, 0.0])))
    loss = np.array([8.0, 8.0, 6.0, 4.0])
    assert share_learned(steps, loss, 10) == pytest.approx(0.5)
    assert share_learned(steps, loss, math.sqrt(1000)) == pytest.approx(0.75)
    assert math.isnan(share_learned(steps, loss, math.nan))


def test_without_transformers_the_target_is_refused(refuses, tmp_path, effort, monkeypatch):
    monkeypatch.setattr(targets, "installed", lambda name: False)
    refuses("TARGET", "reproduce", "table1", "probe", "--out", "x", names="transformers")
    assert not (tmp_path / "x").exists()
    with refused("TARGET", "probe", names="transformers"):
        probe.compute(effort)


def test_text_that_is_not_there_is_refused_before_any_work(scansnap, tmp_path):
    code, _, err = scansnap("reproduce", "probe", "--data", "nowhere", "--out", "x")
    assert code == 2
    assert "nowhere" in err
    assert len(err.strip().splitlines()) == 1
    assert not any((tmp_path / "x").glob("*"))
