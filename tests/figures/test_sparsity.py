"""Contextual sparsity: its table against the model's own numbers, and findings that can fail."""

import numpy as np
import pandas as pd
import pytest
from tiny_corpus import tiny_effort

from scansnap.figures import sparsity, word_runs
from scansnap.models.evaluate import contextual_sparsity


@pytest.fixture(scope="module")
def effort(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield tiny_effort(tmp_path_factory.mktemp("sparsity"), patch)


@pytest.fixture(scope="module")
def computed(effort):
    return sparsity.compute(effort)


def test_the_table_has_every_mass_layer_and_piece(computed):
    table = computed.table
    assert len(table) == (1 + 1 + 3) * len(word_runs.MASSES) * word_runs.BLOCKS
    assert table.share_needed.between(0, 1).all()
    by_mass = table.groupby(["model", "mass"]).share_needed.mean().unstack()
    assert (by_mass.diff(axis=1).iloc[:, 1:] >= 0).all().all()
    assert "YZ 30 steps, transformers 3 and 3" in computed.note


def test_rows_are_the_measured_ones(effort):
    setting = word_runs.word_run(effort).setting
    model = word_runs.transformer(setting, layers=1)
    rows = word_runs.sparsity_rows(model, setting, "one", masses=[0.8])
    piece = np.array_split(setting.valid, word_runs.BLOCKS)[2]
    expected = contextual_sparsity(model, piece, mass=0.8)
    row = rows[rows.block == 2].iloc[0]
    assert row.share_needed == pytest.approx(expected["share_needed"][0])
    assert (row.perplexity, row.perplexity_kept) == pytest.approx((expected["perplexity"], expected["perplexity_kept"]))


def made(share, rise):
    return pd.DataFrame([{"model": m, "mass": mass, "block": b, "layer": 1, "share_needed": share, "perplexity": 100.0,
                          "perplexity_kept": 100.0 * (1 + rise + 1e-4 * b)}
                         for m in ("A", "B") for mass in (0.5, 0.95) for b in range(5)])  # fmt: skip


@pytest.mark.parametrize(("share", "rise", "verdicts"), [
    (0.2, 0.001, ["agrees", "agrees"]),
    (0.7, 0.05, ["disagrees", "disagrees"]),
    (0.2, 0.0097, ["agrees", "disagrees"]),  # below one percent, but not beyond the uncertainty
])  # fmt: skip
def test_findings_count_models(share, rise, verdicts):
    assert [f.verdict for f in sparsity.findings(made(share, rise))] == verdicts


def test_the_runs_are_made_once(effort):
    assert word_runs.word_run(effort) is word_runs.word_run(effort)


def test_it_draws(computed):
    left, right = sparsity.draw(computed).axes
    assert left.get_xlabel() == "attention kept (%)"
    assert right.get_ylabel() == "rise of perplexity (%)"
