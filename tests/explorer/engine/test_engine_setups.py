"""Set-ups are read by the page's engine as Python reads them, and what is shown of them is the same."""

import csv
import dataclasses
import io
import json
import math
import tomllib
from typing import Any

import numpy as np
import pytest
import references
import tomli_w
from films import Film
from hypothesis import given, settings
from hypothesis import strategies as st
from page_engine import Refused, answer, answers, needs_node
from page_forms import offer, summary

from scansnap.checks import InputError
from scansnap.explorer.controls import CONTROLS
from scansnap.explorer.page import as_json
from scansnap.explorer.presets import DEFAULT, PRESETS
from scansnap.explorer.setup import SetupReading, field_of, read_setup
from scansnap.storage.json_text import to_jsonable

pytestmark = needs_node
SETUPS = [preset["setup"] for preset in PRESETS]
TEXT = """The cat sat on the mat. The dog sat on the rug! A cat drinks milk in the evening; a dog drinks water.
In the evening the cat drinks milk. In the morning the dog drinks water. It’s the cat’s milk, the dog’s water.
The old cat drinks milk, the young dog drinks water… Über dem Haus schläft die Katze. Über dem Haus schläft der Hund."""


def close(own: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    """Equal, numbers to within a tolerance; null is NaN."""
    if isinstance(theirs, dict):
        assert set(own) == set(theirs)
        for name in theirs:
            close(own[name], theirs[name], tolerance)
    elif isinstance(theirs, list | tuple):
        assert len(own) == len(theirs)
        for one, other in zip(own, theirs, strict=True):
            close(one, other, tolerance)
    elif isinstance(theirs, float) and isinstance(own, int | float):
        assert own == pytest.approx(theirs, rel=tolerance, abs=1e-12)
    else:
        assert own == theirs


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "eta_y": st.sampled_from([0, 1, 0.5, -1, 1e5, "a", None]), "eta_z": st.sampled_from([0, 2.5, 20000, True]),
    "seed": st.sampled_from([0, 2**53 - 1, -1, 1.5]), "momentum": st.sampled_from([0, 0.5, 1.0]),
    "weight_decay": st.sampled_from([0, 0.1, 11]), "steps": st.sampled_from([1, 300, 0, 10**9]),
    "batch_size": st.sampled_from([1, 64, None, "none", 0, 5000]), "context": st.sampled_from([2, 64, "inf", 1, "x"]),
    "sampling": st.sampled_from(["counts", "tokens", "both"]),
    "optimizer": st.sampled_from(["sgd", "adam", "muon", "lion", {"name": "adam", "beta1": 0.5}, {"y": "adam"},
                                  {"name": "sgd", "clip": -1}, {"beta3": 1}, {"schedule": "step(2)"}]),
    "norm": st.sampled_from(["l2", "none", "layernorm", "l1"]),
    "residual": st.sampled_from(["none", "normed", "plain", 3]),
    "query_in_keys": st.sampled_from([True, False, 1]), "outputs": st.sampled_from(["all", "next", ""]),
    "heads": st.sampled_from([1, 3, 0, 99]), "position_bias": st.sampled_from([None, "none", 0.1, -11, 5.0]),
    "init": st.sampled_from(["zero", "uniform", "normal(0.1)", "normal(0)", "normal(x)", 5]),
    "steps_": st.just(3),
}  # fmt: skip
BARS = {"vocab_size": 6, "words": {"0": "a", "5": "z"}, "classes": [
    {"query": 5, "next_token": 3, "p_class": 3, "tokens": [2, 0], "weights": [1, 2.5]},
    {"query": 5, "next_token": 4, "p_class": 1, "tokens": [0, 1], "weights": [1, 1]}]}  # fmt: skip
EXPLICIT = {"vocab_size": 4, "class": [
    {"query": 3, "next_token": 1, "tokens": [0, 1], "p_context": [0.5, 0.5]},
    {"query": 3, "next_token": 2, "tokens": [0, 2], "p_context": [0.25, 0.75]}]}  # fmt: skip
