"""A pasted text as a set-up: what may be chosen, the same classes whichever form is kept, and words on the way back."""

from pathlib import Path
from typing import Any

import pytest
from explorer_site import Site

from scansnap.checks import InputError
from scansnap.cli.run_file import find_run
from scansnap.explorer.messages import http
from scansnap.explorer.protocol import LIMITS, dumps
from scansnap.explorer.setups.read import field_of, read_setup, summary, to_toml
from scansnap.explorer.setups.words import offer

TEXT = """\
The kitten sits by the bowl and drinks milk.
The farmer looks at the cow and drinks milk.
In the office the clerk yawns and drinks coffee.
At the desk, early in the morning, she drinks coffee.
"""


def test_the_text_and_its_counts_are_the_same_classes() -> None:
    from scansnap.corpus.passage import read
    from scansnap.explorer.setups.words import bars

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
    assert len(dumps(kept)) < len(long)
    assert read_setup({"classes": kept}).classes == read_setup({"classes": {"text": long}}).classes


def test_a_text_goes_to_a_run_file_with_its_words(tmp_path: Path) -> None:
    blueprint = read_setup({"classes": {"text": TEXT}, "steps": 10})
    (tmp_path / "run.toml").write_text(to_toml(blueprint), encoding="utf-8")
    classes, _, _ = find_run(tmp_path / "run.toml", {})
    assert classes == blueprint.classes
    assert classes is not None
    assert classes.words == blueprint.classes.words
    told = summary(blueprint.classes)["words"]
    assert told is not None
    assert {"kitten", "milk", "drinks"} < set(told.values())


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
        ({"text": TEXT, "window": 3}, "left out"),
        ({"text": TEXT, "preset": "words"}, "preset, toml, bars or text"),
        ({"bars": {**WORDS_OF_BARS, "words": ["a"]}}, "an object"),
        ({"bars": {**WORDS_OF_BARS, "words": {"9": "a"}}}, "below 4"),
        ({"bars": {**WORDS_OF_BARS, "words": {"0": 3}}}, "text"),
        ({"bars": {**WORDS_OF_BARS, "words": {"0": "3"}}}, "another"),
    ],
)
def test_refusals_stand_at_the_classes(classes: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_setup({"classes": classes})
    assert field_of(caught.value) == "classes"
    assert words in str(caught.value)


def test_the_question_and_its_refusals(site: Site) -> None:
    answer = site.client.post("/api/words", json={"text": TEXT})
    assert answer.status_code == 200
    http.WordsSaid.model_validate(answer.json())
    assert site.client.post("/api/check", json={"classes": answer.json()["classes"]}).status_code == 200
    for body, words in (({"text": "x " * LIMITS["text_characters"]}, "at most"), ({}, "a text"),
                        ({"text": TEXT, "more": 1}, "more")):  # fmt: skip
        refused = site.client.post("/api/words", json=body)
        assert refused.status_code == 422
        assert words in refused.json()["message"]
