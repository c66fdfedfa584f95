"""Sparsity measures: cases worked out by hand, bounds for any distribution, NumPy and xarray alike."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import scansnap as ss
from refusals import refused
from scansnap import measure
from scansnap.measure.attention import distinct_mask

# Token 0 is common, 1 and 2 are distinct to class 0, 3 to class 1; class 2 has no distinct token; 4 is the query.
CLASSES = ss.SequenceClasses(
    p_context=[[0.5, 0.25, 0.25, 0, 0, 0, 0], [0.5, 0, 0, 0.5, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]],
    query=[4, 4, 4],
    next_token=[4, 5, 6],
)
ATTENTION = np.array([[0.2, 0.6, 0.2, 0, 0, 0, 0], [0.75, 0, 0, 0.25, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])

LABELLED = [
    (measure.entropy, ()), (measure.effective_support, ()), (measure.top_mass, ()),
    (lambda c: measure.top_mass(c, 2), ()), (lambda c: measure.distinct_entropy(c, CLASSES), ("seq_class",)),
    (lambda c: measure.recall(c, CLASSES, 0.21), ("seq_class",)),
]  # fmt: skip


def test_distinct_tokens_by_hand() -> None:
    assert [np.flatnonzero(row).tolist() for row in distinct_mask(CLASSES)] == [[1, 2], [3], []]


def test_entropy_by_hand() -> None:
    expected = [-(0.2 * math.log(0.2) * 2 + 0.6 * math.log(0.6)), 0.75 * math.log(4 / 3) + 0.25 * math.log(4), 0.0]
    np.testing.assert_allclose(measure.entropy(ATTENTION), expected, rtol=1e-15)
    assert measure.entropy(np.full(8, 1 / 8)) == pytest.approx(math.log(8), rel=1e-15)


def test_distinct_entropy_by_hand() -> None:
    # Renormalised over {1, 2}: 3/4 and 1/4. A single distinct token has entropy 0. Without one there is no number.
    entropies = measure.distinct_entropy(ATTENTION, CLASSES)
    expected = [0.75 * math.log(4 / 3) + 0.25 * math.log(4), 0.0, math.nan]
    np.testing.assert_allclose(entropies, expected, rtol=1e-15)


def test_distinct_entropy_does_not_see_the_common_tokens() -> None:
    more_common = ATTENTION * 0.5
    more_common[:, 0] += 0.5
    np.testing.assert_allclose(
        measure.distinct_entropy(more_common, CLASSES), measure.distinct_entropy(ATTENTION, CLASSES), rtol=1e-14
    )


def test_distinct_entropy_is_nan_where_no_attention_is_left_on_distinct_tokens() -> None:
    nothing = np.array([[1.0, 0, 0, 0, 0, 0, 0]] * 3)
    assert np.isnan(measure.distinct_entropy(nothing, CLASSES)).all()


def test_recall_by_hand() -> None:
    # 4 context tokens, so the threshold is 1/4, and exactly 1/4 is not above it.
    np.testing.assert_array_equal(measure.recall(ATTENTION, CLASSES), [0.5, 0.0, math.nan])
    np.testing.assert_array_equal(measure.recall(ATTENTION, CLASSES, threshold=0.249), [0.5, 1.0, math.nan])
    np.testing.assert_array_equal(measure.recall(ATTENTION, CLASSES, threshold=0), [1.0, 1.0, math.nan])
    np.testing.assert_array_equal(measure.recall(ATTENTION, CLASSES, threshold=1), [0.0, 0.0, math.nan])


@pytest.mark.parametrize("n_queries", [1, 3, 5, 10])
def test_the_default_threshold_is_that_of_the_paper(n_queries: int) -> None:
    """Syn-Medium with K classes has 10 + 10 K context tokens (Figures 11 and 12)."""
    classes = ss.SequenceClasses.syn_medium(n_queries)
    threshold = 1 / (10 + 10 * 2 * n_queries)
    attention = np.zeros((classes.n_classes, classes.vocab_size))
    for n in range(classes.n_classes):
        attention[n, classes.distinct(n)[:3]] = threshold * (1 + 1e-9)
        attention[n, classes.distinct(n)[3:]] = threshold * (1 - 1e-9)
    np.testing.assert_allclose(measure.recall(attention, classes), 0.3, rtol=1e-15)
    np.testing.assert_array_equal(measure.recall(attention, classes), measure.recall(attention, classes, threshold))


def test_top_mass_by_hand() -> None:
    np.testing.assert_allclose(measure.top_mass(ATTENTION), [0.6, 0.75, 1.0])
    np.testing.assert_allclose(measure.top_mass(ATTENTION, 2), [0.8, 1.0, 1.0])
    np.testing.assert_allclose(measure.top_mass(ATTENTION, 7), [1.0, 1.0, 1.0])


def test_effective_support_by_hand() -> None:
    np.testing.assert_allclose(measure.effective_support([0.25, 0.25, 0.25, 0.25, 0, 0]), 4.0)
    np.testing.assert_allclose(measure.effective_support([0, 1.0, 0]), 1.0)
    np.testing.assert_allclose(measure.effective_support([0.5, 0.25, 0.25]), 2 * math.sqrt(2))  # e^{1.5 ln 2}


def test_whole_numbers_and_lists_are_attention_too() -> None:
    assert measure.entropy([0, 1, 0]) == 0
    assert measure.top_mass([0, 1, 0]) == 1


def test_what_is_not_a_number_stays_so() -> None:
    broken = np.array([0.5, math.nan, 0.5])
    for function in (measure.entropy, measure.effective_support, measure.top_mass):
        assert np.isnan(function(broken))


@pytest.mark.parametrize(("function", "kept"), LABELLED)
def test_numpy_and_xarray_agree_by_dimension_name(function: Any, kept: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.full(7, 0.3), size=(2, 4, 3))  # (run, step, class, token)
    labelled = xr.DataArray(values, dims=("run", "step", "seq_class", "token"), coords={"step": [0, 1, 5, 9]})
    plain = function(values)
    assert plain.shape == (2, 4, 3)
    for order in (
        ("run", "step", "seq_class", "token"),
        ("token", "seq_class", "step", "run"),
        ("seq_class", "run", "token", "step"),
    ):
        found = function(labelled.transpose(*order))
        assert set(found.dims) == {"run", "step", "seq_class"}
        assert not kept or found.dims[-1] == "seq_class"
        assert found.step.values.tolist() == [0, 1, 5, 9]
        np.testing.assert_array_equal(found.transpose("run", "step", "seq_class"), plain)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(dtype: type) -> None:
    assert measure.entropy(ATTENTION.astype(dtype)).dtype == dtype
    assert measure.distinct_entropy(ATTENTION.astype(dtype), CLASSES).dtype == dtype


# Entries from 0 over the smallest floats to 1, normalised: attention as sparse as it comes.
distributions = (
    arrays(np.float64, st.integers(1, 12), elements=st.one_of(st.just(0.0), st.floats(0, 1)))
    .filter(lambda w: w.sum() > 1e-300)
    .map(lambda w: w / w.sum())
)


@given(distributions)
def test_bounds(p: np.ndarray) -> None:
    n = len(p)
    assert -1e-14 <= measure.entropy(p) <= math.log(n) + 1e-12
    assert 1 - 1e-12 <= measure.effective_support(p) <= n * (1 + 1e-12)
    masses = [float(measure.top_mass(p, k)) for k in range(1, n + 1)]
    assert all(a <= b + 1e-15 for a, b in itertools.pairwise(masses))
    assert 1 / n - 1e-12 <= masses[0]
    assert masses[-1] == pytest.approx(1, abs=1e-12)


@given(distributions, st.randoms())
def test_the_names_of_the_tokens_do_not_matter(p: np.ndarray, random: Any) -> None:
    order = list(range(len(p)))
    random.shuffle(order)
    assert measure.entropy(p[order]) == pytest.approx(measure.entropy(p), abs=1e-12)
    assert measure.top_mass(p[order]) == measure.top_mass(p)


@given(arrays(np.float64, (2, 34), elements=st.floats(0, 1)), st.floats(0, 1), st.floats(0, 1))
def test_distinct_measures_stay_within_bounds(c: np.ndarray, low: float, high: float) -> None:
    classes = ss.SequenceClasses.syn_small()
    entropy = measure.distinct_entropy(c, classes)
    left = np.stack([c[n, classes.distinct(n)].sum() for n in range(2)])
    assert (np.isnan(entropy) == (left == 0)).all()
    assert ((entropy >= -1e-14) & (entropy <= math.log(10) + 1e-12))[left > 0].all()
    low, high = sorted((low, high))
    loose, strict = measure.recall(c, classes, low), measure.recall(c, classes, high)
    assert ((strict >= 0) & (strict <= loose) & (loose <= 1)).all()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: measure.top_mass(ATTENTION, 0), "k"),
        (lambda: measure.top_mass(ATTENTION, 8), "k"),
        (lambda: measure.top_mass(ATTENTION, 1.0), "k"),
        (
            lambda: measure.recall(ATTENTION, CLASSES, -0.1),
            "threshold",
        ),
        (
            lambda: measure.recall(ATTENTION, CLASSES, 1.5),
            "threshold",
        ),
        (lambda: measure.recall(ATTENTION, CLASSES, math.nan), "threshold"),
        (lambda: measure.recall(ATTENTION[:1], CLASSES), "attention"),
        (lambda: measure.distinct_entropy(ATTENTION[:1], CLASSES), "attention"),
        (lambda: measure.distinct_entropy(ATTENTION[0], CLASSES), "attention"),
    ],
)
def test_bad_input(call: Any, field: str) -> None:
    with refused(field):
        call()
