"""Set-ups: a set-up means what it means on the command line, and every mistake names its control."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_forms import bars, offer

import scansnap as ss
from scansnap.checks import InputError
from scansnap.cli.run import find_run
from scansnap.explorer.controls import BY_NAME, CONTROLS, PRESET_CONTROLS, class_presets
from scansnap.explorer.page import as_json
from scansnap.explorer.presets import PRESETS
from scansnap.explorer.setup import field_of, read_setup

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"classes": {"preset": "syn-small"}}
BARS = {"vocab_size": 6, "classes": [{"query": 4, "next_token": 5, "tokens": [0, 1], "weights": [1, 3]},
                                     {"query": 4, "next_token": 3, "tokens": [0, 2], "weights": [2, 2]}]}  # fmt: skip
TEXT = """\
The kitten sits by the bowl and drinks milk.
The farmer looks at the cow and drinks milk.
In the office the clerk yawns and drinks coffee.
At the desk, early in the morning, she drinks coffee.
"""


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p["name"])
def test_presets_are_complete_set_ups(preset):
    reading = read_setup(preset["setup"])
    assert reading.setup == {name: control.default for name, control in BY_NAME.items()} | preset["setup"]
    assert read_setup(reading.setup).setup == reading.setup, "a filled-in set-up must mean itself"
    assert preset["commentary"]
    as_json(reading.setup)


def test_controls_match_what_the_code_takes():
    from scansnap.classes import PRESETS as CLASSES
    from scansnap.dynamics.settings import run_settings
    from scansnap.runs import run_fields

    assert {row["name"] for row in class_presets()} == set(CLASSES)
    assert all(row["explain"].endswith(".") for row in class_presets())
    known = {*run_settings(), *run_fields()}
    not_shown = {"record", "variables", "ratio", "update", "weight_decay_y", "weight_decay_z"}
    assert {c.name for c in CONTROLS} == known - not_shown
    for control in (*CONTROLS, *PRESET_CONTROLS.values()):
        assert control.explain.endswith(".")
        assert len(control.explain) <= 110
        assert control.check(control.default) == control.default
        assert not control.options or control.default in control.options


def test_bars_are_normalised_weights_and_keep_their_words():
    classes = read_setup({"classes": {"bars": BARS}}).classes
    np.testing.assert_array_equal(classes.p_context[:, :3], [[0.25, 0.75, 0], [0.5, 0, 0.5]])
    np.testing.assert_array_equal(classes.p_class, [0.5, 0.5])
    assert classes.words is None
    weighted = {**BARS, "classes": [{**row, "p_class": w} for row, w in zip(BARS["classes"], (1, 3), strict=True)]}
    named = read_setup({"classes": {"bars": {**weighted, "words": {"0": "cat", "3": "purrs"}}}}).classes
    np.testing.assert_array_equal(named.p_class, [0.25, 0.75])
    assert named.words == ("cat", "1", "2", "purrs", "4", "5")


def test_a_text_and_its_counts_are_the_same_classes():
    from scansnap.corpus.passage import read

    of_text = read_setup({"classes": {"text": TEXT}}).classes
    of_counts = read_setup({"classes": {"bars": bars(read(TEXT, most=9999).classes())}}).classes
    assert of_text == of_counts
    used = {int(token) for n in range(of_text.n_classes) for token in of_text.support(n)[0]}
    assert [of_text.words[t] for t in used] == [of_counts.words[t] for t in used]
    long = TEXT + "".join(f"Nothing{i} of{i} this{i} matters{i} here{i}.\n" for i in range(100))
    form = offer(long)["classes"]
    assert "text" in offer(TEXT)["classes"]
    assert len(as_json(form)) < len(long), "the shorter form is stored"
    assert read_setup({"classes": form}).classes == read_setup({"classes": {"text": long}}).classes


# --- run files -------------------------------------------------------------------------------------------------------


def test_a_run_file_fills_what_the_set_up_leaves_out():
    text = '[classes]\npreset = "syn-small"\n[run]\nratio = 5\neta_z = 0.5\noptimizer = "adam"\nrecord = "all"\n'
    reading = read_setup({"classes": {"toml": text}, "eta_z": 2.0})
    assert (reading.setup["eta_y"], reading.setup["eta_z"], reading.setup["optimizer"]) == (2.5, 2.0, "adam")
    text = '[classes]\npreset = "syn-small"\n[run]\nratio = [5, 2]\neta_z = 0.5\nseed = [3, 4, 5]\n'
    reading = read_setup({"classes": {"toml": text}})
    assert reading.note == "The file has 6 runs; this is the first: ratio = 5, seed = 3."
    assert (reading.setup["eta_y"], reading.setup["seed"]) == (2.5, 3)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda f: f.stem)
def test_every_example_that_describes_a_run_is_taken(file):
    """Of several runs the page shows the first; a sweep is none."""
    text = file.read_text(encoding="utf-8")
    if "[grid]" in text:
        with pytest.raises(InputError, match="grid"):
            read_setup({"classes": {"toml": text}})
        return
    classes, rates, _ = find_run(file, {})
    reading = read_setup({"classes": {"toml": text}})
    runs = ss.grid(**rates)
    assert reading.classes == classes
    assert (reading.setup["eta_y"], reading.setup["eta_z"]) == (runs.eta_y[0], runs.eta_z[0])
    assert (f"has {len(runs)} runs" in reading.note) == (len(runs) > 1)


def test_a_momentum_that_the_optimiser_does_not_have_is_zero():
    reading = read_setup({**SMALL, "optimizer": "adam", "momentum": 0.9})
    assert (reading.setup["momentum"], reading.runs.momentum.tolist()) == (0.0, [0.0])
    assert read_setup({**SMALL, "optimizer": "sgd", "momentum": 0.9}).setup["momentum"] == 0.9


# --- refusals --------------------------------------------------------------------------------------------------------


def first_class(**changes):
    return {**BARS, "classes": [{**BARS["classes"][0], **changes}]}


RUN = '[classes]\npreset = "syn-small"\n[run]\n'
REFUSED = {  # by the control that shows the message
    "setup": [[]],
    "eta": [{**SMALL, "eta": 1}],
    "classes": [{}, *({"classes": form} for form in (
        {"preset": "huge"}, {"preset": "syn-small", "toml": ""}, {"preset": "syn-small", "n_queries": 2},
        {"preset": "synthetic", "n_queries": 64, "next_per_query": 64}, {"preset": "synthetic", "distinct": 20000},
        *({"toml": text} for text in ("=", "x = 1", "a = " + "[" * 3000, RUN + "seed = [0, -1]", "[run]\nseed = 1")),
        *({"bars": form} for form in (
            3, {**BARS, "vocab_size": 10**9}, {**BARS, "classes": []}, first_class(weights=[0, 0]),
            first_class(weights=[1, -1]), first_class(tokens=[0, 10**30]), {**BARS, "classes": [{"query": 4}]},
            {**BARS, "words": ["a"]}, {**BARS, "words": {"9": "a"}}, {**BARS, "words": {"0": 3}},
            {**BARS, "words": {"0": "3"}})),
        {"text": 3}, {"text": "too short"}, {"text": "x" * 30_000}, {"text": TEXT, "window": 3},
        {"text": TEXT, "pairs": [["drinks", "tea"], ["drinks", "milk"]]}, {"text": TEXT, "preset": "words"}))],
    "n_queries": [{"classes": {"preset": "syn-medium", "n_queries": 10**12}}],
    "vocab": [{"classes": {"preset": "zipf", "vocab": 10**15}}],
    **{name: [{**SMALL, name: value} for value in values] for name, values in {
        "eta_y": [-1, "1", True], "eta_z": [1e9], "momentum": [1], "steps": [0, 10**9], "context": [1, "infinite"],
        "batch_size": [None, 10**6], "init": ["normal(-1)"], "norm": ["l3"], "optimizer": ["lion"], "heads": [99],
    }.items()},
    "clip": [{**SMALL, "optimizer": {"name": "sgd", "clip": 0}}],
}  # fmt: skip
REFUSED["steps"].append({"classes": {"toml": RUN + "steps = [10, 20]"}})
REFUSED["context"].append({**SMALL, "position_bias": 1, "context": "inf"})


@pytest.mark.parametrize("field", REFUSED)
def test_refusals_name_the_control(field):
    for setup in REFUSED[field]:
        with pytest.raises(InputError) as caught:
            read_setup(setup)
        assert field_of(caught.value) == field, (setup, str(caught.value))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_OPTIONS = {name: _VALUES | st.sampled_from([c.default, *(c.options or ())]) for name, c in BY_NAME.items()}


@given(st.fixed_dictionaries({"classes": st.sampled_from([SMALL["classes"], {"bars": BARS}]) | _VALUES},
                             optional=_OPTIONS))  # fmt: skip
def test_anything_is_a_run_or_a_refusal(setup):
    try:
        reading = read_setup(setup)
    except InputError as error:
        as_json({"field": field_of(error), "message": str(error)})
    else:
        assert isinstance(reading.classes, ss.SequenceClasses)
