"""Figures 7 and 10 on a tiny text: their data, and findings that can fail."""

import numpy as np
import pandas as pd
import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig7, fig10
from scansnap.paper.shared import text_runs

LINES = ["the cat sat on the mat", "the dog ran in the park", "a cat and a dog met on the mat", "we saw the park"]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A quick effort on a text of our own, twelve steps long."""
    for i, split in enumerate(("train", "valid", "test")):
        lines = [LINES[(n * (i + 1)) % 4] for n in range(400)]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(text_runs.SIZES, (False, True), text_runs.TextSize(None, 12, 2, 1500))
    return Effort(quick=True, device="cpu", data=tmp_path)


def test_fig7_has_a_map_for_each_model_and_moment(tiny):
    computed = fig7.compute(tiny)
    maps = computed.table[computed.table.kind == "map"].groupby(["layers", "iteration", "row"]).attention.sum()
    assert maps.index.get_level_values("iteration").unique().tolist() == [0, 4, 8, 12]
    np.testing.assert_allclose(maps, 1, rtol=1e-5)
    assert len(fig7.draw(computed).axes) == 8 + 1 + 2
    assert "12 steps" in computed.note
    runs = computed.table[computed.table.kind == "run"]
    assert runs.groupby(["layers", "seed"]).size().tolist() == [4] * 4
    assert runs[runs.iteration == 12].entropy.nunique() == 4
    assert runs.moved.isna().equals(runs.iteration == 0)


def runs(entropy, moved, seeds=3):
    """Two models at four moments, with a little noise by seed."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(2, seeds, 4))
    return pd.DataFrame([{"kind": "run", "layers": n, "seed": s, "iteration": i, "entropy": entropy[i] + noise[m, s, i],
                          "moved": moved[i] + noise[m, s, i] if i else np.nan}
                         for m, n in enumerate((1, 3)) for s in range(seeds) for i in range(4)])  # fmt: skip


@pytest.mark.parametrize(
    ("entropy", "moved", "seeds", "verdicts"),
    [
        ((2, 1.5, 1.2, 1), (0, 0.5, 0.3, 0.1), 3, ["agrees", "agrees"]),
        ((1, 1.5, 1.8, 2), (0, 0.1, 0.3, 0.5), 3, ["disagrees", "disagrees"]),
        ((2, 2, 2, 2), (0, 0.5, 0.3, 0.25), 3, ["undecided", "undecided"]),
        ((2, 1.5, 1.2, 1), (0, 0.5, 0.3, 0.1), 1, ["undecided", "undecided"]),
    ],
)
def test_fig7_is_judged_over_seeds(entropy, moved, seeds, verdicts):
    result = fig7.findings(runs(entropy, moved, seeds))
    assert [finding.verdict for finding in result] == verdicts
    assert {finding.kind for finding in result} == {"measured"}


def test_a_training_of_fig7_that_fails_agrees_with_nothing(tiny, monkeypatch):
    """One seed of the deeper model has no attention from the second moment on."""
    monkeypatch.setattr(fig7, "ETA", 1e30)
    setting = text_runs.text_setting(tiny)
    result = fig7.run(setting, 1, 0, [0, 4, 8, 12], None)
    assert np.isfinite(result["entropy"][0])
    assert np.isnan(result["entropy"][-1])
    table = runs((2, 1.5, 1.2, 1), (0, 0.5, 0.3, 0.1))
    lost = (table.layers == 3) & (table.seed == 1) & (table.iteration > 0)
    table.loc[lost, ["entropy", "moved"]] = np.nan
    for finding in fig7.findings(table):
        assert (finding.agree, finding.disagree) == (1, 1)


def test_fig10_has_each_run_on_each_text_and_says_which_of_the_papers_were_not_run(tiny, tmp_path):
    """In basic_english the windows are read in order, so that the seed decides the first weights alone."""
    data = (str(tmp_path), f"basic_english:{tmp_path}")
    computed = fig10.compute(Effort(quick=True, device="cpu", data=data))
    assert computed.table.groupby(["corpus", "eta", "seed"]).size().tolist() == [1] * 12
    assert (computed.table.perplexity > 1).all()
    assert [finding.of for finding in computed.findings] == [2, 4]
    assert "not run: WikiText-2, WikiText-103" in computed.note
    assert len(fig10.draw(computed).axes) == 4
    plain, ordered = (text_runs.text_setting(Effort(quick=True, device="cpu", data=name)) for name in data)
    assert (plain.in_order, ordered.in_order) == (False, True)


def entropies(values, seeds=4, failed=()):
    noise = np.random.default_rng(0).normal(0, 0.01, (len(values), seeds))
    return pd.DataFrame(
        [{"corpus": "a text", "eta": float(i + 1), "seed": s, "entropy": v + noise[i, s], "failed": (i, s) in failed}
         for i, v in enumerate(values) for s in range(seeds)]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "failed", "agree", "undecided"),
    [
        ((2.0, 1.5, 1.0), (), [1, 2], [0, 0]),
        ((1.0, 1.5, 2.0), (), [0, 0], [0, 0]),
        ((2.0, 2.0, 1.0), (), [1, 1], [0, 0]),  # no change, within the margin, is no fall
        ((2.0, 1.95, 1.0), (), [1, 1], [0, 1]),  # at the margin
        ((2.0, 1.5, 1.0), ((2, 0),), [0, 1], [0, 0]),
    ],
)
def test_fig10_counts_falls_beyond_the_noise_of_seeds(values, failed, agree, undecided):
    result = fig10.findings(entropies(values, failed=failed))
    assert [finding.agree for finding in result] == agree
    assert [finding.undecided for finding in result] == undecided
    assert {finding.kind for finding in result} == {"measured"}


def test_one_seed_decides_nothing_and_says_so():
    result = fig10.findings(entropies((2.0, 1.0), seeds=1))
    assert [finding.verdict for finding in result] == ["undecided", "undecided"]
    assert "one seed" in result[0].detail


def test_a_training_that_is_interrupted_is_passed_on(tiny, monkeypatch):
    def interrupted(self, step):
        raise KeyboardInterrupt

    setting = text_runs.text_setting(tiny)
    with pytest.raises(KeyboardInterrupt):
        text_runs.trained(text_runs.transformer(setting), setting, measure=interrupted, snapshots=[4])


def test_they_draw_with_runs_that_failed(tiny):
    result = fig10.Computed(entropies((2.0, 1.0), failed=((1, 0),)).assign(perplexity=5.0), {})
    result.table.loc[result.table.seed == 1, "perplexity"] = np.inf
    fig10.draw(result).draw_without_rendering()
    row, column = np.tril_indices(4)
    maps = [{"kind": "map", "layers": n, "seed": 0, "iteration": i, "row": r, "column": c, "attention": np.nan}
            for n in (1, 3) for i in range(4) for r, c in zip(row, column, strict=True)]  # fmt: skip
    table = pd.concat([runs((2, 1.5, 1.2, 1), (0, 0.5, 0.3, 0.1)), pd.DataFrame(maps)])
    table.loc[(table.seed == 1) & (table.iteration > 1), ["entropy", "moved"]] = np.nan
    fig7.draw(fig10.Computed(table, {})).draw_without_rendering()
