"""A pasted text as a set-up: what may be chosen, the same classes whichever form is kept, and words on the way back."""

from typing import Any

import pytest
from page_forms import bars, offer

from scansnap.checks import InputError
from scansnap.explorer.page import as_json
from scansnap.explorer.setup import field_of, read_setup

TEXT = """\
The kitten sits by the bowl and drinks milk.
The farmer looks at the cow and drinks milk.
In the office the clerk yawns and drinks coffee.
At the desk, early in the morning, she drinks coffee.
"""


def test_the_text_and_its_counts_are_the_same_classes() -> None:
    from scansnap.corpus.passage import read

    of_text = read_setup({"classes": {"text": TEXT}})
    of_counts = read_setup({"classes": {"bars": bars(read(TEXT, most=9999).classes())}})
    assert of_text.classes == of_counts.classes
    for n in range(of_text.classes.n_classes):
        for token in of_text.classes.support(n)[0]:
            assert of_text.classes.words is not None
            assert of_counts.classes.words is not None
            assert of_text.classes.words[token] == of_counts.classes.words[token]


def test_an_offer_has_what_may_be_chosen() -> None:
    said = offer(TEXT)
    assert {(one["query"], one["next"]) for one in said["pairs"] if one["chosen"]} == {
        ("drinks", "milk"), ("drinks", "coffee"),
    }  # fmt: skip
    assert all(one["count"] >= 2 for one in said["pairs"])
    other = offer(TEXT, [["and", "drinks"], ["in", "the"]])
    assert [one["chosen"] for one in other["pairs"]] == [one["query"] in ("and", "in") for one in other["pairs"]]
    none = offer(TEXT, [])
    assert none["classes"] is None
    assert "at least 2" in none["refusal"]


def test_the_shorter_form_is_kept() -> None:
    assert "text" in offer(TEXT)["classes"]
    long = TEXT + "".join(f"Nothing{i} of{i} this{i} matters{i} here{i}.\n" for i in range(100))
    kept = offer(long)["classes"]
    assert "bars" in kept
    assert len(as_json(kept)) < len(long)
    assert read_setup({"classes": kept}).classes == read_setup({"classes": {"text": long}}).classes


WORDS_OF_BARS = {"vocab_size": 4, "classes": [{"query": 2, "next_token": 3, "tokens": [0, 1], "weights": [1, 2]}]}


def test_bars_keep_their_words() -> None:
    classes = read_setup({"classes": {"bars": {**WORDS_OF_BARS, "words": {"0": "cat", "3": "purrs"}}}}).classes
    assert classes.words == ("cat", "1", "2", "purrs")
    assert read_setup({"classes": {"bars": WORDS_OF_BARS}}).classes.words is None


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({"text": 3}, "a text"),
        ({"text": "too short"}, "2 words long"),
        ({"text": "x" * 30_000}, "at most 20000"),
        ({"text": TEXT, "pairs": [["drinks", "tea"], ["drinks", "milk"]]}, "'drinks tea'"),
        ({"text": TEXT, "window": 3}, "window"),
        ({"text": TEXT, "preset": "words"}, "preset, toml, bars or text"),
        ({"bars": {**WORDS_OF_BARS, "words": ["a"]}}, "an object"),
        ({"bars": {**WORDS_OF_BARS, "words": {"9": "a"}}}, "< 4"),
        ({"bars": {**WORDS_OF_BARS, "words": {"0": 3}}}, "text"),
        ({"bars": {**WORDS_OF_BARS, "words": {"0": "3"}}}, "another"),
    ],
)
def test_refusals_stand_at_the_classes(classes: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_setup({"classes": classes})
    assert field_of(caught.value) == "classes"
    assert words in str(caught.value)
