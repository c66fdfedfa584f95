"""The comparison of depths: its table, what a row is, and findings that can fail."""

import numpy as np
import pandas as pd
import pytest
from tiny_corpus import TINY, tiny_effort

from scansnap.figures import layers


@pytest.fixture(scope="module")
def effort(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield tiny_effort(tmp_path_factory.mktemp("layers"), patch)


@pytest.fixture(scope="module")
def computed(effort):
    seen = []
    found = layers.compute(effort, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    return found


def test_one_row_for_each_model_depth_residual_and_seed(computed):
    table = computed.table
    assert len(table) == 2 * 2 * 2 * TINY["seeds"]
    assert not table.duplicated(["model", "layers", "residual", "seed"]).any()
    assert table.perplexity.between(1, 10 * 40).all()
    assert table.entropy.between(0, np.log(35)).all()
    assert not table.failed.any()
    assert "2 seeds" in computed.note
    assert computed.extra["unigram"] < 40


def test_models_are_what_the_rows_say(effort):
    setting = layers.text_setting(effort, **TINY)
    plain, added = (layers.build(setting, "YZ", 2, residual, 1).settings for residual in (False, True))
    assert (plain.residual, added.residual) == ("none", "normed")
    assert (plain.layers, plain.seed, plain.init) == (2, 1, "uniform")
    assert layers.build(setting, "transformer", 2, False, 0).settings.residual is False


def made(factor):
    """A table in which each perplexity is given by factor(model, layers, residual), with a little noise by seed."""
    rows = [{"model": m, "layers": n, "residual": r, "seed": s, "failed": False, "entropy": 1.0,
             "perplexity": factor(m, n, r) * (1 + 1e-3 * np.sin(7 * s + n))}
            for m in layers.MODELS for n in (1, 2, 3, 5) for r in (True, False) for s in range(3)]  # fmt: skip
    return pd.DataFrame(rows)


def test_findings_agree_with_a_world_like_the_slides():
    def world(model, n, residual):
        return 50 * (1 + 0.2 * (model == "YZ")) * (1.1 if not residual else 1) * (1.3 if n > 3 else 0.98**n)

    found = layers.findings(made(world))
    assert [f.verdict for f in found] == ["agrees"] * 4
    assert "+20.0 ± 0.0%" in found[0].detail


def test_findings_fail_in_the_opposite_world_and_when_runs_fail():
    def world(model, n, residual):
        return 50 * (1 - 0.2 * (model == "YZ")) * (0.9 if not residual else 1) * (0.7 if n > 3 else 1.1**n)

    table = made(world)
    assert [f.verdict for f in layers.findings(table)] == ["disagrees"] * 4
    table.loc[table.model == "YZ", "failed"] = True
    assert [f.agree for f in layers.findings(table)][:3] == [0, 0, 0]


def test_it_draws(computed):
    figure = layers.draw(computed)
    assert [ax.get_ylabel() for ax in figure.axes] == ["validation perplexity", "attention entropy (nats)"]
    assert len(figure.legends[0].get_texts()) == 4
