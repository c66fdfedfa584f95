"""Distinctness: cases by hand, the rules of information theory for any classes, one query's classes alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import scansnap as ss
from refusals import refused
from scansnap.measure import distinctness

COUNTS = arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 7)), elements=st.integers(0, 4))

# Token 0 in all classes alike, 1 distinct to class 0, 2 shared by classes 1 and 2 unequally, 3 in no context.
BY_HAND = ss.SequenceClasses(
    p_context=[[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0.25, 0.25, 0]],
    query=[3, 3, 0],
    next_token=[1, 2, 3],
    p_class=[0.5, 0.25, 0.25],
)


def entropy(*p: float) -> float:
    return -sum(x * math.log(x) for x in p if x)


def test_by_hand() -> None:
    words = distinctness(BY_HAND)
    assert words.occurrences.tolist() == [3, 2, 2, 0]
    np.testing.assert_allclose(words.p_word, [0.5, 5 / 16, 3 / 16, 0])
    expected = [entropy(0.5, 0.25, 0.25), entropy(0.8, 0.2), entropy(2 / 3, 1 / 3), math.nan]
    np.testing.assert_allclose(words.entropy, expected)
    np.testing.assert_allclose(words.normalised_entropy, np.array(expected) / math.log(3))
    np.testing.assert_allclose(words.idf, [0, math.log(1.5), math.log(1.5), math.nan], atol=1e-15)
    np.testing.assert_allclose(words.pmi.toarray()[0], [0, math.log(0.5 / (5 / 16)), 0, 0], atol=1e-15)
    np.testing.assert_allclose(words.tf_idf.toarray()[2], [0, 0.25 * math.log(1.5), 0.25 * math.log(1.5), 0])


def test_local_to_a_query_by_hand() -> None:
    words = distinctness(BY_HAND, query=3)
    np.testing.assert_allclose(words.p_class, [2 / 3, 1 / 3])
    assert words.occurrences.tolist() == [2, 1, 1, 0]  # 1 and 2 are distinct here
    np.testing.assert_allclose(words.entropy, [entropy(2 / 3, 1 / 3), 0, 0, math.nan])
    alone = distinctness(BY_HAND, query=0)
    np.testing.assert_allclose(alone.normalised_entropy, [0, 0, 0, math.nan])
    assert alone.mutual_information == pytest.approx(0, abs=1e-15)


def test_agrees_with_the_hard_notion() -> None:
    classes = ss.SequenceClasses.syn_medium(3)
    words = distinctness(classes)
    assert np.flatnonzero(words.occurrences > 1).tolist() == classes.common.tolist()
    for n in range(classes.n_classes):
        own = classes.distinct(n)
        assert (words.entropy[own] == 0).all()
        np.testing.assert_allclose(words.pmi.toarray()[n, own], math.log(classes.n_classes))
    np.testing.assert_allclose(words.normalised_entropy[classes.common], 1)
    for query in classes.queries:
        local = distinctness(classes, query=int(query))
        mine = np.flatnonzero(classes.query == query)
        assert all((local.occurrences[classes.distinct(n, local=True)] == 1).all() for n in mine)


@given(k=st.integers(1, 6), weights=st.lists(st.integers(1, 9), min_size=2, max_size=6), data=st.data())
def test_alike_everywhere_tells_nothing(k: int, weights: list[int], data: st.DataObject) -> None:
    row = np.array(weights) / sum(weights)
    uniform = distinctness(np.tile(row, (k, 1)))
    np.testing.assert_allclose(uniform.entropy, math.log(k), atol=1e-12)
    np.testing.assert_allclose(uniform.pmi.data, 0, atol=1e-12)
    assert uniform.mutual_information == pytest.approx(0, abs=1e-12)
    p = np.array(data.draw(st.lists(st.integers(1, 9), min_size=k, max_size=k)))
    p = p / p.sum()
    skewed = distinctness(np.tile(row, (k, 1)), p_class=p)
    np.testing.assert_allclose(skewed.entropy, entropy(*p), atol=1e-12)  # that of p, ln K only if p is uniform


@given(counts=COUNTS)
def test_distinct_means_entropy_zero(counts: np.ndarray) -> None:
    assume((counts.sum(1) > 0).all())
    words = distinctness(counts)
    distinct = words.occurrences == 1
    assert (words.entropy[distinct] == 0).all()
    assert (words.entropy[words.occurrences > 1] > 0).all()
    assert np.isnan(words.entropy[words.occurrences == 0]).all()
    seen = words.occurrences > 0
    assert (words.normalised_entropy[seen] <= 1 + 1e-12).all()
    assert (words.entropy[seen] <= np.log(words.occurrences[seen]) + 1e-12).all()


@given(counts=COUNTS)
def test_sum_rules(counts: np.ndarray) -> None:
    assume((counts.sum(1) > 0).all())
    words = distinctness(counts)
    joint = counts / counts.sum()  # P(n, l): rows are as frequent as their sums
    p_class, p_word = joint.sum(1), joint.sum(0)
    np.testing.assert_allclose(words.p_word, p_word, atol=1e-14)
    assert words.p_word.sum() == pytest.approx(1)
    conditional = entropy(*joint.ravel()) - entropy(*p_word)
    assert words.conditional_entropy == pytest.approx(conditional, abs=1e-12)
    assert words.mutual_information == pytest.approx(entropy(*p_class) - conditional, abs=1e-12)
    assert words.mutual_information > -1e-14


@given(counts=COUNTS)
def test_dense_sparse_and_classes_alike(counts: np.ndarray) -> None:
    k, m = counts.shape
    assume((counts.sum(1) > 0).all() and k <= m)
    p = counts.sum(1) / counts.sum()
    classes = ss.SequenceClasses(counts / counts.sum(1, keepdims=True), [0] * k, np.arange(k), p)
    dense = distinctness(counts)
    for other in (
        distinctness(sparse.csr_array(counts)),
        distinctness(sparse.coo_matrix(counts)),
        distinctness(classes),
    ):
        for name in ("occurrences", "entropy", "idf", "p_word"):
            np.testing.assert_allclose(getattr(other, name), getattr(dense, name), atol=1e-12)
        np.testing.assert_allclose(other.pmi.toarray(), dense.pmi.toarray(), atol=1e-12)


def test_rows_of_a_table_local_to_a_query() -> None:
    counts = np.array([[4, 0, 4], [1, 1, 0], [0, 3, 0]])
    words = distinctness(counts, query=7, queries=[7, 7, 8])
    np.testing.assert_allclose(words.p_class, [0.8, 0.2])
    assert words.occurrences.tolist() == [2, 1, 1]


def test_class_that_is_never_drawn_tells_nothing() -> None:
    words = distinctness([[1, 1], [1, 0]], p_class=[0, 1])
    assert words.occurrences.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("data", "settings", "field"),
    [
        ([[1, -1]], {}, ("the table", "with a negative or non-finite number")),
        ([[1.0, math.nan]], {}, ("the table", "with a negative or non-finite number")),
        ([[1, 1], [0, 0]], {"p_class": [0.5, 0.5]}, ("the table", "empty in row 1")), ([[0, 0]], {}, "p_class"),
        ([[1, 1]], {"p_class": [0.5, 0.5]}, "p_class"), ([[1, 1]], {"queries": [1, 2]}, "queries"),
        ([[1, 1]], {"queries": [1], "query": 2}, "query"), (BY_HAND, {"query": 2}, "query"),
        (BY_HAND, {"p_class": [1, 0, 0]}, "p_class and queries"), ([1, 2], {}, ("the table", "of shape (2,)")),
    ],
)  # fmt: skip
def test_bad_input(data: Any, settings: dict[str, Any], field: str) -> None:
    with refused(field):
        distinctness(data, **settings)
