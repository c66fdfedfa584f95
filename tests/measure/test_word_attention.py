"""Attention to words and their statistics, against plain reckoning."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from scansnap.measure.ranks import overlap, rank_correlation
from scansnap.measure.word_attention import QueryWords, deciles, query_words


def test_counts_of_pairs_become_measures_of_queries_and_words():
    contexts = np.array([[8, 0, 4, 3], [2, 6, 4, 0], [5, 5, 0, 1]])
    words = query_words(np.array([7, 7, 9]), np.array([0, 1, 1]), contexts, least=1, leave_out=[3])
    assert words.queries.tolist() == [7]  # the other query has but two words
    np.testing.assert_array_equal(words.counts, [[10, 6, 8, 3]])
    assert words.used.tolist() == [[True, True, True, False]]
    np.testing.assert_allclose(words.by_word["idf"][:3], np.log([2 / 2, 2 / 1, 2 / 2]))
    assert words.by_word["distinctness"][1] == pytest.approx(1)  # word 1 stands before next word 1 only
    assert words.by_word["distinctness"][0] < 0.2


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
    correlation = rank_correlation(a, b)
    assert correlation[0] == pytest.approx(spearmanr(a[0, 5:], b[0, 5:]).statistic)
    assert correlation[1] == pytest.approx(spearmanr(a[1], b[1]).statistic)
    assert math.isnan(correlation[2])


def test_overlap_against_chance():
    a = np.array([[5.0, 4, 3, 2, 1, np.nan]])
    b = np.array([[5.0, 1, 4, 0, 0, 9]])
    shared, chance = overlap(a, b, 2)
    assert (shared[0], chance[0]) == (0.5, 2 / 5)