FORMS = st.sampled_from([
    {"preset": "words"}, {"preset": "syn-small"}, {"preset": "textbook"}, {"preset": "syn-medium", "n_queries": 3},
    {"preset": "syn-medium", "n_queries": 40}, {"preset": "synthetic", "distinct": 3, "distinct_weights": [1, 2, 3]},
    {"preset": "synthetic", "distinct": 3, "distinct_weights": [1, 2]}, {"preset": "synthetic", "common": -1},
    {"preset": "synthetic", "n_queries": 60, "next_per_query": 60}, {"preset": "zipf", "vocab": 5}, {"preset": "nope"},
    {"preset": "synthetic", "common": 0, "distinct": 0}, {"preset": "syn-small", "n_queries": 2}, {}, {"bars": {}},
    {"bars": BARS}, {"bars": BARS | {"vocab_size": 5}}, {"bars": BARS | {"words": {"9": "x"}}}, {"bars": BARS, "x": 1},
    {"text": TEXT}, {"text": TEXT, "pairs": [["drinks", "milk"], ["drinks", "water"]]}, {"text": "too short"},
    {"text": TEXT, "pairs": [["drinks", "milk"]]}, {"text": TEXT, "pairs": [["cat", "dog"], ["drinks", "milk"]]},
    EXPLICIT, {"toml": tomli_w.dumps(EXPLICIT)}, {"toml": "a = "},
    {"toml": tomli_w.dumps(EXPLICIT | {"vocab_size": 2})},
    {"toml": tomli_w.dumps({"classes": {"preset": "zipf", "vocab": 50, "classes": 3}, "run": {
        "eta_z": [0.5, 1.0], "ratio": 2, "seed": [3, 4], "steps": 50, "batch_size": "none", "context": math.inf,
        "record": [0]}})},
    {"toml": tomli_w.dumps({"classes": {"preset": "words"}, "run": {"eta_q": 1}})},
    {"toml": tomli_w.dumps({"classes": {"preset": "words"}, "run": {"optimizer": {"name": "adam", "eps": 0.001}}})},
])  # fmt: skip


FIELDS = {control.name for control in CONTROLS} | {"classes"}


def read(setup: dict[str, Any]) -> SetupReading | InputError:
    try:
        return read_setup(setup)
    except InputError as error:
        return error


@pytest.mark.hypothesis
def test_set_ups_are_read_and_refused_alike() -> None:
    asked: list[dict[str, Any]] = [*SETUPS]

    @settings(max_examples=150)
    @given(FORMS, st.dictionaries(st.sampled_from(list(VALUES)), st.none(), max_size=3), st.data())
    def collect(form: dict[str, Any], names: dict[str, None], data: st.DataObject) -> None:
        asked.append({"classes": form} | {name: data.draw(VALUES[name]) for name in names})

    collect()
    n_read = 0
    for setup, own in zip(asked, answers([{"ask": "setup", "setup": setup} for setup in asked]), strict=True):
        made = read(setup)
        if isinstance(made, InputError):
            assert isinstance(own, Refused), (setup, str(made))
            if field_of(made) in FIELDS and len(setup) <= 2 and "steps_" not in setup:
                assert own.field == field_of(made), (setup, str(made), str(own))
            continue
        if references.is_too_large(made):  # for a page; the package would run it
            assert isinstance(own, Refused), setup
            continue
        n_read += 1
        assert not isinstance(own, Refused), (setup, str(own))
        close(own["setup"], to_jsonable(made.setup))
        close(own["summary"], to_jsonable(summary(made.classes)), 1e-14)
        close(own["theory"], to_jsonable(references.theory(made)))
        assert own["floats"] == references.frame_layout(made)["floats"]
        assert own["note"] == made.note
    assert n_read > 30  # a good part is allowed


