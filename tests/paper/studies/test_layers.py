"""The comparison of depths: its table, what a row is, and findings that can fail."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tiny_corpus import TINY

from scansnap.paper.shared.text_runs import text_setting
from scansnap.paper.studies import layers


@pytest.fixture(scope="module")
def computed(effort):
    calls = []
    result = layers.compute(effort, lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1]
    return result


def test_one_row_for_each_model_depth_residual_and_seed(computed):
    table = computed.table
    assert len(table) == 2 * 2 * 2 * TINY["seeds"]
    assert not table.duplicated(["model", "layers", "residual", "seed"]).any()
    assert table.perplexity.between(1, 10 * 40).all()
    assert table.entropy.between(0, np.log(35)).all()
    assert not table.failed.any()
    assert "2 seeds" in computed.note
    assert computed.extra["unigram"] < 40


def test_every_setting_has_the_rates_chosen_for_it(computed):
    told = computed.settings["rates"]
    assert len(told) == 2 * 2 * 2
    for (kind, n, residual), part in computed.table.groupby(["model", "layers", "residual"]):
        rule = told[f"{kind} {n}{'' if residual else ' without residual'}"]
        best = min(rule["grid"], key=lambda row: row["perplexity"])
        for name, value in rule["chosen"].items():
            assert part[name].unique().tolist() == [value] == [best[name]]
        assert not set(rule["seeds"]) & set(part.seed)


def test_models_are_what_the_rows_say(effort):
    setting = text_setting(effort, **TINY)
    rates = {"eta_y": 0.1, "eta_z": 0.03}
    plain, added = (layers.build(setting, "YZ", 2, residual, rates, 1).settings for residual in (False, True))
    assert (plain.residual, added.residual) == ("none", "normed")
    assert (plain.layers, plain.seed, plain.init) == (2, 1, "uniform")
    assert (plain.rates, plain.optimizer) == ([(0.1, 0.03)] * 2, "adam")
    made = layers.build(setting, "transformer", 2, False, {"eta": 0.003}, 0).settings
    assert (made.residual, made.eta, made.optimizer) == (False, 0.003, "adam")


def made(factor, seeds=3, noise=1e-3, depths=(1, 2, 3, 5)):
    """A table in which each perplexity is given by factor(model, layers, residual), with a little noise by seed."""
    rng = np.random.default_rng(0)
    rows = [{"model": m, "layers": n, "residual": r, "seed": s, "failed": False, "entropy": 1.0,
             "perplexity": factor(m, n, r) * np.exp(noise * rng.normal())}
            for m in layers.MODELS for n in depths for r in (True, False) for s in range(seeds)]  # fmt: skip
    return pd.DataFrame(rows)


def slides(model, n, residual):
    return 50 * (1 + 0.2 * (model == "YZ")) * (1.1 if not residual else 1) * (1.3 if n > 3 else 0.98**n)


def test_findings_agree_with_a_world_like_the_slides():
    result = layers.findings(made(slides))
    assert [f.verdict for f in result] == ["agrees"] * 4
    assert [f.kind for f in result] == ["measured"] * 4
    assert "1 layer, with residual: +20." in result[0].detail
    assert "over 3 seeds" in result[0].detail


def test_findings_fail_in_the_opposite_world_and_when_runs_fail():
    def world(model, n, residual):
        return 50 * (1 - 0.2 * (model == "YZ")) * (0.9 if not residual else 1) * (0.7 if n > 3 else 1.1**n)

    assert [f.verdict for f in layers.findings(made(world))] == ["disagrees"] * 4


@pytest.mark.parametrize("how", ["failed", "infinite", "one seed"])
def test_runs_that_fail_agree_with_nothing(how):
    """Also not with "does not get worse", whichever seed it is."""
    table = made(slides)
    gone = table.model == "YZ"
    if how == "infinite":
        table.loc[gone, "perplexity"] = np.inf
    else:
        table.loc[gone & ((table.seed == 1) | (how == "failed")), "failed"] = True
    assert [f.verdict for f in layers.findings(table)] == ["disagrees"] * 4
    assert "a run failed" in layers.findings(table)[3].detail


def test_one_seed_decides_nothing():
    result = layers.findings(made(slides, seeds=1))
    assert [f.verdict for f in result] == ["undecided"] * 4
    assert all("one seed" in f.detail for f in result)


def test_not_getting_worse_has_to_be_shown():
    """Noise in which a rise could hide is no agreement; a change within the margin is."""
    assert layers.findings(made(slides, noise=0.3))[3].verdict == "undecided"

    def level(model, n, residual):
        return 50 * 1.005**n

    assert layers.findings(made(level))[3].verdict == "agrees"  # 1% in two steps, within the 2% that count as none
    assert layers.findings(made(level))[0].verdict == "disagrees"  # and no difference is not "behind"


def test_without_five_layers_there_is_nothing_beyond_three():
    result = layers.findings(made(slides, depths=(1, 2, 3)))
    assert [f.verdict for f in result] == ["agrees", "agrees", "not applicable", "agrees"]


def test_it_draws(computed):
    figure = layers.draw(computed)
    assert [ax.get_ylabel() for ax in figure.axes] == ["validation perplexity", "attention entropy (nats)"]
    assert len(figure.legends[0].get_texts()) == 5


def test_it_draws_with_runs_that_failed(computed):
    table = computed.table.copy()
    table.loc[(table.model == "YZ") & (table.seed == 1), "failed"] = True
    table.loc[(table.model == "YZ") & ~table.residual, "perplexity"] = np.inf
    layers.draw(replace(computed, table=table)).draw_without_rendering()
