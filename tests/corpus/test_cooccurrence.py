"""Co-occurrence counts against a slow, obvious loop; and the sequence classes made of them."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
import scansnap.corpus.cooccurrence as module
from refusals import refused
from scansnap.checks import InputError
from scansnap.corpus import Corpus, load_corpus
from scansnap.corpus.cooccurrence import context_counts, cooccurrence, pair_counts
from scansnap.corpus.encoding import split_into_blocks
from scansnap.corpus.vocabulary import EOS, UNK, build
from scansnap.results.trajectory import classes_of


def slow_contexts(
    stream: list[int], pairs: list[tuple[int, int]], top: int, window: int, eos: int | None
) -> np.ndarray:
    table = np.zeros((len(pairs), top), int)
    for i in range(len(stream) - 1):
        for k, pair in enumerate(pairs):
            if (stream[i], stream[i + 1]) != pair:
                continue
            for j in range(i - 1, max(-1, i - 1 - window), -1):
                if stream[j] == eos:
                    break
                if stream[j] < top:
                    table[k, stream[j]] += 1
    return table


@st.composite
def streams(draw: st.DrawFn) -> dict[str, Any]:
    m = draw(st.integers(2, 7))
    word = st.integers(0, m - 1)
    pairs = draw(st.lists(st.tuples(word, word), min_size=1, max_size=6, unique=True))
    return {
        "m": m,
        "stream": draw(st.lists(word, min_size=1, max_size=60)),
        "pairs": pairs,
        "top": draw(st.integers(1, m)),
        "window": draw(st.integers(1, 9)),
        "eos": draw(st.none() | word),
        "size": draw(st.integers(1, 70)),  # blocks shorter than the window, and longer than the stream
    }


@pytest.mark.parametrize("dense", [True, False])
@settings(deadline=None, max_examples=150)
@given(case=streams())
def test_contexts_against_the_loop(dense: bool, case: dict[str, Any]) -> None:
    tokens = np.array(case["stream"], np.int32)
    query, following = np.array(case["pairs"]).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DENSE_CELLS", 10**6 if dense else 0)
        patch.setattr(module, "CONTEXT_BLOCK", 12)
        counts = context_counts(
            split_into_blocks(tokens, case["size"]),
            query,
            following,
            top=case["top"],
            window=case["window"],
            eos=case["eos"],
        )
    expected = slow_contexts(case["stream"], case["pairs"], case["top"], case["window"], case["eos"])
    np.testing.assert_array_equal(counts.toarray(), expected)


@pytest.mark.parametrize("dense", [True, False])
@settings(deadline=None)
@given(case=streams())
def test_pairs_against_a_counter(dense: bool, case: dict[str, Any]) -> None:
    stream = case["stream"]
    queries = np.unique([q for q, _ in case["pairs"]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DENSE_CELLS", 10**6 if dense else 0)
        pairs = pair_counts(split_into_blocks(np.array(stream, np.int32), case["size"]), queries, case["m"]).toarray()
    counts = Counter(itertools.pairwise(stream))
    assert pairs.tolist() == [[counts[int(q), n] for n in range(case["m"])] for q in queries]


def corpus_of(text: str, **settings: Any) -> Corpus:
    vocabulary, ids = build([text], **settings)
    return Corpus("little", "little", vocabulary, ids, ids[:1], ids[:1])


# "the" is followed by dog 3 times and cat 2; "a" by dog 4 and cat 1: dog goes to "a", the next best of "the" is cat.
ANIMALS = corpus_of(
    "x the dog y the dog y the dog y the cat y the cat\n"
    "z a dog y a dog y a dog y a dog y a cat z a fox\n", min_count=1
)  # fmt: skip


def named(found: module.Cooccurrence) -> list[tuple[str, str, int]]:
    pairs = zip(found.query, found.next_token, found.pair_counts, strict=True)
    return [(found.words[q], found.words[n], int(k)) for q, n, k in pairs]


def test_next_words_are_disjoint_greedily_by_count() -> None:
    counts = cooccurrence(ANIMALS, queries=["the", "a"], next_per_query=2, top=None)
    assert named(counts) == [("the", "cat", 2), ("a", "dog", 4), ("a", "fox", 1)]
    assert counts.share == 7 / 11


def test_next_words_may_be_shared_for_counting_only() -> None:
    counts = cooccurrence(ANIMALS, queries=["the", "a"], next_per_query=1, top=None, disjoint=False)
    assert named(counts) == [("the", "dog", 3), ("a", "dog", 4)]
    with refused("next_token"):
        ss.SequenceClasses(**counts.table())


def test_queries_are_the_most_frequent_words_without_the_marks() -> None:
    corpus = corpus_of("b c b c b d\n" * 3 + "<unk> <unk> <unk> <unk>\n")
    counts = cooccurrence(corpus, queries=2, next_per_query=1)
    assert {counts.words[q] for q in counts.query} == {"b", "c"}
    assert not {UNK, EOS} & {counts.words[n] for n in counts.next_token}


@pytest.mark.parametrize("cross_eos", [True, False])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_classes_against_the_loop(cross_eos: bool, data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), min_size=1, max_size=8))
    corpus = corpus_of("a b a b c\n" + "".join(" ".join(line) + "\n" for line in lines), min_count=1)
    top = data.draw(st.integers(3, corpus.vocab_size))
    try:
        result = cooccurrence(corpus, queries=1, next_per_query=3, top=top, window=4, cross_eos=cross_eos)
        classes = ss.SequenceClasses(**result.table())
    except InputError:  # too few words for a query, or no context in the line: said in one sentence, tested below
        return
    stream = corpus.train.tolist()
    pairs = list(zip(result.query.tolist(), result.next_token.tolist(), strict=True))
    counts = Counter(itertools.pairwise(stream))
    table = slow_contexts(stream, pairs, top, 4, None if cross_eos else corpus.vocabulary.eos)
    np.testing.assert_allclose(classes.p_context, table / table.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(classes.p_context.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(classes.p_class, [counts[p] / sum(map(counts.get, pairs)) for p in pairs], rtol=1e-12)
    assert classes.vocab_size == top
    assert classes.words == corpus.words[:top]


def test_from_corpus_of_anything(folder: Path) -> None:
    corpus = load_corpus(folder)
    expected = ss.SequenceClasses.from_corpus(corpus, queries=["b"], next_per_query=1)
    assert expected == ss.SequenceClasses.from_corpus(str(folder), queries=["b"], next_per_query=1)
    # "b a" stands in "b a b ⏎ ⏎ c b a": contexts {} and {b, a, b, ⏎, ⏎, c}
    assert expected.words is not None
    assert [expected.words[i] for i in (expected.query[0], expected.next_token[0])] == ["b", "a"]
    p = dict(zip(expected.words, expected.p_context[0].tolist(), strict=True))
    assert p == pytest.approx({"b": 2 / 6, "a": 1 / 6, EOS: 2 / 6, "c": 1 / 6, UNK: 0})


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_a_saved_trajectory_knows_the_words(tmp_path: Path, suffix: str) -> None:
    classes = ss.SequenceClasses.from_corpus(ANIMALS, queries=["the", "a"], next_per_query=2, top=None)
    data = ss.simulate(classes, eta_y=1.0, eta_z=0.1, steps=1, batch_size=8, context=16)
    assert np.isfinite(data.loss.values).all()
    ss.save(data, tmp_path / f"a.{suffix}")
    back = classes_of(ss.load(tmp_path / f"a.{suffix}"))
    assert back == classes
    assert back.words == classes.words
    assert "the" in back.words
    assert classes_of(ss.flow(classes, t=[1.0])).words == classes.words


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"queries": 0}, "queries"),
        ({"queries": 100}, "queries"),
        ({"queries": "the"}, "queries"),
        ({"queries": []}, "queries"),
        ({"queries": ["horse"]}, ("word", "horse")),
        ({"queries": ["a", "a"]}, "queries"),
        ({"queries": ["fox"], "top": 3}, "queries"),
        ({"queries": ["fox"]}, "queries"),  # only <eos> follows it
        ({"next_per_query": 0}, "next_per_query"),
        ({"top": 0}, "top"),
        ({"window": 0}, "window"),
        ({"split": "dev"}, "split"),
        ({"windows": 3}, "windows"),
    ],
)
def test_bad_settings(wrong: dict[str, Any], field: str) -> None:
    with refused(field):
        ss.SequenceClasses.from_corpus(ANIMALS, **wrong)


def test_empty_context_is_refused() -> None:
    corpus = corpus_of("a b c\n", min_count=1)
    with refused("queries", "a b"):
        cooccurrence(corpus, queries=["a"], next_per_query=1).table()


def test_progress_counts_both_passes() -> None:
    messages: list[tuple[int, int]] = []
    cooccurrence(ANIMALS, queries=["a"], progress=lambda done, total: messages.append((done, total)))
    n = ANIMALS.train.size
    assert messages == [(n, 2 * n), (2 * n, 2 * n)]


def test_wikitext_pairs(wikitext: Path) -> None:
    corpus = load_corpus(wikitext)
    counts = cooccurrence(corpus, queries=["of", "New"], next_per_query=1)
    tokens = corpus.train
    for q, n, k in zip(counts.query, counts.next_token, counts.pair_counts, strict=True):
        assert k == ((tokens[:-1] == q) & (tokens[1:] == n)).sum()
    assert [counts.words[n] for n in counts.next_token] == ["the", "York"]