def test_words_of_a_text() -> None:
    texts = [TEXT, TEXT.replace("\n", " "), TEXT.upper(), "the cat " * 20,
             "nothing twice here " + " ".join(map(str, range(30))),
             "a b. a b. c d. c d. " + "x " * 30, TEXT + "\n" + TEXT.replace("cat", "naïve_cat's")]  # fmt: skip
    for text, own in zip(texts, answers([{"ask": "words", "text": text} for text in texts]), strict=True):
        try:
            theirs = offer(text)
        except InputError:
            assert isinstance(own, Refused)
            continue
        assert not isinstance(own, Refused)
        for part in (own, theirs):
            part["refusal"] = bool(part["refusal"])
        if own["classes"] is not None:
            made = [read_setup({"classes": part.pop("classes")}).classes for part in (own, theirs)]
            assert made[0] == made[1]
        assert json.loads(json.dumps(theirs)) == own | ({"classes": None} if "classes" in theirs else {})


TABLES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-(2**50), 2**50), st.floats(allow_nan=False), st.text(), st.lists(st.integers(0, 9))
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.text(), inner, max_size=3),
        st.lists(st.dictionaries(st.text(), inner, max_size=2), max_size=3),
    ),
    max_leaves=12,
)
WRITTEN = ['a = """\nx\\\n   y"""', "a = '''it's'''", "a.b.c = 1\na.d = 0x1F", "a = [\n 1, # one\n 2,\n]",
           "a = 1_000.5e-1_0",
           "[a]\n[a.b]\nc = 1\n[[d]]\ne = 2\n[[d]]\n", '"a b".c = "\\u00e9\\U0001F600"',
           "a = {b = 1, c.d = [{e = 2}]}"]  # fmt: skip
BROKEN = ["a = ", "a = 1\na = 2", "[a]\n[a]", "a = 01", 'a = "x', "a = [1", "= 1", "a = 1 b = 2",
          "a = {b = 1", 'a = "\\q"',
          "[a", "a = tru", "a.b = 1\na.b.c = 2", "[[a]]\n[a]\nb = 1\n[a]"]  # fmt: skip


@pytest.mark.hypothesis
def test_toml_is_read_as_python_reads_it() -> None:
    texts = [*WRITTEN]

    @settings(max_examples=60)
    @given(st.dictionaries(st.text(), TABLES, max_size=3))
    def collect(table: dict[str, Any]) -> None:
        texts.append(tomli_w.dumps(table, multiline_strings=len(texts) % 2 == 0))

    collect()
    for text, own in zip(texts, answers([{"ask": "parse", "text": text} for text in texts]), strict=True):
        theirs = json.loads(as_json(tomllib.loads(text)), parse_int=float)
        assert json.loads(json.dumps(own), parse_int=float) == theirs, text  # JSON of JavaScript has one kind of number
    for text, own in zip(BROKEN, answers([{"ask": "parse", "text": text} for text in BROKEN]), strict=True):
        with pytest.raises(tomllib.TOMLDecodeError):
            tomllib.loads(text)
        assert isinstance(own, Refused), text
        assert own.field == "toml"


def test_the_file_that_is_written_is_the_same_run() -> None:
    asked = [
        *SETUPS,
        {"classes": {"bars": BARS}, "optimizer": {"name": "adam", "beta1": 0.5}},
        {"classes": {"text": TEXT}},
    ]
    for setup, text in zip(
        asked, answers([{"ask": "toml", "setup": setup, "notes": ["a note"]} for setup in asked]), strict=True
    ):
        again, made = read_setup({"classes": {"toml": text}}), read_setup(setup | {"dtype": "float64"})
        assert again.classes == made.classes
        assert again.settings == made.settings
        assert again.setup | {"classes": None} == made.setup | {"classes": None}


FILMS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (DEFAULT | {"steps": 70}, []),
    ({"classes": {"preset": "syn-medium", "n_queries": 2}, "steps": 60, "heads": 2, "init": "uniform",
      "norm": "none"}, []),
    ({"classes": {"preset": "syn-small"}, "steps": 55, "momentum": 0.5, "query_in_keys": True, "residual": "normed"},
     [{"step": 0, "eta_y": 0.5, "eta_z": None}, {"step": 53, "eta_y": None, "eta_z": 3.0}]),
]  # fmt: skip


