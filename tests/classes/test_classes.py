"""Sequence classes: presets to the letter, tokens sorted into distinct and common, bad input refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from refusals import bad_values, refused
from scansnap.classes import PRESETS, SequenceClasses

# Classes 0 and 1 share the query 5, class 2 has its own: token 0 is common everywhere, token 1 is shared
# across queries only, token 3 within query 5 only.
TABLE = np.array(
    [[0.50, 0.25, 0.00, 0.25, 0, 0, 0, 0], [0.25, 0.00, 0.25, 0.50, 0, 0, 0, 0], [0.50, 0.50, 0.00, 0.00, 0, 0, 0, 0]]
)
QUERY, NEXT = [5, 5, 6], [4, 1, 7]


def table_classes(**changes: Any) -> SequenceClasses:
    settings = {"p_context": TABLE, "query": QUERY, "next_token": NEXT, "p_class": [0.5, 0.25, 0.25]}
    return SequenceClasses(**{**settings, **changes})


def support_classes(**changes: Any) -> SequenceClasses:
    settings = {
        "tokens": [[0, 1], [2, 0]], "probs": [[0.5, 0.5], [0.25, 0.75]],
        "vocab_size": 6, "query": [3, 3], "next_token": [4, 5],
    }  # fmt: skip
    return SequenceClasses.from_support(**{**settings, **changes})


# --- the paper's data ------------------------------------------------------------------------------------


def test_syn_small_to_the_letter() -> None:
    classes = SequenceClasses.syn_small()
    weights = np.zeros((2, 34))
    weights[:, :10] = 1
    weights[0, 10:20] = weights[1, 20:30] = np.linspace(0.1, 1, 10)
    assert (classes.vocab_size, classes.n_classes) == (34, 2)
    assert_allclose(classes.p_context, weights / 15.5, rtol=1e-14, atol=0)
    assert_array_equal(classes.query, [30, 31])
    assert_array_equal(classes.next_token, [32, 33])
    assert_array_equal(classes.p_class, [0.5, 0.5])
    assert_array_equal(classes.common, np.arange(10))
    assert_array_equal(classes.distinct(0), np.arange(10, 20))
    assert_array_equal(classes.distinct(1), np.arange(20, 30))
    assert_array_equal(classes.distinct(1, local=True), [*range(10), *range(20, 30)])  # alone with its query
    assert classes.common_of(1, local=True).size == 0


@pytest.mark.parametrize(("q", "vocab_size"), [(1, 33), (3, 79), (5, 125), (10, 240)])
def test_syn_medium_to_the_letter(q: int, vocab_size: int) -> None:
    classes = SequenceClasses.syn_medium(n_queries=q)
    k = 2 * q
    assert (classes.vocab_size, classes.n_classes) == (vocab_size, k)
    weights = np.zeros((k, vocab_size))
    weights[:, :10] = 1
    for n in range(k):
        first = 10 + 10 * n
        weights[n, first : first + 10] = np.linspace(0.1, 1, 10)
        assert_array_equal(classes.distinct(n), np.arange(first, first + 10))
        assert_array_equal(classes.distinct(n, local=True), np.arange(first, first + 10))
        assert_array_equal(classes.common_of(n, local=True), np.arange(10))
    assert_allclose(classes.p_context, weights / 15.5, rtol=1e-14, atol=0)
    assert_array_equal(classes.common, np.arange(10))
    assert_array_equal(classes.query, np.repeat(np.arange(10 + 10 * k, 10 + 10 * k + q), 2))
    assert_array_equal(classes.queries, np.arange(10 + 10 * k, 10 + 10 * k + q))
    assert_array_equal(classes.next_token, np.arange(vocab_size - k, vocab_size))
    assert_allclose(classes.p_class, 1 / k, rtol=1e-15)


def test_synthetic_with_every_knob() -> None:
    classes = SequenceClasses.synthetic(
        n_queries=2, next_per_query=3, common=2, common_per_query=1, distinct=2,
        common_weight=2.0, distinct_weights=[1, 3],
    )  # fmt: skip
    assert (classes.vocab_size, classes.n_classes) == (2 + 2 * 1 + 6 * 2 + 2 + 6, 6)
    for n, own_common in enumerate([2, 2, 2, 3, 3, 3]):
        own = 4 + 2 * n
        tokens, probs = classes.support(n)
        assert_array_equal(tokens, [0, 1, own_common, own, own + 1])
        assert_allclose(probs, [0.2, 0.2, 0.2, 0.1, 0.3], rtol=1e-15)
        assert_array_equal(classes.distinct(n), [own, own + 1])
        assert_array_equal(classes.common_of(n), [0, 1, own_common])
    assert_array_equal(classes.common, [0, 1, 2, 3])
    assert_array_equal(classes.query, [16, 16, 16, 17, 17, 17])
    assert_array_equal(classes.next_token, np.arange(18, 24))


def test_synthetic_without_common_or_without_distinct_tokens() -> None:
    own = SequenceClasses.synthetic(common=0, distinct=2, distinct_weights=[3, 1])
    assert_array_equal(own.p_context, [[0.75, 0.25, 0, 0, 0, 0, 0], [0, 0, 0.75, 0.25, 0, 0, 0]])
    assert own.common.size == 0
    shared = SequenceClasses.synthetic(common=4, distinct=0)
    assert_array_equal(shared.p_context, np.tile([0.25] * 4 + [0.0] * 3, (2, 1)))
    assert shared.distinct(1).size == 0


def test_tokens_common_to_a_query_with_one_class_are_distinct() -> None:
    classes = SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=1, common_per_query=1, distinct=1)
    assert_array_equal(classes.common, [0])
    assert_array_equal(classes.distinct(1), [2, 4])
    assert_array_equal(classes.distinct(1, local=True), [0, 2, 4])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(
            n_queries=[0, 2.0], next_per_query=[0], common=[-1], common_per_query=[True], distinct=["10"],
            common_weight=[0], distinct_weights=[[1, 2], "ab"],
        ),
        ({"common": 0, "distinct": 0}, "common + common_per_query + distinct"),
        ({"distinct": 2, "distinct_weights": [1, 0]}, "distinct_weights"),
        ({"distinct": 2, "distinct_weights": [1, np.inf]}, "distinct_weights"),
    ],
)  # fmt: skip
def test_synthetic_refuses(options: dict[str, Any], field: str) -> None:
    with refused(field):
        SequenceClasses.synthetic(**options)


# --- word-like classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [0, 0.25, 0.9, 1])
@pytest.mark.parametrize("exponent", [0, 1.1])
def test_zipf_mass_and_layout(overlap: float, exponent: float) -> None:
    classes = SequenceClasses.zipf(vocab=200, classes=6, exponent=exponent, overlap=overlap, seed=3)
    assert (classes.vocab_size, classes.n_classes, len(classes.queries)) == (200, 6, 1)
    assert_allclose(classes.p_context[:, classes.common].sum(axis=1), overlap, atol=1e-14)
    n_common = {0: 0, 1: 193}.get(overlap, 27)  # 193 context tokens are 27 shared and 27 for each of 6 classes
    n_own = {0: 32, 1: 0}.get(overlap, 27)
    assert len(classes.common) == n_common
    for n in range(6):
        own = classes.distinct(n)
        assert_array_equal(classes.common_of(n), classes.common)
        assert len(own) == n_own
        for ids, mass in ((own, 1 - overlap), (classes.common, overlap)):
            ranked = np.sort(classes.p_context[n, ids])[::-1]
            expected = np.arange(1.0, len(ids) + 1) ** -exponent
            assert_allclose(ranked, mass * expected / expected.sum(), rtol=1e-12)
    context = np.flatnonzero(classes.p_context.any(axis=0))
    assert not np.isin([*classes.next_token, classes.query[0]], context).any()
    assert classes.query[0] not in classes.next_token


def test_zipf_classes_disagree_about_what_is_frequent() -> None:
    classes = SequenceClasses.zipf(vocab=500, classes=4, overlap=0.5)
    most_frequent = [classes.common[np.argmax(row)] for row in classes.p_context[:, classes.common]]
    assert len(set(most_frequent)) > 1


def test_zipf_is_a_function_of_its_seed() -> None:
    assert SequenceClasses.zipf(vocab=60, classes=3, seed=5) == SequenceClasses.zipf(vocab=60, classes=3, seed=5)
    assert SequenceClasses.zipf(vocab=60, classes=3, seed=5) != SequenceClasses.zipf(vocab=60, classes=3, seed=6)


@pytest.mark.parametrize(("overlap", "least"), [(0, 9), (0.5, 10), (1, 6)])
def test_zipf_needs_room_for_its_tokens(overlap: float, least: int) -> None:
    smallest = SequenceClasses.zipf(vocab=least, classes=4, overlap=overlap)
    assert_array_equal(smallest.support_sizes, [2 if overlap == 0.5 else 1] * 4)
    for vocab in range(3, least):
        with refused("vocab"):
            SequenceClasses.zipf(vocab=vocab, classes=4, overlap=overlap)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(vocab=[2], classes=[0], exponent=[-1], overlap=[1.5, np.nan], seed=[-1]),
    ],
)  # fmt: skip
def test_zipf_refuses(options: dict[str, Any], field: str) -> None:
    with refused(field):
        SequenceClasses.zipf(**options)


# --- the bundled words -----------------------------------------------------------------------------------


def test_the_bundled_words_are_what_their_file_says() -> None:
    """Three last words with two next words each; words of all classes, of one last word, and of one class only."""
    classes = SequenceClasses.preset("words")
    words = np.array(classes.words)
    assert (classes.n_classes, classes.vocab_size) == (6, 49)
    assert words[classes.query].tolist() == ["drinks", "drinks", "plays", "plays", "reads", "reads"]
    assert words[classes.next_token].tolist() == ["milk", "coffee", "piano", "football", "poems", "maps"]
    everywhere = {"the", "a", "of", "and", "in", "is", "with"}
    assert set(words[classes.common]) == everywhere | {"cup", "evening", "page"}
    assert_allclose(classes.p_context.sum(1), 1, rtol=1e-15)
    for n in range(6):
        tokens, p = classes.support(n)
        assert everywhere < set(words[tokens])
        own = np.isin(tokens, classes.distinct(n))
        assert own.sum() == 5
        assert (np.diff(p[own]) < 0).all(), "from frequent to rare"
        assert p[own].sum() == pytest.approx(0.36)


# --- presets by name -------------------------------------------------------------------------------------


def test_preset_by_name() -> None:
    assert set(PRESETS) == {"syn-small", "syn-medium", "textbook", "synthetic", "zipf", "words"}
    assert SequenceClasses.preset("syn-small") == SequenceClasses.syn_small()
    assert SequenceClasses.preset("syn-medium") == SequenceClasses.syn_medium(1)
    assert SequenceClasses.preset("syn-medium", n_queries=3) == SequenceClasses.syn_medium(3)
    options = {"next_per_query": 3, "common_weight": 2}
    assert SequenceClasses.preset("synthetic", **options) == SequenceClasses.synthetic(**options)
    assert SequenceClasses.preset("zipf", vocab=50, seed=1) == SequenceClasses.zipf(vocab=50, seed=1)


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("syn-large", {}, "preset"),
        (3, {}, "preset"),
        ("syn-small", {"n_queries": 2}, "the setting 'n_queries' of preset syn-small"),
        ("syn-medium", {"n_query": 3}, "the setting 'n_query' of preset syn-medium"),
        ("zipf", {"name": "words"}, "the setting 'name' of preset zipf"),
        ("syn-small", {"cls": 1}, "the setting 'cls' of preset syn-small"),
        ("syn-medium", {"n_queries": "3"}, "n_queries"),
    ],
)
def test_preset_refuses(name: Any, options: dict[str, Any], field: str) -> None:
    with refused(field):
        SequenceClasses.preset(name, **options)


# --- ways in, and what comes out -------------------------------------------------------------------------


def test_distinct_and_common_local_and_global() -> None:
    classes = table_classes()
    assert_array_equal(classes.common, [0, 1, 3])
    assert [classes.distinct(n).tolist() for n in range(3)] == [[], [2], []]
    assert [classes.distinct(n, local=True).tolist() for n in range(3)] == [[1], [2], [0, 1]]
    assert [classes.common_of(n).tolist() for n in range(3)] == [[0, 1, 3], [0, 3], [0, 1]]
    assert [classes.common_of(n, local=True).tolist() for n in range(3)] == [[0, 3], [0, 3], []]
    assert_array_equal(classes.support_sizes, [3, 3, 2])
    assert_array_equal(classes.queries, [5, 6])
    assert_array_equal(classes.p_class, [0.5, 0.25, 0.25])
    assert_array_equal(classes.p_context, TABLE)


def test_from_support_equals_the_dense_table() -> None:
    rng = np.random.default_rng(0)
    order = [rng.permutation(8) for _ in range(3)]  # any order, zeros included
    built = SequenceClasses.from_support(
        order, [row[ids] for row, ids in zip(TABLE, order, strict=True)],
        vocab_size=np.int32(8), query=np.array(QUERY, np.uint8), next_token=tuple(NEXT),
        p_class=[0.5, 0.25, 0.25],
    )  # fmt: skip
    assert built == table_classes()
    assert_array_equal(built.support(1)[0], [0, 2, 3])


@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "csc_array", "coo_array", "lil_array"])
def test_sparse_tables(form: str) -> None:
    assert table_classes(p_context=getattr(scipy.sparse, form)(TABLE)) == table_classes()


def test_zeros_stored_in_a_sparse_table_are_not_support() -> None:
    table = scipy.sparse.csr_array(([0.5, 0.0, 0.5], [0, 2, 3], [0, 3]), shape=(1, 4))
    tokens, probs = SequenceClasses(table, query=[1], next_token=[2]).support(0)
    assert_array_equal(tokens, [0, 3])
    assert_array_equal(probs, [0.5, 0.5])


def test_rounded_rows_are_rescaled_and_exact_ones_kept() -> None:
    rough = np.array([[0.1, 0.2, 0.7 + 9e-7, 0]])
    classes = SequenceClasses(rough, query=[0], next_token=[3])
    assert_allclose(classes.p_context, rough / (1 + 9e-7), rtol=1e-15)
    single = np.random.default_rng(1).dirichlet(np.ones(50), size=2).astype(np.float32)
    assert_allclose(SequenceClasses(single, [0, 1], [0, 1]).p_context.sum(axis=1), 1, rtol=1e-15)
    exact = np.array([[0.7, 0.2, 0.1]])
    assert exact.sum() != 1  # by rounding only
    assert_array_equal(SequenceClasses(exact, [0], [0]).p_context, exact)
    assert_array_equal(SequenceClasses([[0, 1]], [0], [0]).p_context, [[0.0, 1.0]])  # integers are numbers
    assert_array_equal(table_classes(p_class=[0, 1, 0]).p_class, [0, 1, 0])


def test_arrays_are_read_only() -> None:
    classes = table_classes()
    for array in (classes.query, classes.next_token, classes.p_class, *classes.support(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_inputs_are_copied_and_the_dense_view_is_fresh() -> None:
    table, query, nexts, p_class = TABLE.copy(), np.array(QUERY), np.array(NEXT), np.array([0.5, 0.25, 0.25])
    classes = SequenceClasses(table, query, nexts, p_class)
    for array in (table, query, nexts, p_class):
        assert array.flags.writeable
        array[...] = 0
    classes.p_context[...] = 0
    classes.distinct(1)[...] = 0
    assert classes == table_classes()


def test_repr() -> None:
    assert repr(SequenceClasses.syn_medium(3)) == (
        "SequenceClasses(n_classes=6, vocab_size=79, n_queries=3, tokens_per_class=20, common=10, "
        "distinct_per_class=10)"
    )
    assert repr(table_classes()) == (
        "SequenceClasses(n_classes=3, vocab_size=8, n_queries=2, tokens_per_class=2-3, common=3, "
        "distinct_per_class=0-1)"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"p_context": TABLE[[0, 1, 0]]},
        {"p_context": np.nextafter(TABLE, TABLE * 2)},  # one bit
        {"p_context": np.pad(TABLE, ((0, 0), (0, 1)))},  # a larger vocabulary
        {"query": [5, 5, 5]},
        {"next_token": [4, 1, 6]},
        {"p_class": None},
    ],
)
def test_equality_sees_every_field(changes: dict[str, Any]) -> None:
    assert table_classes() == table_classes()
    assert table_classes() != table_classes(**changes)
    assert table_classes(**changes) == table_classes(**changes)


def test_equality_sees_where_a_row_ends() -> None:
    first = SequenceClasses([[1, 1e-13, 0], [0, 0, 1]], [0, 0], [1, 2])
    assert first != SequenceClasses([[1, 0, 0], [0, 1e-13, 1]], [0, 0], [1, 2])


def test_equality_with_other_types_and_hash() -> None:
    assert table_classes() != "classes"
    assert table_classes().__eq__(TABLE) is NotImplemented
    with pytest.raises(TypeError, match="unhashable"):
        hash(table_classes())


@pytest.mark.parametrize("method", ["support", "distinct", "common_of"])
@pytest.mark.parametrize("n", [-1, 3, 1.0, True])
def test_class_number_out_of_range(method: str, n: Any) -> None:
    with refused("the class number"):
        getattr(table_classes(), method)(n)


# --- bad input -------------------------------------------------------------------------------------------


def with_first_row(row: list[Any]) -> np.ndarray:
    return np.array([row, *TABLE[1:]])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *bad_values(
            p_context=[[0.5, 0.5], [[0.5, 0.5], [1]], [["a", "b"]], [[True, False]], None, np.zeros((0, 8))],
            query=[[5, 8, 5], [5, 5, -1], [5.0, 5.0, 6.0], ["5", "5", "6"], [5, 5], 5, [], [[5], [5, 6]]],
            next_token=[[4, 1, 8], [4, 1, 7.5], [[4, 1, 7]], [4, 7, 4]],
            p_class=[[0.5, 0.5], [1.5, -0.5, 0], [1, np.nan, 0], ["a", "b", "c"]],
        ),
        ({"p_context": with_first_row([-0.25, 0.5, 0.75, 0, 0, 0, 0, 0])}, "P(·|0)"),
        ({"p_context": TABLE * [[1], [np.nan], [1]]}, "P(·|1)"),
        ({"p_context": with_first_row([1, np.inf, 0, 0, 0, 0, 0, 0])}, "P(·|0)"),
        ({"p_context": TABLE * [[1], [1], [0.5]]}, "the sum of P(·|2)"),
        ({"p_context": TABLE * [[1.25], [1], [1]]}, "the sum of P(·|0)"),
        ({"p_context": TABLE * [[1], [0], [1]]}, ("P(·|1)", "empty")),
        ({"p_context": TABLE[:, :2]}, ("the number of classes", 3)),
        ({"p_class": [0.5, 0.5, 0.5]}, ("the sum of p_class", 1.5)), ({"p_class": [0, 0, 0]}, ("p_class", "empty")),
    ],
)  # fmt: skip
def test_bad_tables(changes: dict[str, Any], field: str) -> None:
    with refused(field):
        table_classes(**changes)


def test_repeated_next_token_is_counted_right() -> None:
    with refused("next_token", "1 for 2 classes"):
        SequenceClasses(np.eye(5, 9), query=[8] * 5, next_token=[1, 1, 2, 2, 2])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tokens": [[0, 6], [2, 0]]}, "tokens of class 0"), ({"tokens": [[0, 1], [2, -2]]}, "tokens of class 1"),
        ({"tokens": [[0.0, 1.0], [2, 0]]}, "tokens of class 0"),
        ({"tokens": [[[0], [1, 2]], [2, 0]]}, "tokens of class 0"), ({"tokens": [[0, 1], [2, 2]]}, "tokens of class 1"),
        ({"tokens": [[0, 1]]}, "probs"), ({"tokens": [[0, 1, 2], [2, 0]]}, "class 0"),
        ({"tokens": [], "probs": []}, "p_context"),
        ({"tokens": [[0, 1], []], "probs": [[0.5, 0.5], []]}, ("P(·|1)", "empty")),
        ({"probs": [[0.5, 0.5], ["a", "b"]]}, "probabilities of class 1"),
        ({"probs": [[0.5, 0.5], [-0.5, 1.5]]}, "P(·|1)"), ({"probs": [[0.5, 0.25], [1, 0]]}, "the sum of P(·|0)"),
        ({"vocab_size": 0}, "vocab_size"), ({"vocab_size": 6.0}, "vocab_size"),
        ({"vocab_size": 1, "tokens": [[0], [0]], "probs": [[1], [1]]}, ("the number of classes", 2)),
        ({"query": [3, 6]}, "query"),
    ],
)  # fmt: skip
def test_bad_support(changes: dict[str, Any], field: str) -> None:
    with refused(field):
        support_classes(**changes)


# --- properties of random classes ------------------------------------------------------------------------


@st.composite
def random_classes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, SequenceClasses]:
    """The table and queries the classes were built from, and the classes."""
    k = draw(st.integers(1, 5))
    m = draw(st.integers(k, 9))
    weight = st.one_of(st.just(0.0), st.just(0.0), st.floats(1e-12, 1.0))
    rows = st.lists(weight, min_size=m, max_size=m).filter(any)
    table = np.array(draw(st.lists(rows, min_size=k, max_size=k)))
    table /= table.sum(axis=1, keepdims=True)
    query = np.array(draw(st.lists(st.integers(0, min(2, m - 1)), min_size=k, max_size=k)))
    next_token = draw(st.permutations(range(m)))[:k]
    return table, query, SequenceClasses(table, query, next_token)


@settings(max_examples=80, deadline=None)
@given(random_classes())
def test_distinct_and_common_follow_their_definition(drawn: tuple[np.ndarray, np.ndarray, SequenceClasses]) -> None:
    table, query, classes = drawn
    inside = table > 0
    omega = inside.sum(axis=0)  # |Ω(l)|
    assert_array_equal(classes.common, np.flatnonzero(omega > 1))
    for n in range(len(table)):
        local_omega = inside[query == query[n]].sum(axis=0)
        assert_array_equal(classes.distinct(n), np.flatnonzero(inside[n] & (omega == 1)))
        assert_array_equal(classes.common_of(n), np.flatnonzero(inside[n] & (omega > 1)))
        assert_array_equal(classes.distinct(n, local=True), np.flatnonzero(inside[n] & (local_omega == 1)))
        assert_array_equal(classes.common_of(n, local=True), np.flatnonzero(inside[n] & (local_omega > 1)))


@settings(max_examples=80, deadline=None)
@given(random_classes())
def test_distinct_and_common_partition_the_support(drawn: tuple[np.ndarray, np.ndarray, SequenceClasses]) -> None:
    classes = drawn[2]
    for n in range(classes.n_classes):
        for local in (False, True):
            parts = np.concatenate([classes.distinct(n, local=local), classes.common_of(n, local=local)])
            assert_array_equal(np.sort(parts), classes.support(n)[0])
        assert set(classes.distinct(n)) <= set(classes.distinct(n, local=True))


@settings(max_examples=80, deadline=None)
@given(random_classes())
def test_dense_view_is_the_table_and_builds_the_same_classes(
    drawn: tuple[np.ndarray, np.ndarray, SequenceClasses],
) -> None:
    table, query, classes = drawn
    assert_allclose(classes.p_context, table, rtol=1e-12)
    assert_allclose(classes.p_context.sum(axis=1), 1, rtol=1e-12)
    assert_array_equal(classes.support_sizes, np.count_nonzero(table, axis=1))
    assert classes == SequenceClasses(classes.p_context, query, classes.next_token, classes.p_class)
