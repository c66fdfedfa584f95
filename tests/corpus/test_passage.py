"""A pasted text: pairs, contexts and classes as counted by hand, and refusals in plain words."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.corpus.passage import Passage, read

TEXT = """\
The kitten sits by the bowl, and drinks milk!
The FARMER looks at the cow and drinks milk. In the office the clerk yawns and drinks coffee
At the desk, early in the morning, she drinks coffee.
Drinks milk? Never.
"""


def passage(text: str, most: int = 10_000) -> Passage:
    return read(text, most=most)


def test_pairs_are_those_the_text_has_twice() -> None:
    parsed = passage(TEXT)
    assert dict(zip(parsed.pairs, parsed.counts.tolist(), strict=True)) == {
        ("and", "drinks"): 3, ("drinks", "milk"): 3, ("drinks", "coffee"): 2, ("in", "the"): 2, ("at", "the"): 2,
    }  # fmt: skip
    assert parsed.counts.tolist() == sorted(parsed.counts.tolist(), reverse=True)
    assert (parsed.n_sentences, parsed.n_words) == (6, 40)
    assert parsed.chosen() == [("drinks", "milk"), ("drinks", "coffee")]


def test_classes_are_counted_in_the_sentence_before_the_pair() -> None:
    classes = SequenceClasses(**passage(TEXT).classes().table())
    assert classes.words is not None
    words = np.array(classes.words)
    tokens, p = classes.support(0)
    before = ["the", "kitten", "sits", "by", "the", "bowl", "and", "the", "farmer", "looks", "at", "the", "cow", "and"]
    assert dict(zip(words[tokens], p, strict=True)) == {word: n / 14 for word, n in Counter(before).items()}
    np.testing.assert_allclose(classes.p_class, [3 / 5, 2 / 5])
    assert [words[classes.query[0]], words[classes.next_token[0]]] == ["drinks", "milk"]
    assert "<eos>" not in words[classes.support(1)[0]]


def test_pairs_may_be_chosen() -> None:
    counts = passage(TEXT).classes([("in", "the"), ("and", "drinks")])
    assert counts.pair_counts.tolist() == [2, 3]
    assert counts.share == 1  # “in” and “and” are always followed so


def test_last_words_whose_next_words_are_most_of_what_follows_come_first() -> None:
    """“the” is followed by a and b as often as “see” by c and d, but by many others besides."""
    text = "".join(f"we the a x{i} see c.\nwe the b y{i} see d.\n" for i in range(4))
    text += "".join(f"then the z{i} is here.\n" for i in range(20))
    parsed = passage(text)
    assert parsed.chosen()[:2] == [("see", "c"), ("see", "d")]
    assert ("the", "a") in parsed.pairs


def test_a_next_word_goes_to_one_class() -> None:
    text = "we sit in the sun and lie in the sun and sit on the sand and lie on the sand\n" * 2
    parsed = passage(text)
    assert {("in", "the"), ("on", "the")} < set(parsed.pairs)
    following = [pair[1] for pair in parsed.chosen()]
    assert len(set(following)) == len(following) > 1
    with refused("pairs", "the"):
        parsed.classes([("in", "the"), ("on", "the")])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (3, "text"),
        ("", ("text", "0 words")),
        ("hot tea hot tea", ("text", "4 words")),
        ("x " * 6000, ("text", "12000 characters")),
        (" ".join(f"w{i}" for i in range(50)), ("text", "a text without repeated pairs")),
        ("hot tea.\n" * 20, ("text", "a text with 0 of them")),
        ("a b c d e f g h i j k l m n hot tea.\n o p q r s t u v w x hot tea.\n", ("text", "a text with 1 of them")),
    ],
)
def test_what_gives_no_classes_is_refused(text: Any, field: str) -> None:
    with refused(field):
        passage(text)


@pytest.mark.parametrize(
    ("pairs", "field"),
    [
        ("drinks milk", "pairs"),
        ([["drinks"]], "pairs"),
        ([["drinks", "milk"]], "pairs"),
        ([["drinks", "milk"], ["drinks", "tea"]], "pairs"),
    ],
)
def test_refused_choices(pairs: Any, field: str) -> None:
    with refused(field):
        passage(TEXT).classes(pairs)


@given(st.lists(st.sampled_from(["a", "b", "c", "d", ".", "\n"]), min_size=20, max_size=120))
def test_counts_are_those_of_a_plain_count(parts: list[str]) -> None:
    try:
        parsed = passage(" ".join(parts))
    except InputError:
        return
    contexts: dict[tuple[str, str], Counter[str]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for sentence in " ".join(parts).replace("\n", ".").split("."):
        words = sentence.split()
        for i in range(len(words) - 1):
            pair = words[i], words[i + 1]
            times[pair] += 1
            contexts.setdefault(pair, Counter()).update(words[:i])
    expected = {pair: n for pair, n in times.items() if n > 1 and contexts[pair]}
    assert dict(zip(parsed.pairs, parsed.counts.tolist(), strict=True)) == expected
    for at, pair in enumerate(parsed.pairs):
        row = parsed.contexts[[at]].toarray()[0]
        assert {parsed.vocabulary.words[i]: int(row[i]) for i in np.flatnonzero(row)} == dict(contexts[pair])