def test_films() -> None:
    found = answers([{"ask": "film", "setup": setup, "marks": marks, "table": 8} for setup, marks in FILMS])
    for (setup, marks), own in zip(FILMS, found, strict=True):
        film = Film(setup | {"dtype": "float64"}, marks)
        assert own["layout"] == references.frame_layout(film.reading)
        assert own["steps"] == film.steps.tolist()
        values = np.array(own["values"], dtype=float)
        for field in own["layout"]["fields"]:
            theirs = film.frame_values(field["name"])
            found_here = values[:, field["offset"] : field["offset"] + field["size"]]
            np.testing.assert_allclose(found_here, theirs, rtol=1e-9, atol=1e-12)
        assert (
            own["table"]["rows"] == film.layout.rows[: len(own["table"]["rows"])].tolist() or film.layout.rows.size > 8
        )
        written = list(csv.DictReader(io.StringIO(own["csv"])))
        assert {row["quantity"] for row in written} == {field["name"] for field in own["layout"]["fields"]}
        kept = sorted({int(row["step"]) for row in written})
        assert len(kept) <= 5
        assert [float(row["value"] or "nan") for row in written if int(row["step"]) == kept[-1]] == pytest.approx(
            values[own["steps"].index(kept[-1])].tolist(), nan_ok=True, rel=1e-14
        )
    assert "the" in {row["word"] for row in csv.DictReader(io.StringIO(found[0]["csv"]))}


def test_curves_and_overlays() -> None:
    setup = DEFAULT | {"momentum": 0.5}
    made = read_setup(setup)
    curves, flow, response = answers([
        {"ask": "curves", "setup": setup, "last": 500, "points": 20},
        {"ask": "overlay", "setup": setup, "last": 500, "points": 20},
        {"ask": "overlay", "setup": setup | {"eta_z": 0.01}, "last": 500, "points": 20, "by": "response"},
    ])  # fmt: skip
    close(curves, to_jsonable(references.curves(made, 500, 20)))
    close_series(flow, to_jsonable(references.overlay(made, 500, 20)), 1e-4)
    slow = references.overlay(read_setup(setup | {"eta_z": 0.01}), 500, 20, "response")
    close_series(response, to_jsonable(slow), 1e-4)


def close_series(own: dict[str, Any], theirs: dict[str, Any], tolerance: float) -> None:
    """Both are right to their rtol of 1e-6 a step only."""
    assert set(own) == set(theirs)
    for name, values in theirs.items():
        if name == "trusted_until":
            assert own[name] == values
            continue
        for one, other in zip(own[name], values, strict=True):
            np.testing.assert_allclose(
                np.array(one, dtype=float), np.array(other, dtype=float), rtol=tolerance, atol=1e-5
            )


def test_the_map_of_the_rates() -> None:
    setup = {"classes": {"preset": "syn-small"}, "steps": 12, "batch_size": 16, "dtype": "float64"}
    theirs = references.rate_map(read_setup(setup))
    cells = answer(ask="map", setup=setup)
    assert sorted((cell["row"], cell["column"]) for cell in cells) == [(i, j) for i in range(9) for j in range(9)]
    for cell in cells:
        assert cell["share"] == pytest.approx(float(theirs[cell["row"], cell["column"]]), abs=1e-10)
    for name in ("eta_y", "eta_z"):
        assert answer(ask="axis", name=name) == references.axis(name).tolist()


def test_a_declared_setting_changes_what_the_engine_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    question = {"ask": "setup", "setup": DEFAULT | {"eta_y": 5000}}
    (before,) = answers([question])
    assert not isinstance(before, Refused)
    tight = [
        dataclasses.replace(c, spec=dataclasses.replace(c.spec, most=10.0)) if c.name == "eta_y" else c
        for c in CONTROLS
    ]
    monkeypatch.setattr("scansnap.explorer.declared.CONTROLS", tight)
    (after,) = answers([question])
    assert isinstance(after, Refused)
    assert after.field == "eta_y"
