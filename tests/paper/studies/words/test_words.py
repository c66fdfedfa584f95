"""Scan and snap on words: the table against its runs, and findings that can fail."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import linregress, spearmanr
from tiny_corpus import TINY

from scansnap.measure.ranks import rank_correlation
from scansnap.measure.word_attention import distance
from scansnap.paper.shared.text_runs import BATCH, LENGTH
from scansnap.paper.studies import words
from scansnap.paper.studies.words.findings import snap
from scansnap.paper.studies.words.predictions import SLOW
from scansnap.paper.studies.words.runs import LEAST, word_runs
from scansnap.text.prediction import count_before, predict
from scansnap.text.training import train
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings


@pytest.fixture(scope="module")
def computed(effort):
    return words.compute(effort)


def test_the_table_starts_from_uniform_attention(computed):
    table = computed.table
    start = table[(table.kind == "gain") & (table.model == "YZ") & (table.step == 0)]
    seen = start[start.value.notna()]
    assert len(seen) > 5
    np.testing.assert_allclose(seen.value, 1, atol=1e-6)
    for _, moved in table[table.kind == "moved"].sort_values("step").groupby("seed"):
        assert moved.value.iloc[0] == 0 < moved.value.iloc[-1]
    assert table[table.kind == "correlation"].value.dropna().between(-1, 1).all()


def test_every_seed_is_a_run_of_its_own(computed):
    table = computed.table
    for kind in ("gain", "correlation", "moved", "entropy", "end", "third", "uniform", "twin", "prediction"):
        assert sorted(table[table.kind == kind].seed.unique()) == list(range(TINY["seeds"])), kind
    last = table[(table.kind == "entropy") & (table.step == table.step.max())]
    assert last.value.nunique() == TINY["seeds"]
    assert "2 seeds" in computed.note


def test_numbers_of_a_seed_are_those_of_its_run(computed, effort):
    """Recomputed from the stored logits."""
    run = word_runs(effort)
    seen, record = run.text.words, run.yz[1]
    table = computed.table[computed.table.seed == 1]
    end = table[(table.kind == "end") & (table.measure == "pmi")].value.to_numpy()
    np.testing.assert_allclose(end, rank_correlation(np.where(seen.used, record["z"], np.nan), seen.measure("pmi")))
    last = table[(table.kind == "correlation") & (table.measure == "pmi")].sort_values("step").value.iloc[-1]
    assert last == pytest.approx(np.nanmean(end))
    c = seen.attention(record["z"].astype(np.float64))
    moved = table[table.kind == "moved"].sort_values("step").value.iloc[-1]
    assert moved == pytest.approx(distance(c, seen.attention(np.zeros_like(c))).mean(), rel=1e-5)


def test_the_flow_stays_as_a_baseline(computed):
    predicted = computed.table[(computed.table.kind == "prediction") & (computed.table.seed == 0)]
    assert computed.settings["flow_queries"] == len(predicted) >= 1
    assert predicted.value.dropna().between(-1, 1).all()


def test_what_is_heard_is_a_prediction_of_each_training(computed, effort):
    """Recomputed for a seed, at both ratios, with other functions."""
    run = word_runs(effort)
    corpus, queries, rates = run.setting.corpus, run.text.words.queries, run.chosen["YZ"].rates
    plan = {"steps": 10, "batch": BATCH, "length": LENGTH, "shuffle": None}
    tokens = np.roll(corpus.train, -(len(corpus.train) // (3 * BATCH)))  # where the second seed begins
    counts = count_before(corpus.train, queries, corpus.vocab_size, LENGTH)
    counts[:, [corpus.vocabulary.unk, corpus.vocabulary.eos]] = 0
    table = computed.table[
        (computed.table.kind == "uniform") & (computed.table.seed == 1) & (computed.table.step == 10)
    ]
    assert sorted(table.ratio.unique()) == [10, SLOW]
    for ratio, part in table.groupby("ratio"):
        settings = YZSettings(corpus.vocab_size, eta_y=rates["eta_y"], eta_z=rates["eta_y"] / ratio)
        uniform = predict(settings, tokens, queries=queries.tolist(), **plan).z[10]
        model = YZTransformer(settings)
        train(model, tokens, **plan)
        learned = model.z[0].matrix().numpy()[queries]
        for row, one in enumerate(part.itertuples()):
            used = np.flatnonzero((counts[row] >= LEAST) & (uniform[row] != 0))
            x, y = uniform[row, used], learned[row, used]
            assert one.value == pytest.approx(spearmanr(x, y).statistic, abs=0.02)  # float32: near ties may turn
            assert one.slope == pytest.approx(linregress(x, y).slope, rel=1e-4)
            if len(used) > 10:
                top = [set(used[np.argsort(-z)[:10]]) for z in (x, y)]
                assert one.overlap == pytest.approx(len(top[0] & top[1]) / 10)
    assert (table[table.ratio == SLOW].value > 0.99).all()  # attention has hardly moved
    assert (table.groupby("ratio").slope.mean() < 1.2).all()


def test_a_twin_shares_what_is_not_chaos(computed):
    """Ten steps at a rate that converges: nearly all of it; and its slope is one."""
    twin = computed.table[computed.table.kind == "twin"]
    assert (twin.value > 0.99).all()
    np.testing.assert_allclose(twin.slope, 1, atol=0.01)
    assert (twin[twin.step == 10].value < 1).any() or (twin.slope != 1).any()  # it is another run


def world(table, sign, seeds=4):
    """The table with a clear message of either sign in each of its parts, and a little noise by seed."""
    table = pd.concat([table[table.seed == 0].assign(seed=s) for s in range(seeds)], ignore_index=True)
    noise = 0.01 * np.random.default_rng(0).normal(size=seeds)[table.seed.astype(int)]
    gain, end, start = table.kind == "gain", table.kind == "end", table.step == 0
    table.loc[gain, "among_words"] = 1 + sign * np.where(table.group < 5, -0.3, 0.3)[gain] * ~start[gain] + noise[gain]
    table.loc[gain & start, "among_words"] = 1
    high = table.measure.isin(["pmi", "idf"])
    table.loc[end, "value"] = (sign * np.where(high, 0.3 + noise, -0.3 - noise))[end]
    first, last = ((table.kind == "third") & (table.measure == name) for name in ("first", "last"))
    table.loc[first, "value"] = 0.3
    table.loc[last, "value"] = 0.15 - sign * 0.1 + noise[last]
    entropy = table.kind == "entropy"
    table.loc[entropy, "value"] = (2 - sign * 0.01 * table.step * (1 + noise))[entropy]
    uniform, predicted = table.kind == "uniform", table.kind == "prediction"
    table.loc[predicted, "value"] = (0.4 * sign + noise)[predicted]
    table.loc[uniform, "value"] = (
        0.5 + sign * np.where(table.ratio == SLOW, 0.4, 0.2) + noise * (1 + (table.ratio == SLOW))
    )[uniform]
    table.loc[predicted | uniform, ["overlap", "chance", "frequent"]] = [0.5, 0.1, 0.5 - sign * 0.1]
    table.loc[predicted | uniform, "overlap"] += noise[predicted | uniform]
    return table


@pytest.fixture(scope="module")
def whole(computed):
    """A table in which every decile has words: the tiny text's own does not."""
    return computed.table.fillna({"among_words": 1.0})


