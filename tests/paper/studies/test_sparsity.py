"""Contextual sparsity: its table against the model's own numbers, and findings that can fail."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tiny_corpus import TINY

from scansnap.paper.shared.text_runs import transformer
from scansnap.paper.studies import sparsity
from scansnap.paper.studies.words.runs import MASSES, key_sparsity, sparsity_rows, word_runs
from scansnap.text.evaluation import evaluate


@pytest.fixture(scope="module")
def computed(effort):
    return sparsity.compute(effort)


def test_the_table_has_every_mass_layer_and_seed(computed):
    table = computed.table
    assert len(table) == (1 + 1 + 3) * len(MASSES) * TINY["seeds"]
    assert not table.duplicated(["model", "layer", "mass", "seed"]).any()
    assert table.share_needed.between(0, 1).all()
    by_mass = table.groupby(["model", "mass"]).share_needed.mean().unstack()
    assert (by_mass.diff(axis=1).iloc[:, 1:] >= 0).all().all()
    assert "YZ 30 steps, transformers 3 and 3; 2 seeds" in computed.note


def test_seeds_are_runs_of_their_own(computed):
    """Not pieces of the text that one run is judged on."""
    whole = computed.table.groupby(["model", "seed"]).perplexity.unique()
    assert (whole.map(len) == 1).all()
    assert (whole.groupby("model").agg(lambda result: result.explode().nunique()) == TINY["seeds"]).all()


def test_rows_are_the_measured_ones(effort):
    setting = word_runs(effort).setting
    model = transformer(setting, layers=1)
    result = {name: np.asarray(value) for name, value in key_sparsity(model, setting, [0.5, 0.8]).items()}
    rows = sparsity_rows(result, "one", 0)
    expected = evaluate(model, setting.valid, mass=0.8)
    row = rows[rows.mass == 0.8].iloc[0]
    assert row.share_needed == pytest.approx(expected["share_needed"][0])
    assert (row.perplexity, row.perplexity_kept) == pytest.approx(
        (expected["perplexity"], expected["perplexity_sparse"])
    )


def test_rates_are_those_of_the_rule_and_the_grid_is_told(computed, effort):
    told = computed.settings["rates"]
    assert set(told) == {"YZ", "transformer", "transformer, 3 layers"}
    assert word_runs(effort).chosen["YZ"].rates == told["YZ"]["chosen"]
    for rule in told.values():
        best = min(rule["grid"], key=lambda row: row["perplexity"])
        assert {name: best[name] for name in rule["chosen"]} == rule["chosen"]
        assert not set(rule["seeds"]) & set(computed.settings["seeds"])


def made(share, rise, seeds=3):
    noise = 1e-4 * np.random.default_rng(0).normal(size=seeds)
    return pd.DataFrame([{"model": m, "mass": mass, "seed": s, "layer": 1, "share_needed": share + noise[s],
                          "perplexity": 100.0, "perplexity_kept": 100.0 * (1 + rise + noise[s])}
                         for m in ("A", "B") for mass in (0.5, 0.95) for s in range(seeds)])  # fmt: skip


@pytest.mark.parametrize(("share", "rise", "seeds", "verdicts"), [
    (0.2, 0.001, 3, ["agrees", "agrees"]),
    (0.7, 0.05, 3, ["disagrees", "disagrees"]),
    (0.2, 0.00995, 3, ["agrees", "undecided"]),  # below one percent, but not beyond the noise of the seeds
    (0.2, 0.001, 1, ["undecided", "undecided"]),
])  # fmt: skip
def test_findings_are_judged_over_seeds(share, rise, seeds, verdicts):
    result = sparsity.findings(made(share, rise, seeds))
    assert [f.verdict for f in result] == verdicts
    assert {f.kind for f in result} == {"measured"}


def test_a_failed_training_is_neither_sparse_nor_cheap(effort):
    setting = word_runs(effort).setting
    nothing = key_sparsity(transformer(setting), setting, failed=True)
    table = made(0.2, 0.001)
    row = sparsity_rows({name: np.asarray(value) for name, value in nothing.items()}, "A", 1)
    at = (table.model == "A") & (table.seed == 1)
    for name in ("share_needed", "perplexity", "perplexity_kept"):
        assert row[name].isna().all()
        table.loc[at, name] = np.nan
    assert [f.agree for f in sparsity.findings(table)] == [1, 1]
    assert [f.disagree for f in sparsity.findings(table)] == [1, 1]


def test_the_runs_are_made_once(effort):
    assert word_runs(effort) is word_runs(effort)


def test_it_draws(computed):
    left, right = sparsity.draw(computed).axes
    assert left.get_xlabel() == "attention kept (%)"
    assert right.get_ylabel() == "rise of perplexity (%)"


def test_it_draws_with_runs_that_failed(computed):
    table = computed.table.copy()
    table.loc[table.model.str.startswith("YZ"), ["share_needed", "perplexity", "perplexity_kept"]] = np.nan
    table.loc[table.seed == 1, "perplexity_kept"] = np.inf
    sparsity.draw(replace(computed, table=table)).draw_without_rendering()
