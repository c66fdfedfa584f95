"""Vocabulary: order, limits, round trips, and the numbers WikiText-2 is known by."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from scansnap.checks import InputError
from scansnap.corpus import Vocabulary, load_corpus
from scansnap.corpus.vocabulary import EOS, UNK, build
from scansnap.storage.checksums import sign

WORDS = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=4)
LINES = st.lists(st.lists(st.sampled_from("abcdefg") | WORDS, max_size=6), max_size=12)


def joined(lines: list[list[str]]) -> str:
    return "".join(" ".join(line) + "\n" for line in lines)


def test_ids_by_frequency_then_first_appearance() -> None:
    vocabulary, ids = build(["c a b\n", "b d a <unk>\n"])
    assert vocabulary.words == ("a", "b", EOS, "c", "d", UNK)
    assert vocabulary.counts.tolist() == [2, 2, 2, 1, 1, 1]
    assert ids.tolist() == [3, 0, 1, 2, 1, 4, 0, 5, 2]


@given(lines=LINES)
def test_counts_against_a_counter(lines: list[list[str]]) -> None:
    vocabulary, ids = build([joined([line]) for line in lines], min_count=1)
    words = [word for line in lines for word in [*line, EOS]]
    counts = Counter(words)
    assert dict(zip(vocabulary.words, vocabulary.counts.tolist(), strict=True)) == {UNK: 0, EOS: 0} | counts
    assert list(vocabulary.counts) == sorted(vocabulary.counts, reverse=True)
    assert [vocabulary.words[i] for i in ids] == words


@given(lines=LINES)
def test_round_trip(lines: list[list[str]]) -> None:
    text = joined(lines)
    vocabulary, ids = build([text], min_count=1)
    np.testing.assert_array_equal(vocabulary.encode(text), ids)
    if not any(EOS in line for line in lines):
        assert vocabulary.decode(ids) == text
    again = vocabulary.encode(vocabulary.decode(ids))
    np.testing.assert_array_equal(again, ids)


@given(lines=LINES, min_count=st.integers(1, 4), max_words=st.none() | st.integers(3, 8))
def test_limits(lines: list[list[str]], min_count: int, max_words: int | None) -> None:
    vocabulary, ids = build([joined(lines)], min_count=min_count, max_words=max_words)
    words = [word for line in lines for word in [*line, EOS]]
    counts = Counter(word for word in words if word not in (UNK, EOS))
    frequent = [word for word, n in counts.most_common() if n >= min_count]  # ties by first appearance, too
    frequent = frequent if max_words is None else frequent[: max_words - 2]
    assert set(vocabulary.words) == {*frequent, UNK, EOS}
    assert [vocabulary.words[i] for i in ids] == [word if word in (*frequent, EOS) else UNK for word in words]
    np.testing.assert_array_equal(np.bincount(ids, minlength=len(vocabulary)), vocabulary.counts)


def test_rare_words_are_unknown_unless_the_text_marks_them() -> None:
    assert "once" in build(["once <unk>\n"])[0].words
    plain, ids = build(["once twice twice\n"])
    assert "once" not in plain.words
    assert (ids == plain.unk).sum() == 1


def test_unknown_words() -> None:
    vocabulary, _ = build(["a a\n"])
    assert vocabulary.decode(vocabulary.encode("a b\nc")) == "a <unk>\n<unk>"
    with refused("word", "b"):
        vocabulary.id("b")
    with refused("ids"):
        vocabulary.decode([99])


@given(lines=LINES)
def test_json_round_trip(lines: list[list[str]]) -> None:
    vocabulary, _ = build([joined(lines)], min_count=1)
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    assert json.loads(vocabulary.to_json())["words"] == list(vocabulary.words)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", sign({"format": 9, "words": ["<unk>", "<eos>"], "counts": [1, 1]}),
        sign({"format": 2, "words": ["<unk>", "a"], "counts": [1, 1]}),
        sign({"format": 2, "words": ["<unk>", "<eos>", "<eos>"], "counts": [1, 1, 1]}),
        sign({"format": 2, "words": ["<unk>", "<eos>"], "counts": [1, 2]}),
        sign({"format": 2, "words": ["<unk>", "<eos>"], "counts": [1]}),
        '{"format": 2, "words": ["<unk>", "<eos>"], "counts": [1, 1]}',
    ],
)  # fmt: skip
def test_what_is_no_vocabulary(text: str) -> None:
    with pytest.raises(InputError):
        Vocabulary.from_json(text)


@pytest.mark.parametrize("wrong", [{"min_count": 0}, {"max_words": 2}, {"min_count": 1.5}])
def test_settings_are_checked(folder: Path, wrong: dict[str, int]) -> None:
    with refused(next(iter(wrong))):
        build([], **wrong)
    with refused(next(iter(wrong))):
        load_corpus(folder, **wrong)


def test_wikitext_2(wikitext: Path) -> None:
    corpus = load_corpus(wikitext)
    assert corpus.vocab_size == 33_278
    assert [corpus.split(s).size for s in ("train", "valid", "test")] == [2_088_628, 217_646, 245_569]
    assert (corpus.train == corpus.vocabulary.eos).sum() == 2_088_628 - 2_051_910
    assert corpus.title == "WikiText-2"