def test_findings_follow_the_table(whole):
    assert {f.verdict for f in words.findings(world(whole, 1))} == {"agrees"}
    assert {f.verdict for f in words.findings(world(whole, -1))} == {"disagrees"}
    assert {f.kind for f in words.findings(world(whole, 1))} == {"measured"}


def test_one_seed_with_many_queries_decides_nothing(whole):
    result = words.findings(world(whole, 1, seeds=1))
    assert {f.verdict for f in result} == {"undecided"}
    assert all("one seed" in f.detail for f in result)


def test_seeds_that_differ_in_sign_decide_nothing(whole):
    table = pd.concat([world(whole, 1, seeds=2), world(whole, -1, seeds=2).assign(seed=lambda t: t.seed + 2)])
    assert {f.verdict for f in words.findings(table)} == {"undecided"}


def test_a_failed_seed_agrees_with_nothing(whole):
    table = world(whole, 1)
    lost = table.seed == 2
    table.loc[lost & ~(table.step == 0), ["value", "among_words", "overlap", "frequent", "chance"]] = np.nan
    assert [f.agree for f in words.findings(table)] == [0] * 8


def test_it_draws_words(computed):
    figure = words.draw(computed)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert [title[0] for title in titles] == list("abcdef")
    assert any("common" in text.get_text() or "cue" in text.get_text() for text in figure.axes[5].texts)
    joined = [line.get_ydata()[0] for line in figure.axes[5].lines]
    assert joined == sorted(joined, reverse=True)  # the same order whatever Python's hashes are


def test_it_draws_with_a_seed_that_failed(computed):
    table = computed.table.copy()
    table.loc[(table.seed == 0) & ~(table.step == 0), ["value", "among_words", "overlap"]] = np.nan
    words.draw(replace(computed, table=table)).draw_without_rendering()


def test_no_snap_is_marked_where_attention_has_hardly_begun(computed):
    """A curve as on WikiText-2: its mean speed since the start is greatest at step 10, a twentieth of the way gone."""
    steps = np.unique(np.rint(np.append(0, np.geomspace(1, 20_000, 40))))
    way = 0.4 * (1 - np.exp(-((steps / 700) ** 0.6))) * np.minimum(steps / 10, 1.0) ** 0.8
    rows = [{"kind": kind, "measure": "", "seed": seed, "step": step, "value": value * (1 + 0.01 * seed)}
            for kind in ("moved", "fold", "entropy") for seed in range(3)
            for step, value in zip(steps, np.full_like(way, 0.1) if kind == "fold" else way, strict=True)]  # fmt: skip
    result = snap(pd.DataFrame(rows))
    assert 3 < result.t.fastest < 30
    assert not result.t.has_snapped
    assert not result.ln.has_snapped  # as far in every e-fold
    assert result.over == "3 training seeds"
    table = computed.table[~computed.table.kind.isin(["moved", "fold", "entropy"])]
    figure = words.draw(replace(computed, table=pd.concat([table, pd.DataFrame(rows)])))
    labels = [text.get_text() for text in figure.axes[2].texts]
    assert any("in t (··): has not snapped" in one and "in ln t (--): has not snapped" in one for one in labels), labels
