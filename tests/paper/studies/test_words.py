"""Scan and snap on words: measures against plain reckoning, the table, and findings that can fail."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from tiny_corpus import TINY, tiny_effort

from scansnap.measure.ranks import overlap, rank_correlation
from scansnap.measure.word_attention import QueryWords, deciles, distance, query_words, snap_step
from scansnap.paper.studies import word_runs, words


@pytest.fixture(scope="module")
def effort(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield tiny_effort(tmp_path_factory.mktemp("words"), patch)


@pytest.fixture(scope="module")
def computed(effort):
    return words.compute(effort)


def test_counts_of_pairs_become_measures_of_queries_and_words():
    contexts = np.array([[8, 0, 4, 3], [2, 6, 4, 0], [5, 5, 0, 1]])
    found = query_words(np.array([7, 7, 9]), np.array([0, 1, 1]), contexts, least=1, leave_out=[3])
    assert found.queries.tolist() == [7]  # the other query has but two words
    np.testing.assert_array_equal(found.counts, [[10, 6, 8, 3]])
    assert found.used.tolist() == [[True, True, True, False]]
    np.testing.assert_allclose(found.by_word["idf"][:3], np.log([2 / 2, 2 / 1, 2 / 2]))
    assert found.by_word["distinctness"][1] == pytest.approx(1)  # word 1 stands before next word 1 only
    assert found.by_word["distinctness"][0] < 0.2


def test_pmi_and_attention():
    data = QueryWords(np.array([0, 1]), np.array([[6.0, 2, 2], [1, 4, 5]]), np.ones((2, 3), bool), {})
    p = data.counts / 20
    np.testing.assert_allclose(data.measure("pmi"), np.log(p / (p.sum(1, keepdims=True) * p.sum(0))))
    z = np.array([[0.0, 1, 2], [0, 0, 0]])
    weight = data.counts * np.exp(z)
    np.testing.assert_allclose(data.attention(z), weight / weight.sum(1, keepdims=True))


def test_deciles_are_equally_large_and_leave_out():
    values = np.array([5.0, np.nan, 1, 2, 3, 4, 0, 6])
    assert deciles(values, leave_out=[6], n=3).tolist() == [2, -1, 0, 0, 1, 1, -1, 2]


def test_rank_correlation_is_scipys_row_by_row():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, (3, 40)).astype(float), rng.normal(size=(3, 40))
    b[0, :5], a[2] = np.nan, 1.0
    found = rank_correlation(a, b)
    assert found[0] == pytest.approx(spearmanr(a[0, 5:], b[0, 5:]).statistic)
    assert found[1] == pytest.approx(spearmanr(a[1], b[1]).statistic)
    assert math.isnan(found[2])


def test_overlap_against_chance():
    a = np.array([[5.0, 4, 3, 2, 1, np.nan]])
    b = np.array([[5.0, 1, 4, 0, 0, 9]])
    shared, chance = overlap(a, b, 2)
    assert (shared[0], chance[0]) == (0.5, 2 / 5)


def test_the_snapping_time_of_a_curve_that_turns():
    t = np.unique(np.geomspace(1, 10_000, 60).astype(int))
    moved = t**2 / (t**2 + 200.0**2)  # moved/t is largest at 200
    assert snap_step(t, moved) == pytest.approx(200, rel=0.1)
    assert math.isnan(snap_step(t, t**2.0))  # ever faster
    assert math.isnan(snap_step(t, np.sqrt(t)))  # slower from the start


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
    for kind in ("gain", "correlation", "moved", "entropy", "end", "third", "prediction"):
        assert sorted(table[table.kind == kind].seed.unique()) == list(range(TINY["seeds"])), kind
    last = table[(table.kind == "entropy") & (table.step == table.step.max())]
    assert last.value.nunique() == TINY["seeds"]
    assert "2 seeds" in computed.note


def test_numbers_of_a_seed_are_those_of_its_run(computed, effort):
    """Recomputed from the logits that were kept."""
    run = word_runs.word_run(effort)
    seen, record = run.text.words, run.yz[1]
    table = computed.table[computed.table.seed == 1]
    end = table[(table.kind == "end") & (table.measure == "pmi")].value.to_numpy()
    np.testing.assert_allclose(end, rank_correlation(np.where(seen.used, record["z"], np.nan), seen.measure("pmi")))
    last = table[(table.kind == "correlation") & (table.measure == "pmi")].sort_values("step").value.iloc[-1]
    assert last == pytest.approx(np.nanmean(end))
    c = seen.attention(record["z"].astype(np.float64))
    moved = table[table.kind == "moved"].sort_values("step").value.iloc[-1]
    assert moved == pytest.approx(distance(c, seen.attention(np.zeros_like(c))).mean(), rel=1e-5)


def test_the_predicted_words_are_those_of_the_query(computed, effort):
    table = computed.table
    told = table[(table.kind == "prediction") & (table.seed == 0)]
    assert computed.settings["flow_queries"] == len(told) >= 1
    points = table[(table.kind == "word") & (table["query"] == told["query"].iloc[0])]
    assert told.value.iloc[0] == pytest.approx(spearmanr(points.predicted, points.value).statistic)
    run = word_runs.word_run(effort)
    assert set(points.word) <= set(run.setting.corpus.words)


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
    told = table.kind == "prediction"
    table.loc[told, "value"] = (0.4 * sign + noise)[told]
    table.loc[told, ["overlap", "chance", "frequent"]] = [0.5, 0.1, 0.5 - sign * 0.1]
    table.loc[told, "overlap"] += noise[told]
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
    found = words.findings(world(whole, 1, seeds=1))
    assert {f.verdict for f in found} == {"undecided"}
    assert all("one seed" in f.detail for f in found)


def test_seeds_that_differ_in_sign_decide_nothing(whole):
    table = pd.concat([world(whole, 1, seeds=2), world(whole, -1, seeds=2).assign(seed=lambda t: t.seed + 2)])
    assert {f.verdict for f in words.findings(table)} == {"undecided"}


def test_a_failed_seed_agrees_with_nothing(whole):
    table = world(whole, 1)
    lost = table.seed == 2
    table.loc[lost & ~(table.step == 0), ["value", "among_words", "overlap", "frequent", "chance"]] = np.nan
    assert [f.agree for f in words.findings(table)] == [0] * 6


def test_it_draws_words(computed):
    figure = words.draw(computed)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert [title[0] for title in titles] == list("abcd")
    assert any("common" in text.get_text() or "cue" in text.get_text() for text in figure.axes[3].texts)


def test_it_draws_with_a_seed_that_failed(computed):
    table = computed.table.copy()
    table.loc[(table.seed == 0) & ~(table.step == 0), ["value", "among_words", "overlap"]] = np.nan
    words.draw(replace(computed, table=table)).draw_without_rendering()
