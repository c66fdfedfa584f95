"""Figures 7 and 10 on a tiny text: their data, and findings that can fail."""

import numpy as np
import pandas as pd
import pytest

from scansnap.figures import fig7, fig10, text_runs
from scansnap.figures.figure import Effort

LINES = ["the cat sat on the mat", "the dog ran in the park", "a cat and a dog met on the mat", "we saw the park"]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A quick effort on a text of our own, twelve steps long."""
    for i, split in enumerate(("train", "valid", "test")):
        lines = [LINES[(n * (i + 1)) % 4] for n in range(400)]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(text_runs.SIZES, (False, True), text_runs.Size(None, 12, 2, 1500))
    return Effort(quick=True, device="cpu", data=tmp_path)


def test_fig7_has_a_map_for_each_model_and_moment(tiny):
    computed = fig7.compute(tiny)
    maps = computed.table.groupby(["layers", "iteration", "row"]).attention.sum()
    assert maps.index.get_level_values("iteration").unique().tolist() == [0, 4, 8, 12]
    np.testing.assert_allclose(maps, 1, rtol=1e-5)
    assert len(fig7.draw(computed).axes) == 9
    assert "12 steps" in computed.note


def test_fig7_notices_attention_that_stays_dense_and_moves_on(tiny):
    table = fig7.compute(tiny).table
    table["entropy"] = table.iteration.astype(float)
    table["moved"] = table.iteration.where(table.iteration > 0)
    assert [finding.agree for finding in fig7.findings(table)] == [0, 0]
    table["entropy"] = -table.entropy
    table["moved"] = 1 / table.moved
    assert [finding.verdict for finding in fig7.findings(table)] == ["agrees", "agrees"]


def test_fig10_has_a_row_for_each_run(tiny):
    computed = fig10.compute(tiny)
    assert computed.table.groupby(["eta", "seed"]).size().tolist() == [1] * 6
    assert (computed.table.perplexity > 1).all()
    assert fig10.draw(computed).axes


def entropies(values, seeds=4, failed=()):
    noise = np.random.default_rng(0).normal(0, 0.01, (len(values), seeds))
    return pd.DataFrame(
        [{"eta": float(i + 1), "seed": s, "entropy": v + noise[i, s], "failed": (i, s) in failed}
         for i, v in enumerate(values) for s in range(seeds)]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "failed", "agree"),
    [
        ((2.0, 1.5, 1.0), (), [1, 2]),
        ((1.0, 1.5, 2.0), (), [0, 0]),
        ((2.0, 2.0, 1.0), (), [1, 1]),
        ((2.0, 1.5, 1.0), ((2, 0),), [0, 1]),
    ],
)
def test_fig10_counts_falls_beyond_their_error(values, failed, agree):
    assert [finding.agree for finding in fig10.findings(entropies(values, failed=failed))] == agree


def test_one_seed_has_no_uncertainty_and_says_so():
    found = fig10.findings(entropies((2.0, 1.0), seeds=1))
    assert [finding.agree for finding in found] == [1, 1]
    assert "no uncertainty" in found[0].detail


def test_a_training_that_is_interrupted_is_passed_on(tiny, monkeypatch):
    def interrupted(self, step):
        raise KeyboardInterrupt

    setting = text_runs.text_setting(tiny)
    with pytest.raises(KeyboardInterrupt):
        text_runs.trained(text_runs.transformer(setting), setting, measure=interrupted, snapshots=[4])
